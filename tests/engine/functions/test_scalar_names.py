"""Functions under the names that other databases use for them, each evaluated by Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlglot import exp

from resurgence.sql.functions.scalar_names import spark_names
from resurgence.sql.syntax.dialect import to_spark
from resurgence.sql.syntax.parse import parse

AT = "TIMESTAMP '2024-03-05 06:07:08.123456'"
DOCUMENT = '{"s":"x","n":12,"f":1.5,"b":true,"z":null,"a.b":7,"o":{"p":[3,{"q":"r"}]},"t":"[1]"}'
JSON = f"'{DOCUMENT}'"
CASES: list[tuple[str, object]] = [
    # time
    (f"extract(epoch FROM {AT})", 1709618828.123456),
    ("extract(epoch FROM DATE '1970-01-02')", 86400.0),
    ("extract(epoch FROM TIMESTAMP '1969-12-31 23:59:59.5')", -0.5),
    (f"date_part('epoch', {AT})", 1709618828.123456),
    (f"extract(epoch FROM ({AT} - TIMESTAMP '2024-03-05 06:00:00.123456'))", 428.0),
    (f"extract(epoch FROM {AT} - INTERVAL '1 hour')", 1709615228.123456),
    ("extract(epoch FROM INTERVAL '1.5' SECOND)", 1.5),
    (f"datepart('EPOCH', {AT})", 1709618828.123456),
    (f"extract(milliseconds FROM {AT})", 8123.456),
    (f"extract(microseconds FROM {AT})", 8123456),
    (f"extract(isodow FROM {AT})", 2),
    ("extract(isodow FROM DATE '2024-03-10')", 7),
    ("extract(isoyear FROM DATE '2024-12-30')", 2025),
    (f"extract(hour FROM {AT})", 6),
    (f"date_part('minute', {AT})", 7),
    (f"extract(second FROM {AT})", Decimal("8.123456")),
    (f"extract(doy FROM {AT})", 65),
    (f"extract(dow FROM {AT})", 3),
    (f"date_trunc('hour', {AT})", datetime(2024, 3, 5, 6)),
    ("to_timestamp('2024-03-05 06:07:08')", datetime(2024, 3, 5, 6, 7, 8)),
    ("to_timestamp(1709618828)", datetime(2024, 3, 5, 6, 7, 8)),
    ("to_timestamp_seconds(1709618828)", datetime(2024, 3, 5, 6, 7, 8)),
    ("to_timestamp_millis(1709618828123)", datetime(2024, 3, 5, 6, 7, 8, 123000)),
    ("to_timestamp_micros(1709618828123456)", datetime(2024, 3, 5, 6, 7, 8, 123456)),
    ("to_timestamp_nanos(1709618828123456789)", datetime(2024, 3, 5, 6, 7, 8, 123456)),
    ("to_timestamp_nanos(-1)", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    (f"to_unixtime({AT})", 1709618828),
    ("from_unixtime(0)", "1970-01-01 00:00:00"),
    (f"date_bin(INTERVAL '15 minutes', {AT})", datetime(2024, 3, 5, 6)),
    (
        f"date_bin(INTERVAL '15 minutes', {AT}, TIMESTAMP '2024-01-01 00:05:00')",
        datetime(2024, 3, 5, 6, 5),
    ),
    (f"to_char({AT}, '%Y-%m-%dT%H:%M:%S')", "2024-03-05T06:07:08"),
    (f"to_char({AT}, '%d %b %y, it is %I%p')", "05 Mar 24, it is 06AM"),
    (f"to_char({AT}, '[%Y] it''s 100%% #%m:%d')", "[2024] it's 100% #03:05"),
    (f"to_char({AT}, 'yyyy/MM')", "2024/03"),
    ("'2024-03-05'::date", date(2024, 3, 5)),
    # text
    ("strpos('hello', 'l')", 3),
    ("strpos('hello', 'z')", 0),
    ("position('l' IN 'hello')", 3),
    ("character_length('žluť')", 4),
    ("starts_with('hello', 'he')", True),
    ("ends_with('hello', 'he')", False),
    ("btrim('xxhixx', 'x')", "hi"),
    ("nvl(NULL, 'a')", "a"),
    ("'a' || NULL", None),
    ("'a' || 'b'", "ab"),
    ("regexp_like('Hello', '^h')", False),
    ("regexp_like('Hello', '^h', 'i')", True),
    ("regexp_like('Hello', concat('^', 'h'), 'i')", True),
    ("'Hello' ~* '^h'", True),
    ("regexp_replace('abab', 'b', 'x')", "axax"),
    ("regexp_replace('aBab', 'b', 'x', 'gi')", "axax"),
    (r"regexp_replace('ab', '(a)(b)', '\\2$\\1', 'g')", "b$a"),
    ("regexp_match('a12b34', '[0-9]+')", ["12"]),
    ("regexp_match('a12b34', '([a-z])([0-9]+)')", ["a", "12"]),
    ("regexp_match('A12', '([a-z])', 'i')", ["A"]),
    ("regexp_match('abc', '[0-9]+')", None),
    ("encode('abc', 'hex')", "616263"),
    ("encode('abc', 'base64')", "YWJj"),
    ("decode('616263', 'hex')", b"abc"),
    ("decode('YWJj', 'base64')", b"abc"),
    ("decode(encode('abc', 'utf-8'), 'utf-8')", "abc"),
    ("md5('abc')", "900150983cd24fb0d6963f7d28e17f72"),
    ("hex(sha224('abc'))", "23097D223405D8228642A477BDA255B32AADBCE4BDA0B3F7E36C9DA7"),
    (
        "lower(hex(sha256('abc')))",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ),
    ("substring(hex(sha384('abc')), 1, 8)", "CB00753F"),
    ("substring(hex(sha512('abc')), 1, 8)", "DDAF35A1"),
    ("digest('abc', 'md5') = unhex('900150983cd24fb0d6963f7d28e17f72')", True),
    ("digest('abc', 'SHA256') = sha256('abc')", True),
    ("to_hex(255)", "ff"),
    # arrays
    ("make_array(1, 2)", [1, 2]),
    ("make_list(1)", [1]),
    ("array[1, 2]", [1, 2]),
    ("array_length(make_array(1, 2))", 2),
    ("array_length(make_array(1, 2), 1)", 2),
    ("list_length(make_array())", 0),
    ("array_element(make_array(5, 6), 1)", 5),
    ("array_element(make_array(5, 6), -1)", 6),
    ("array_element(make_array(5, 6), 0)", None),
    ("array_extract(make_array(5, 6), 3)", None),
    ("list_element(make_array(5, 6), 2)", 6),
    ("list_extract(make_array(5, 6), 2)", 6),
    ("make_array(5, 6)[1]", 5),
    ("(make_array(5, 6))[3]", None),
    ("array(5, 6)[1]", 6),
    ("regexp_match('a1', '[0-9]')[1]", "1"),
    (f"extract_json({JSON}, '$.s')[1]", '"x"'),
    ("array_slice(make_array(1, 2, 3, 4), 2, 3)", [2, 3]),
    ("array_slice(make_array(1, 2, 3, 4), -2, -1)", [3, 4]),
    ("array_slice(make_array(1, 2, 3, 4), 3 - 3, 1 + 1)", [1, 2]),
    ("array_slice(make_array(1, 2), 5, 9)", []),
    ("list_slice(make_array(1, 2), 2, 1)", []),
    ("array_has(make_array(1, 2), 2)", True),
    ("list_has(make_array(1, 2), 3)", False),
    ("list_contains(make_array(1, 2), 2)", True),
    ("array_has_all(make_array(1, 2), make_array(2, 1))", True),
    ("array_has_all(make_array(1, 2), make_array(3))", False),
    ("array_has_any(make_array(1, NULL), make_array(2))", False),
    ("array_has_any(make_array(1, 2), make_array(2, 3))", True),
    ("array_concat(make_array(1), make_array(2))", [1, 2]),
    ("array_cat(make_array(1), make_array(2))", [1, 2]),
    ("list_concat(make_array(1), make_array(2))", [1, 2]),
    ("array_push_back(make_array(1), 2)", [1, 2]),
    ("list_append(make_array(1), 2)", [1, 2]),
    ("list_distinct(make_array(1, 1))", [1]),
    ("list_sort(make_array(2, 1))", [1, 2]),
    ("array_to_string(make_array('a', 'b'), '-')", "a-b"),
    ("list_to_string(make_array('a', NULL), '-', '?')", "a-?"),
    ("string_to_array('a.b.', '.')", ["a", "b", ""]),
    (r"string_to_array('a\\Eb', '\\E')", ["a", "b"]),
    # JSON
    (f"{JSON} ->> 's'", "x"),
    (f"{JSON} -> 's'", '"x"'),
    (f"({JSON} -> 's')::text", "x"),
    (f"{JSON} -> 'n'", "12"),
    (f"{JSON} -> 'z'", "null"),
    (f"{JSON} -> 'nope'", None),
    (f"{JSON} ->> 'n'", "12"),
    (f"{JSON} ->> 'a.b'", "7"),
    (f"{JSON} ->> 'z'", None),
    (f"{JSON} ->> 'nope'", None),
    (f"{JSON} -> 'o'", '{"p":[3,{"q":"r"}]}'),
    (f"{JSON} -> 'o' -> 'p' ->> 0", "3"),
    (f"({JSON} -> 'o') -> 'p' -> 1 ->> 'q'", "r"),
    (f"({JSON} ->> 'n')::int + 1", 13),
    (f"CAST({JSON} -> 'n' AS INT) + 1", 13),
    (f"json_get({JSON}, 's')", '"x"'),
    (f"json_get({JSON}, 's')::text", "x"),
    (f"json_get({JSON}, 'n')::int", 12),
    (f"{JSON} -> 'o' -> 'p' -> 1", '{"q":"r"}'),
    (r"""'{"a": "{\\"b\\": 1}"}' -> 'a' ->> 'b'""", None),
    (r"""('{"a": "{\\"b\\": 1}"}' ->> 'a') ->> 'b'""", "1"),
    (f"{JSON} -> 't' ->> 0", None),
    ("'nonsense' ->> 'a'", None),
    ("upper(doc -> 's')", '"X"'),
    ("upper(doc ->> 's')", "X"),
    ("concat(doc -> 'o' -> 'p' ->> 0, '!')", "3!"),
    ("transform(array(1), x -> 'a')", ["a"]),
    (f"json_get({JSON}, 'o', 'p', 0)", "3"),
    (f"json_get({JSON})", DOCUMENT),
    (f"json_as_text({JSON}, 'n')", "12"),
    (f"json_get_json({JSON}, 's')", '"x"'),
    (f"json_get_json({JSON}, 'o', 'p')", '[3,{"q":"r"}]'),
    (f"json_get_str({JSON}, 's')", "x"),
    (f"json_get_str({JSON}, 'n')", None),
    (f"json_get_int({JSON}, 'n')", 12),
    (f"json_get_int({JSON}, 's')", None),
    (f"json_get_int({JSON}, 'f')", None),
    (f"json_get_float({JSON}, 'f')", 1.5),
    (f"json_get_float({JSON}, 'n')", 12.0),
    (f"json_get_float({JSON}, 's')", None),
    (f"json_get_bool({JSON}, 'b')", True),
    (f"json_get_bool({JSON}, 'n')", None),
    (f"json_contains({JSON}, 'z')", True),
    (f"{JSON} ? 'n'", True),
    (f"{JSON} ? 'nope'", False),
    (f"json_contains({JSON}, 'nope')", False),
    (f"json_length({JSON})", 8),
    (f"json_length({JSON}, 'o', 'p')", 2),
    (f"json_length({JSON}, 't')", None),
    (f"extract_json_string({JSON}, '$.o.p[1].q')", "r"),
    (f"extract_json_string({JSON}, '$.n')", None),
    (f"extract_json({JSON}, '$.s')", ['"x"']),
    (f"extract_json({JSON}, '$.o.p')", ['[3,{"q":"r"}]']),
    (f"extract_json({JSON}, '$[''nope'']')", []),
    ("extract_json('nonsense', '$.a')", None),
    (f"get_first_json_object({JSON}, '$.s')", '"x"'),
]


def meant(text: str) -> str:
    """The expression as Spark is to read it."""
    script = parse(f"SELECT {text} FROM t")
    select = spark_names(script.statements[0], script, lambda _name: False)
    assert isinstance(select, exp.Select)
    return to_spark(select.expressions[0].unalias())


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> tuple[Any, ...]:
    """What Spark gives for every case, in one query that it cannot compute beforehand."""
    rows = spark.createDataFrame([(DOCUMENT,)], "doc STRING")
    values = [f"{meant(text)} AS c{number}" for number, (text, _) in enumerate(CASES)]
    return tuple(rows.selectExpr(*values).collect()[0])


@pytest.mark.parametrize(
    ("number", "expected"),
    [pytest.param(number, value, id=text) for number, (text, value) in enumerate(CASES)],
)
def test_a_function_of_another_database_means_the_same_in_spark(
    answers: tuple[Any, ...], number: int, expected: object
) -> None:
    found = answers[number]
    if isinstance(expected, datetime):
        found = found.astimezone(UTC).replace(tzinfo=None)
    assert found == expected
    assert type(found) is type(expected) or isinstance(found, bytes | bytearray)
