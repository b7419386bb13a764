"""No secret is stored: pipelines that hold one are refused, with its place.

What counts as a secret is the same as what is masked wherever pipelines are shown. So is a `***`:
it was copied from an answer, and nobody knows any more what stood there.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from resurgence.errors import SqlError, UserError
from resurgence.secrets import is_masked, shown_value
from resurgence.sql.syntax.masking import masked_sql
from resurgence.sql.syntax.parse import Script, parse

_HINT = "write ${env:NAME} or ${file:PATH}: the worker reads it where it runs"


class LiteralSecretInSql(SqlError):
    """The SQL text holds a secret."""

    code = "sql.literal_secret"


class LiteralSecret(UserError):
    """A setting holds a secret."""

    code = "setting.literal_secret"


def require_no_literal_secrets(sql: str) -> None:
    """Refuse a pipeline with a secret in an option or in a comment; SqlError if it cannot be read."""
    try:
        script = parse(sql)
        masked = masked_sql(sql)
    except RecursionError:
        raise UserError("the SQL is nested too deeply to be read") from None
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
            "a comment holds a secret",
            line=before.count("\n") + 1,
            column=place - before.rfind("\n"),
            hint="take it out: the service stores the text as it is",
        )


def require_no_literal_secrets_in(settings: Mapping[str, str]) -> None:
    """Refuse settings that hold a secret."""
    for key, value in settings.items():
        if _holds_secret(key, value):
            raise LiteralSecret(f"setting '{key}' holds a literal secret", hint=_HINT)


def require_no_literal_secret_in_url(url: str) -> None:
    """Refuse a URL with a password or a token in it."""
    if _holds_secret("", url):
        raise LiteralSecret(
            "the state URL holds a literal secret", hint="give it to the service's environment"
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
            f"option '{name}' holds a literal secret",
            line=before.count("\n") + 1,
            column=start - before.rfind("\n"),
            hint=_HINT,
        )


def _holds_secret(name: str, value: str) -> bool:
    return shown_value(name, value) != value or is_masked(name, value)
