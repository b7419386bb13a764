"""No secret is stored: which pipelines and settings are refused."""

from __future__ import annotations

import pytest
from tests.unit.api.simulated_service import SQL

from resurgence.api.access.literal_secrets import (
    LiteralSecret,
    LiteralSecretInSql,
    require_no_literal_secret_in_url,
    require_no_literal_secrets,
    require_no_literal_secrets_in,
)
from resurgence.errors import SqlError, UserError

TABLE = "CREATE TABLE t (a INT) WITH (\n  connector = 'blackhole',\n  {option});\n"


def test_a_pipeline_without_secrets_is_fine() -> None:
    require_no_literal_secrets(SQL)


@pytest.mark.parametrize(
    "option",
    [
        "password = 'hunter2'",
        "'sasl.password' = 'hunter2'",
        "token = 'x${env:TOKEN}'",
        "url = 'jdbc:postgresql://me:hunter2@db/x'",
        "url = 'https://h/?api_key=hunter2'",
        "password = '***'",
    ],
)
def test_a_secret_in_an_option_is_refused_by_its_name_and_place(option: str) -> None:
    with pytest.raises(LiteralSecretInSql) as caught:
        require_no_literal_secrets(TABLE.format(option=option))
    error = caught.value
    assert option.split(" ")[0].strip("'") in error.message
    assert "hunter2" not in error.message + error.hint
    assert "${env:NAME}" in error.hint
    assert (error.line, error.column) == (3, option.index("= '") + 3 + 2)


@pytest.mark.parametrize(
    "option",
    [
        "password = '${env:PASSWORD}'",
        "token = '${file:/run/token}'",
        "url = 'jdbc:postgresql://me:${env:P}@db/x'",
    ],
)
def test_references_are_fine(option: str) -> None:
    require_no_literal_secrets(TABLE.format(option=option))


def test_a_secret_in_a_comment_is_refused() -> None:
    with pytest.raises(LiteralSecretInSql) as caught:
        require_no_literal_secrets("SELECT 1;\n  -- password = 'hunter2'\n")
    assert "comment" in caught.value.message
    assert caught.value.line == 2


def test_sql_that_cannot_be_read_is_an_error_at_its_place() -> None:
    with pytest.raises(SqlError) as caught:
        require_no_literal_secrets("SELECT 'a")
    assert not isinstance(caught.value, LiteralSecretInSql)
    assert caught.value.column == 8


def test_sql_that_is_nested_too_deeply_is_the_users_error() -> None:
    with pytest.raises(UserError):
        require_no_literal_secrets("SELECT " + "(" * 20_000 + "1" + ")" * 20_000)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "hunter2"),
        ("spark.hadoop.fs.s3a.access.key", "hunter2"),
        ("spark.a", "https://me:hunter2@host/x"),
    ],
)
def test_settings_with_a_secret_are_refused(key: str, value: str) -> None:
    with pytest.raises(LiteralSecret, match=key) as caught:
        require_no_literal_secrets_in({"pipeline.parallelism": "4", key: value})
    assert "hunter2" not in caught.value.message


def test_settings_with_references_are_fine() -> None:
    require_no_literal_secrets_in({"spark.hadoop.fs.s3a.secret.key": "${env:S3_KEY}"})


def test_a_state_url_with_a_password_is_refused() -> None:
    require_no_literal_secret_in_url("s3://bucket/folder")
    with pytest.raises(LiteralSecret):
        require_no_literal_secret_in_url("s3://me:hunter2@bucket/folder")
