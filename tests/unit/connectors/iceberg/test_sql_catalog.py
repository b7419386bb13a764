"""SQL catalogs on Postgres do not wait for ever."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from resurgence.connectors.iceberg.catalogs import sql_catalog
from resurgence.connectors.iceberg.catalogs.catalog import CatalogType, IcebergCatalog, TablePlace
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.connectors.postgres.location import with_deadlines
from resurgence.errors import ConfigError, ConnectionLost

COLUMNS = StructType([StructField("id", LongType())])


def test_deadlines_are_added_unless_the_url_sets_them() -> None:
    plain = with_deadlines("postgresql+psycopg://me@host/db")
    assert plain.startswith("postgresql+psycopg://me@host/db?connect_timeout=10&keepalives_idle=10")
    assert "tcp_user_timeout=30000" in plain
    own = with_deadlines("postgresql://me@host/db?connect_timeout=3")
    assert own.startswith("postgresql://me@host/db?connect_timeout=3&keepalives_idle=10")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "mysql://me:secret@host/db",
            "a driver that cannot be imported: No module named 'MySQLdb'",
        ),
        ("postgre://me:secret@host/db", "the scheme 'postgre', which SQLAlchemy does not know"),
        ("secret", "is not the URL of a database"),
        ("postgresql+psycopg://me:sec@ret:secret/db", "is not the URL of a database"),
    ],
)
def test_a_database_without_a_driver_is_an_error_of_the_option_without_its_password(
    uri: str, message: str
) -> None:
    catalog = IcebergCatalog(TablePlace(CatalogType.SQL, uri, "db", "t"))
    with pytest.raises(ConfigError, match=message) as raised:
        catalog.find()
    assert "secret" not in str(raised.value)
    assert raised.value.hint


def test_a_catalog_on_postgres_gives_up_on_a_lock(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    place = TablePlace(CatalogType.SQL, uri, "db", "t", f"file://{tmp_path}/wh")
    opened = IcebergCatalog(place)
    table = SinkTable(opened, "out", (), ()).prepare(COLUMNS)
    monkeypatch.setattr(sql_catalog, "SETTINGS", {"lock_timeout": "50ms"})
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE iceberg_tables IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ConnectionLost, match="lock timeout"):
            opened.find()
        other.rollback()
    assert opened.load().metadata.table_uuid == table.metadata.table_uuid
    opened.catalog.close()
