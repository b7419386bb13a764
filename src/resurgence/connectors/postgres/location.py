"""Where a table in Postgres is: the options that locate it, and names as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from pydantic import SecretStr

from resurgence.errors import ConfigError
from resurgence.graph.table_options import TableOptions, option

_PARAMETERS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Connection parameters, unless the URL sets them."""
_URL = "`postgresql://user@host:5432/database`"


class PostgresOptions(TableOptions):
    """The options that locate a table."""

    dsn: str | None = option(f"required: {_URL}", default=None)
    url: str | None = option("another name of `dsn`", default=None)
    table: str = option(
        "a table or view, with its schema if needed: `sales.customers`. Names are case-sensitive"
    )
    password: SecretStr | None = option(
        "used instead of one in the URL, where it must be percent-encoded", default=None
    )

    def location(self, table: str) -> str:
        """Return the URL of the database with the password and the default parameters that it does
        not set. `table` is the name of the declared table, for errors.
        """
        given = [each for each in (self.dsn, self.url) if each is not None]
        if len(given) != 1:
            raise ConfigError(
                f"table '{table}' requires either the option 'dsn' or 'url'",
                hint="Remove one of them." if given else "Add dsn = '...' to WITH (...).",
            )
        if urlsplit(given[0]).scheme not in ("postgresql", "postgres"):
            raise ConfigError(
                f"table '{table}': option '{'dsn' if self.dsn is not None else 'url'}' is not the"
                " URL of a Postgres database",
                hint="Write it as in postgresql://user@host:5432/database.",
            )
        return _completed(given[0], self.password.get_secret_value() if self.password else None)


def _completed(url: str, password: str | None) -> str:
    more = {} if password is None else {"password": quote(password, safe="")}
    return _extended(with_deadlines(url), more)


def with_deadlines(url: str) -> str:
    """Return a URL with the parameters that bound how long a connection waits for its server, unless
    it sets them.
    """
    return _extended(
        url, {name: value for name, value in _PARAMETERS.items() if f"{name}=" not in url}
    )


def _extended(url: str, more: Mapping[str, str]) -> str:
    added = "&".join(f"{name}={value}" for name, value in more.items())
    return f"{url}{'&' if '?' in url else '?'}{added}" if added else url


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted_table(name: str) -> str:
    """Return the name of a table, which may have a schema, as SQL."""
    return ".".join(quoted(each) for each in name.split("."))
