"""State as SQL tables: answers match the files, and nothing else can be accessed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.unit.state.real_state import MINUTE, WINDOW, RealJob, state_rows

from resurgence.errors import DamagedState, ResurgenceError, StorageError, UserError
from resurgence.ids import Epoch, OperatorId
from resurgence.state.inspection.checkpoints import (
    CheckpointStatus,
    CheckpointView,
    checkpoint_of,
    kept_checkpoints,
)
from resurgence.state.inspection.state_database import StateDatabase, state_tables
from resurgence.state.protocol.checkpoint_records import CheckpointRecords
from resurgence.state.records import OperatorCheckpointMetadata, TableCheckpoint, TableKind

PARTIALS = "window_7f_partials"


def made_at(url: str) -> RealJob:
    made = RealJob.at(url)
    made.run(1, 2)
    return made


def opened(real: RealJob, epoch: int | None = None) -> StateDatabase:
    views = kept_checkpoints(real.backend)
    return StateDatabase(real.backend, checkpoint_of(views, epoch), views)


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    return made_at(str(tmp_path))


@pytest.fixture
def database(real: RealJob) -> Iterator[StateDatabase]:
    with opened(real) as made:
        yield made


def rows(database: StateDatabase, sql: str) -> list[tuple[Any, ...]]:
    return list(database.query(sql)[1])


def stored(real: RealJob, epoch: int) -> pa.Table:
    """The rows of a checkpoint, read by another reader."""
    files = [file for file in real.files if file.epoch <= epoch]
    return pa.concat_tables(
        pq.read_table(pa.BufferReader(real.backend.store.read(file.path))) for file in files
    )


@pytest.mark.parametrize("place", ["plain", 'it\'s "a" dir', "with [glob]*", "x=1", "memory"])
def test_the_rows_are_those_of_the_files(tmp_path: Path, place: str) -> None:
    real = made_at("memory:///" if place == "memory" else str(tmp_path / place))
    for epoch in (1, 2):
        with opened(real, epoch) as database:
            columns, answer = database.query(f"SELECT * FROM {PARTIALS}")
            assert columns == ["window_start", "bin", "k0", "a0", "a1_sum"]
            found = list(answer)
            expected = stored(real, epoch)
            assert sorted(row[1:] for row in found if row[2]) == sorted(
                tuple(row.values()) for row in expected.to_pylist() if row["k0"]
            )
            assert len(found) == expected.num_rows == 100 * epoch
            assert all(
                row[0] == datetime(1970, 1, 1) + timedelta(microseconds=row[1]) for row in found
            )


def test_a_state_dir_whose_name_looks_like_a_glob_pattern_is_read_literally(tmp_path: Path) -> None:
    real = made_at(str(tmp_path / "job?"))
    made_at(str(tmp_path / "job1")).run(3)
    with opened(real) as database:
        assert rows(database, f"SELECT count(*) FROM {PARTIALS}") == [(200,)]


def test_an_aggregate_is_that_of_pyarrow(real: RealJob, database: StateDatabase) -> None:
    expected = stored(real, 2).group_by("bin").aggregate([("a0", "sum"), ("a1_sum", "max")])
    answer = rows(
        database, f"SELECT bin, sum(a0), max(a1_sum) FROM {PARTIALS} GROUP BY bin ORDER BY bin"
    )
    assert answer == [tuple(row.values()) for row in expected.sort_by("bin").to_pylist()]
    assert rows(
        database, f"SELECT count(*) FROM {PARTIALS} WHERE window_start = '1970-01-01 00:02'"
    ) == [(pc.sum(pc.equal(stored(real, 2)["bin"], 2 * MINUTE)).as_py(),)]


def test_global_tables_are_one_row_and_checkpoints_are_listed(database: StateDatabase) -> None:
    assert database.query("FROM source_rides_offsets")[0] == ["line", "byte"]
    assert rows(database, "FROM source_rides_offsets") == [(200, 600)]
    assert rows(database, "SELECT rows, files[1].bytes FROM sink_hourly_staged") == [(7, 70)]
    assert rows(database, "SELECT epoch, parent, state_rows, status, reasons FROM checkpoints") == [
        (1, 0, 100, "valid", []),
        (2, 1, 200, "valid", []),
    ]
    sealed_at = datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    assert rows(database, "SELECT DISTINCT sealed_at, duration FROM checkpoints") == [
        (sealed_at, 2.0)
    ]


def test_columns_have_types(database: StateDatabase) -> None:
    assert database.columns(PARTIALS) == [
        ("window_start", "TIMESTAMP"),
        ("bin", "BIGINT"),
        ("k0", "VARCHAR"),
        ("a0", "BIGINT"),
        ("a1_sum", "DOUBLE"),
    ]
    with pytest.raises(UserError) as caught:
        database.columns("window_7f_partial")
    assert PARTIALS in caught.value.hint


def test_a_table_without_files_has_its_columns_all_the_same(real: RealJob) -> None:
    view = checkpoint_of(kept_checkpoints(real.backend), None)
    metadata = view.operators[WINDOW]
    table = metadata.tables["partials"].model_copy(update={"files": ()})
    emptied = metadata.model_copy(update={"tables": {"partials": table}})
    operators = {**view.operators, WINDOW: emptied}
    bare = CheckpointView(
        epoch=Epoch(2),
        attempt=0,
        status=CheckpointStatus.VALID,
        records=CheckpointRecords(operators=operators),
    )
    with StateDatabase(real.backend, bare, [bare]) as database:
        assert [name for name, _ in database.columns(PARTIALS)] == [
            "window_start",
            *state_rows(1).schema.names,
        ]
        assert rows(database, f"FROM {PARTIALS}") == []


def test_names_are_easy_to_type_and_each_is_there_once() -> None:
    table = TableCheckpoint(kind=TableKind.GLOBAL, values={"x": 1})
    operators = {
        OperatorId(name): OperatorCheckpointMetadata.model_validate(
            {
                **{"job": "j", "operator": name, "epoch": 1, "generation": 1, "parallelism": 1},
                "tables": {"offsets": table},
            }
        )
        for name in ("source-a-b", "source-a_b", "source-A.B", "source-mit Leerzeichen")
    }
    view = CheckpointView(
        epoch=Epoch(1),
        attempt=0,
        status=CheckpointStatus.VALID,
        records=CheckpointRecords(operators=operators),
    )
    assert [each.name for each in state_tables(view)] == [
        "source_a_b_offsets",
        "source_a_b_offsets_2",
        "source_a_b_offsets_3",
        "source_mit_leerzeichen_offsets",
    ]


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.db'",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW {partials}",
        "SELECT 1; COPY (SELECT 1) TO '{folder}/out.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "PRAGMA database_list",
        "",
    ],
)
def test_only_queries_are_accepted(real: RealJob, database: StateDatabase, sql: str) -> None:
    folder = Path(real.backend.store.url)
    file = real.path(real.files[0].path)
    before = everything(folder)
    with pytest.raises(UserError):
        rows(database, sql.format(folder=folder, file=file, partials=PARTIALS))
    assert everything(folder) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_parquet('{folder}/*/*.parquet')",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{folder}/out.csv''')",
        "SELECT * FROM secret",
        "SELECT getenv('HOME')",
    ],
)
def test_a_query_cannot_reach_other_files_or_variables(
    database: StateDatabase, tmp_path_factory: pytest.TempPathFactory, sql: str
) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    path = folder / "secret.csv"
    path.write_text("a\n1\n")
    (folder / "x").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "x" / "secret.parquet")
    secret = pa.table({"a": [1]})
    before = everything(folder)
    with pytest.raises(UserError):
        rows(database, sql.format(secret=path, folder=folder))
    assert everything(folder) == before
    assert secret.num_rows == 1


def test_the_configuration_lock_also_applies_to_other_statements(
    database: StateDatabase, tmp_path: Path
) -> None:
    """DuckDB itself refuses what the check of the statement might miss."""
    import duckdb

    for sql in (
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        "SET enable_external_access = true",
        "SET memory_limit = '1GB'",
    ):
        with pytest.raises(duckdb.Error):
            database._connection.execute(sql)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        ("SELEC 1", "syntax error", ""),
        ("SELECT * FROM window_7f_partial", "window_7f_partial does not exist", f"'{PARTIALS}'"),
        (f"SELECT k1 FROM {PARTIALS}", '"k1" not found', "k0"),
        (f"SELECT CAST(k0 AS INTEGER) FROM {PARTIALS}", "Could not convert", ""),
    ],
)
def test_a_wrong_query_is_one_line_and_a_hint(
    database: StateDatabase, sql: str, message: str, hint: str
) -> None:
    with pytest.raises(UserError) as caught:
        rows(database, sql)
    assert message in caught.value.message
    assert "\n" not in caught.value.message + caught.value.hint
    assert hint in caught.value.hint


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_damaged_file_is_an_error_of_storage(tmp_path: Path, place: str) -> None:
    real = made_at("memory:///" if place == "memory" else str(tmp_path))
    views = kept_checkpoints(real.backend)
    path = real.files[0].path
    real.backend.store.delete([path])
    if place == "memory":
        real.backend.store.create(path, b"not parquet")
    with (
        pytest.raises(ResurgenceError) as caught,
        StateDatabase(real.backend, views[-1], views) as it,
    ):
        rows(it, f"FROM {PARTIALS}")
    assert isinstance(caught.value, DamagedState if place == "memory" else StorageError)
    assert "\n" not in caught.value.message


def test_a_frozen_sample_can_be_queried(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[3] / "samples" / "format-2", tmp_path / "state")
    real = RealJob.at(str(tmp_path / "state"), "totals")
    with opened(real) as database:
        (name,) = (each.name for each in database.tables if each.table == "partials")
        total = rows(database, f"SELECT count(*), sum(a0) FROM {name}")
    (view, *_) = reversed(kept_checkpoints(real.backend))
    parts = [pq.read_table(real.path(file.path)) for file in view.files]
    table = pa.concat_tables(parts)
    assert total == [(table.num_rows, pc.sum(table["a0"]).as_py())]
