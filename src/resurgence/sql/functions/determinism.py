"""Keeps expressions reproducible: a replayed epoch must give the same rows.

The clock means the planning time of the epoch, which is recorded with the epoch's input. Calls whose
value depends on anything else that is not recorded (random numbers, the environment, how rows were
split into tasks, arbitrary Java code) are refused. So are texts that Spark would read the clock for
when it casts them.
"""

from __future__ import annotations

import re

from sqlglot import exp

from resurgence.sql.functions.spark_template import filled, placed
from resurgence.sql.syntax.dialect import PlanningTime
from resurgence.sql.syntax.parse import Script


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_REPLAY = "a replayed epoch would give other rows"
_RANDOM = (f"gives a random value: {_REPLAY}", "derive it from columns, as in md5(column)")
_TASKS = (
    f"depends on how rows are split into tasks: {_REPLAY}",
    "number rows where they are made",
)
_ENVIRONMENT = (
    f"depends on where the job runs: {_REPLAY}",
    "write the value as a constant",
)
_JAVA = (
    f"calls arbitrary Java code: {_REPLAY}",
    "write a Python function and pass it with --udfs",
)
_SKETCH = (
    f"keeps a random part of its values: {_REPLAY}",
    "use percentile(column, 0.5) or percentile_approx(column, 0.5)",
)
_TIME_TYPE = ("gives a TIME, a type that is not supported", "use date_format(now(), 'HH:mm:ss')")
_REFUSED = {
    **dict.fromkeys(
        _names("gen_random_uuid rand randn random randstr shuffle uniform uuid uuidv4 uuidv7"),
        _RANDOM,
    ),
    **dict.fromkeys(
        _names("""
            input_file_block_length input_file_block_start input_file_name
            monotonically_increasing_id spark_partition_id
        """),
        _TASKS,
    ),
    **dict.fromkeys(
        _names("""
            current_catalog current_database current_path current_schema current_user session_user
            user version
        """),
        _ENVIRONMENT,
    ),
    **dict.fromkeys(
        _names("kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float"), _SKETCH
    ),
    **dict.fromkeys(_names("java_method reflect try_reflect"), _JAVA),
    **dict.fromkeys(_names("current_time localtime"), _TIME_TYPE),
}
_NOW = _names("""
    clock_timestamp current_timestamp now proctime statement_timestamp transaction_timestamp
    wallclock
""")
_CLOCK = {
    **dict.fromkeys(_names("curdate current_date today"), "CAST(t AS DATE)"),
    "localtimestamp": "CAST(t AS TIMESTAMP_NTZ)",
    "unix_timestamp": "unix_seconds(t)",
}
"""What other functions of the clock give, where `t` is the planning time."""
_BARE_WORDS: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "current_timestamp",
    exp.CurrentDate: "current_date",
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.Localtimestamp: "localtimestamp",
}
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b.*", re.IGNORECASE | re.DOTALL)
_TIME_ONLY = re.compile(r"\s*(T|\d+:)")
_INSTANTS = frozenset(
    {exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.DATETIME}
)
_DATE_TYPES = _INSTANTS | {exp.DType.DATE, exp.DType.TIMESTAMPNTZ}
_DATE_FUNCTIONS = _names("date timestamp to_date to_timestamp to_timestamp_ltz to_timestamp_ntz")
"""Spark's functions that cast a text, and their `try_` forms."""
_PARSERS = {"from_json": 2, "from_csv": 2, "from_xml": 2, "variant_get": 3, "try_variant_get": 3}
"""Functions that read values of a type out of a text, and which argument names the type."""
_TIMESTAMP = re.compile(r"\btimestamp(?:_ltz)?\b", re.IGNORECASE)
_AES_MODE, _AES_VECTOR = 2, 4


def bare_word(node: exp.Expr) -> str | None:
    """The function that a word without parentheses calls, if it calls one."""
    return next((name for kind, name in _BARE_WORDS.items() if isinstance(node, kind)), None)


def reproducible_call(
    name: str, arguments: list[exp.Expr], node: exp.Expr, script: Script
) -> exp.Expr | None:
    """What a function of the clock gives; None for a call that is reproducible as it is. Raises
    SqlError for one that is not.
    """
    if name in _REFUSED:
        reason, hint = _REFUSED[name]
        raise script.error(node, f"{name}() {reason}", hint)
    if name == "aes_encrypt":
        _check_encryption(arguments, node, script)
    if name in _PARSERS:
        _check_parser(name, arguments, node, script)
    if name.removeprefix("try_") in _DATE_FUNCTIONS and len(arguments) == 1:
        target = "DATE" if name.endswith("date") else "TIMESTAMP"
        _check_text(
            arguments[0], target, takes_time=not name.endswith(("date", "ntz")), script=script
        )
    if name not in _NOW and (name not in _CLOCK or (name == "unix_timestamp" and arguments)):
        return None
    if arguments:
        raise script.error(node, f"{name}() takes no arguments", f"write {name}()")
    time = placed(PlanningTime(this=name), node)
    return filled(_CLOCK[name], node, t=time) if name in _CLOCK else time


def check_cast(node: exp.Cast | exp.TryCast, script: Script) -> None:
    """Refuse a cast of a text that means another instant each time it is evaluated."""
    kind = node.to.this
    if kind in _DATE_TYPES:
        target = "DATE" if kind == exp.DType.DATE else "TIMESTAMP"
        _check_text(node.this, target, takes_time=kind in _INSTANTS, script=script)


def _check_text(value: exp.Expr, target: str, *, takes_time: bool, script: Script) -> None:
    value = value.unnest()
    if not isinstance(value, exp.Literal) or not value.is_string:
        return
    if _SPECIAL.fullmatch(value.name):
        message = f"'{value.name}' as a {target} reads the clock: {_REPLAY}"
        raise script.error(value, message, "use now() or current_date, the epoch's planning time")
    if takes_time and _TIME_ONLY.match(value.name):
        message = f"'{value.name}' has no date, and as a {target} would take today's: {_REPLAY}"
        raise script.error(value, message, "write the date before the time")


def _check_encryption(arguments: list[exp.Expr], node: exp.Expr, script: Script) -> None:
    """Refuse encryption with an initialization vector that Spark makes up."""
    modes = arguments[_AES_MODE : _AES_MODE + 1]
    is_ecb = any(isinstance(each, exp.Literal) and each.name.upper() == "ECB" for each in modes)
    if not is_ecb and len(arguments) <= _AES_VECTOR:
        message = f"aes_encrypt() without an initialization vector is random: {_REPLAY}"
        raise script.error(node, message, "pass the vector as its fifth argument")


def _check_parser(name: str, arguments: list[exp.Expr], node: exp.Expr, script: Script) -> None:
    """Refuse to read timestamps where a time without a date would take today's."""
    place = _PARSERS[name] - 1
    kind = arguments[place] if len(arguments) > place else None
    if not isinstance(kind, exp.Literal) or not _TIMESTAMP.search(kind.name):
        return
    has_format = any("timestampformat" in each.sql().lower() for each in arguments[place + 1 :])
    if not has_format:
        message = f"{name}() gives a time without a date today's date: {_REPLAY}"
        raise script.error(kind, message, "read it as STRING, and CAST that AS TIMESTAMP")
