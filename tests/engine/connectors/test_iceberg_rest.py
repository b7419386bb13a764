"""Commits to a REST catalog whose answers are lost, and a catalog that requires a token."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from resurgence.connectors.iceberg.catalogs.catalog import CatalogType, IcebergCatalog, TablePlace
from resurgence.connectors.iceberg.writing.commit import Committer, TableChange
from resurgence.connectors.iceberg.writing.data_files import added_file
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.errors import ConnectionLost, UserError
from resurgence.ids import Epoch
from tests.iceberg_tables import JOB, SINK, covering, numbered, staged_files
from tests.servers.builds import NoServer
from tests.servers.faulty_proxy import Failure, Fault, FaultyProxy, faulty_proxy
from tests.servers.iceberg import TOKEN, IcebergServer, running_catalog

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])


@pytest.fixture
def proxy(iceberg_server: IcebergServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(iceberg_server.port) as running:
        yield running


def opened(port: int, namespace: str, token: str | None = None) -> IcebergCatalog:
    url = f"http://127.0.0.1:{port}"
    return IcebergCatalog(TablePlace(CatalogType.REST, url, namespace, "t", token=token))


def commit(catalog: IcebergCatalog, epoch: int, *ids: int) -> bool:
    files = staged_files(catalog.load(), numbered(*ids), epoch)
    return Committer(catalog, Writer(JOB, SINK), sleep=lambda _: None).commit(
        Marker(Epoch(epoch), covering(epoch)),
        lambda table: TableChange([added_file(table, each) for each in files]),
    )


def ids(catalog: IcebergCatalog) -> list[int]:
    return sorted(catalog.load().scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize(
    ("failure", "is_done"),
    [
        (Failure.LOST_ANSWER, False),
        (Failure.FAILED_ANSWER, False),
        (Failure.CUT_UPLOAD, True),
        (Failure.SERVER_ERROR, True),
    ],
)
def test_an_epoch_whose_answer_is_lost_is_committed_once(
    iceberg_server: IcebergServer, proxy: FaultyProxy, failure: Failure, is_done: bool
) -> None:
    namespace = f"db{uuid.uuid4().hex[:8]}"
    direct = opened(iceberg_server.port, namespace)
    SinkTable(direct, "out", (), ()).prepare(COLUMNS)
    catalog = opened(proxy.port, namespace)
    commit(catalog, 1, 1)
    fault = Fault(failure, "POST", "/tables/t")
    proxy.inject(fault)
    # If the request was processed, the second look finds the epoch.
    assert commit(catalog, 2, 2, 3) is is_done
    assert fault.struck == 1
    assert ids(direct) == [1, 2, 3]
    assert len(direct.load().snapshots()) == 2


def test_a_catalog_that_does_not_answer_is_retried(proxy: FaultyProxy) -> None:
    proxy.inject(Fault(Failure.SERVER_ERROR, "GET", "", times=9))
    with pytest.raises(ConnectionLost, match="cannot open its catalog"):
        opened(proxy.port, "db").load()


def test_a_token_is_sent_and_a_wrong_one_is_the_users_error(tmp_path: Path) -> None:
    try:
        with running_catalog(token=TOKEN) as server:
            right = opened(server.port, "db", TOKEN)
            SinkTable(right, "out", (), ()).prepare(COLUMNS)
            assert commit(right, 1, 1)
            for token in (None, "wrong-and-secret"):
                with pytest.raises(UserError, match="the catalog denies access") as raised:
                    opened(server.port, "db", token).load()
                assert "wrong-and-secret" not in f"{raised.value} {raised.value.hint}"
    except NoServer as error:
        pytest.skip(f"no Iceberg server: {error}")
