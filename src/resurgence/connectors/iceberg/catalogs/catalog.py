"""The catalogs of Iceberg tables: opening them, loading tables, and what their errors mean.

pyiceberg is imported when a table is opened, because every worker imports all connectors.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from resurgence.errors import (
    ConfigError,
    ConnectionLost,
    ResurgenceError,
    SinkError,
    SourceError,
    UserError,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

FILE_IO = "resurgence.connectors.iceberg.catalogs.file_io.StoreFileIO"
_RETRIED = "Check that the catalog and its warehouse are accessible. The job will retry."


class CatalogType(StrEnum):
    """The kinds of catalogs."""

    REST = "rest"
    SQL = "sql"


@dataclass(frozen=True)
class TablePlace:
    """A table in a catalog. Its repr has no secrets."""

    kind: CatalogType
    uri: str = field(repr=False)
    """May contain a password."""
    namespace: str
    name: str
    warehouse: str | None = None
    token: str | None = field(default=None, repr=False)
    catalog_name: str = "default"

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.namespace.split("."), self.name)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class IcebergCatalog:
    """The catalog of one table, opened when it is first used."""

    def __init__(
        self, place: TablePlace, refused: type[SinkError | SourceError] = SinkError
    ) -> None:
        """`refused` is raised if the catalog refuses a request."""
        self.place = place
        self._refused = refused

    def require_package(self) -> None:
        """Raise ConfigError if pyiceberg is not installed."""
        if importlib.util.find_spec("pyiceberg") is None:
            raise ConfigError(
                f"Iceberg table {self.place} requires the package pyiceberg",
                hint="Install it with `pip install 'resurgence[iceberg]'`.",
            )

    @functools.cached_property
    def catalog(self) -> Catalog:
        self.require_package()
        place = self.place
        properties = {"uri": place.uri, "py-io-impl": FILE_IO}
        if place.warehouse is not None:
            properties["warehouse"] = place.warehouse
        with self.translated("open its catalog"):
            if place.kind is CatalogType.SQL:
                from resurgence.connectors.iceberg.catalogs.sql_catalog import open_sql_catalog

                return open_sql_catalog(place.catalog_name, properties)
            from resurgence.connectors.iceberg.catalogs.rest_catalog import DeadlineRestCatalog

            if place.token is not None:
                properties["token"] = place.token
            return DeadlineRestCatalog(place.catalog_name, **properties)

    def find(self) -> Table | None:
        """Return the table as it is now; None if it does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        catalog = self.catalog
        with self.translated("load it"):
            try:
                return catalog.load_table(self.place.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def load(self) -> Table:
        """Return the table as it is now. Raise UserError if it does not exist."""
        table = self.find()
        if table is None:
            raise UserError(
                f"Iceberg table {self.place} does not exist",
                hint="Check the options 'namespace' and 'table_name', or create the table.",
            )
        return table

    @contextmanager
    def translated(self, action: str) -> Iterator[None]:
        """Translate the errors of a catalog and its warehouse. Refusals of a commit, which the
        committer decides about, pass.
        """
        from pyiceberg.exceptions import (
            BadRequestError,
            CommitFailedException,
            ForbiddenError,
            NoSuchNamespaceError,
            NoSuchTableError,
            OAuthError,
            RESTError,
            TableAlreadyExistsError,
            UnauthorizedError,
            ValidationException,
        )
        from requests.exceptions import RequestException
        from sqlalchemy.exc import SQLAlchemyError

        passed = (
            ResurgenceError,
            CommitFailedException,
            ValidationException,
            NoSuchTableError,
            NoSuchNamespaceError,
            TableAlreadyExistsError,
        )
        what = f"Iceberg table {self.place}: cannot {action}"
        try:
            yield
        except passed:
            raise
        except (UnauthorizedError, ForbiddenError, OAuthError) as error:
            raise UserError(
                f"{what}: the catalog denies access",
                hint="Check the option 'catalog.rest.token' and the permissions of its owner.",
            ) from error
        except BadRequestError as error:
            raise self._refused(
                f"{what}: the catalog refuses the request: {_brief(error)}",
                hint="Check the settings of the catalog. The job will retry.",
            ) from error
        except (RESTError, RequestException, SQLAlchemyError, OSError) as error:
            raise ConnectionLost(f"{what}: {_brief(error)}", hint=_RETRIED) from error


def _brief(error: BaseException) -> str:
    # SQLAlchemy appends the statement and its parameters, REST servers a page.
    return f"{type(error).__name__}: {error}".split("\n", 1)[0][:300]
