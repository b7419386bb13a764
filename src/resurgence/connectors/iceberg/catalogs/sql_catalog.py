"""A SQL catalog whose connections to Postgres have deadlines: by default they would wait for ever.

Only `catalog` imports this module, when a table of such a catalog is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Connection, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from resurgence.connectors.postgres.location import with_deadlines
from resurgence.errors import ConfigError

URI = "catalog.sql.uri"
"""The option with the URL."""
_BY_LIBPQ = ("postgresql", "postgresql+psycopg", "postgresql+psycopg2")
"""The schemes of drivers that have the parameters of libpq."""
SETTINGS = {
    "lock_timeout": "60s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "30s",
}
"""Of each transaction: the statements of a catalog are small. A process that was frozen or cut off
does not keep its locks.
"""


def open_sql_catalog(name: str, properties: Mapping[str, str]) -> SqlCatalog:
    """Open a catalog by its properties. Raise ConfigError if SQLAlchemy cannot use its URL."""
    uri = properties["uri"]
    _require_driver(uri)
    if urlsplit(uri).scheme in _BY_LIBPQ:
        uri = with_deadlines(uri)
    # A connection that the server has closed meanwhile is replaced.
    catalog = SqlCatalog(name, **{**properties, "uri": uri, "pool_pre_ping": "true"})
    if catalog.engine.dialect.name == "postgresql":
        event.listen(catalog.engine, "begin", _limit)
    return catalog


def _require_driver(uri: str) -> None:
    # Only the scheme is named: the rest may be a password.
    try:
        make_url(uri).get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise ConfigError(
            f"'{URI}' has the scheme '{uri.partition(':')[0]}', which SQLAlchemy does not know",
            hint="Check its spelling, or install the package that adds the database to SQLAlchemy.",
        ) from error
    except (ArgumentError, ValueError):
        raise ConfigError(
            f"'{URI}' is not the URL of a database",
            hint="Write SCHEME://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the"
            " password as %40 and alike.",
        ) from None  # The cause may quote a part of a password.
    except ImportError as error:
        raise ConfigError(
            f"'{URI}' requires a driver that cannot be imported: {error}",
            hint="Install it, or name another one in the URL, as in postgresql+psycopg://.",
        ) from error


def _limit(connection: Connection) -> None:
    settings = ", ".join(
        f"set_config('{setting}', '{value}', true)" for setting, value in SETTINGS.items()
    )
    connection.exec_driver_sql(f"SELECT {settings}")
