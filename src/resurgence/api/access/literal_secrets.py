"""Rejection of pipelines, settings and URLs with a literal secret, so that none is stored.

A value is a secret if it is masked wherever pipelines are shown. A `***` is rejected, too: it was
copied from a response, and the original value is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from resurgence.errors import SqlError, UserError
from resurgence.secrets import is_masked, shown_value
from resurgence.sql.syntax.masking import masked_sql
from resurgence.sql.syntax.parse import Script, parse

_HINT = "Write ${env:NAME} or ${file:PATH}. The worker resolves it where it runs."


class LiteralSecretInSql(SqlError):
    """The SQL text contains a secret."""

    code = "sql.literal_secret"


class LiteralSecret(UserError):
    """A setting or a URL contains a secret."""

    code = "setting.literal_secret"


def require_no_literal_secrets(sql: str) -> None:
    """Raise SqlError if an option or a comment contains a secret, or the SQL cannot be parsed."""
    try:
        script = parse(sql)
        masked = masked_sql(sql)
    except RecursionError:
        raise UserError("the SQL is nested too deeply") from None
    for statement in script.statements:
        for option in statement.find_all(exp.Property):
            _require_reference(script, option)
    if masked != sql:
        place = next(
            (at for at, (one, other) in enumerate(zip(sql, masked, strict=False)) if one != other),
            0,
        )
        before = sql[:place]
        raise LiteralSecretInSql(
            "a comment contains a secret",
            line=before.count("\n") + 1,
            column=place - before.rfind("\n"),
            hint="Remove it. The service stores the SQL text unchanged.",
        )


def require_no_literal_secrets_in(settings: Mapping[str, str]) -> None:
    """Raise LiteralSecret if a setting contains a secret."""
    for key, value in settings.items():
        if _holds_secret(key, value):
            raise LiteralSecret(f"setting '{key}' contains a literal secret", hint=_HINT)


def require_no_literal_secret_in_url(url: str) -> None:
    """Raise LiteralSecret if a URL contains a password or a token."""
    if _holds_secret("", url):
        raise LiteralSecret(
            "the state URL contains a literal secret",
            hint="Pass the credentials in the environment of the service.",
        )


def _require_reference(script: Script, option: exp.Property) -> None:
    if "value_span" not in option.meta:
        return
    start, stop = option.meta["value_span"]
    value = option.args.get("value")
    written = value.name if isinstance(value, exp.Literal) else script.text[start:stop]
    name = option.this.name
    if _holds_secret(name, written):
        before = script.text[:start]
        raise LiteralSecretInSql(
            f"option '{name}' contains a literal secret",
            line=before.count("\n") + 1,
            column=start - before.rfind("\n"),
            hint=_HINT,
        )


def _holds_secret(name: str, value: str) -> bool:
    return shown_value(name, value) != value or is_masked(name, value)
