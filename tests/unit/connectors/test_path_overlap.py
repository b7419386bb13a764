"""A sink never writes where its job reads, and never where another `single_file` sink writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from resurgence.cli.pipeline_file import compile_file
from resurgence.connectors.path_overlap import (
    PathTaken,
    files_written,
    require_not_taken,
    require_separate_paths,
)
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline


def pipeline(source: str, *sinks: tuple[str, str]) -> str:
    tables = [
        f"CREATE TABLE out{number} WITH (connector = '{connector}', path = '{path}', type = 'sink');"
        f"INSERT INTO out{number} SELECT id FROM events;"
        for number, (connector, path) in enumerate(sinks)
    ]
    return (
        f"CREATE TABLE events (id BIGINT) WITH (connector = 'single_file', path = '{source}',"
        f" type = 'source');{''.join(tables)}"
    )


def graph(source: str, *sinks: tuple[str, str]) -> Graph:
    return compile_pipeline(pipeline(source, *sinks), CONNECTORS)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with input, seen from inside, with links to it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "in.json").write_text('{"id": 1}\n')
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "linked.json").symlink_to(folder / "in.json")
    (tmp_path / "hard.json").hardlink_to(folder / "in.json")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("connector", "path"),
    [
        ("single_file", "data/in.json"),
        ("single_file", "data/../data/./in.json"),
        ("single_file", "link/in.json"),
        ("single_file", "linked.json"),
        ("single_file", "hard.json"),
        ("single_file", "data/in.json/out.json"),
        ("filesystem", "data/in.json"),
        ("filesystem", "data"),
        ("filesystem", "link/"),
        ("filesystem", "."),
        ("filesystem", "file://{data}"),
        ("filesystem", "file://{data}/in.json/more"),
    ],
)
def test_a_sink_that_overlaps_a_source_is_refused_and_nothing_is_written(
    data: Path, connector: str, path: str
) -> None:
    before = sorted(data.parent.rglob("*"))
    path = path.format(data=data)
    with pytest.raises(UserError, match=r"table 'out0' writes to .* overlaps .* reads") as raised:
        compile_file(pipeline(str(data / "in.json"), (connector, path)), None)
    assert raised.value.hint
    assert sorted(data.parent.rglob("*")) == before


def test_a_source_among_the_records_of_a_sink_is_refused(data: Path) -> None:
    records = data / ".out.json.resurgence" / "commits" / "x.json"
    with pytest.raises(UserError, match="overlaps"):
        require_separate_paths(graph(str(records), ("single_file", str(data / "out.json"))))


def test_a_sink_in_the_folder_of_a_pattern_is_refused(data: Path) -> None:
    sql = pipeline(f"{data}/*/x-*.json", ("filesystem", f"{data}/out"))
    with pytest.raises(UserError, match="which overlaps"):
        require_separate_paths(
            compile_pipeline(sql.replace("single_file", "filesystem"), CONNECTORS)
        )


def test_a_sink_that_overlaps_a_lookup_table_is_refused(data: Path) -> None:
    sql = (
        "CREATE TABLE events (id BIGINT) WITH (connector = 'single_file', path = 'in', type = 'source');"
        "CREATE TEMPORARY TABLE names (id BIGINT, name TEXT) WITH"
        " (connector = 'filesystem', path = 'data');"
        "CREATE TABLE out WITH (connector = 'filesystem', path = 'link/out', type = 'sink');"
        "INSERT INTO out SELECT name FROM events JOIN names ON events.id = names.id;"
    )
    with pytest.raises(UserError, match="overlaps data, which table 'names' reads"):
        require_separate_paths(compile_pipeline(sql, CONNECTORS))


@pytest.mark.parametrize(
    "sinks",
    [
        (("single_file", "data/out.json"), ("filesystem", "out")),
        (("single_file", "data/in.json.out"),),
        (("filesystem", "data/in"), ("filesystem", "data/in/nested")),
        (("filesystem", "s3://data/in.json"),),
    ],
)
def test_neighbours_do_not_overlap(data: Path, sinks: tuple[tuple[str, str], ...]) -> None:
    require_separate_paths(graph("data/in.json", *sinks))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("single_file", "out.json"), ("single_file", "data/../out.json")),
        (("single_file", "data/out"), ("filesystem", "link/out")),
        (("single_file", "out.json"), ("filesystem", ".out.json.resurgence/commits")),
        (("filesystem", "s3://b/out"), ("filesystem", "s3://b//out/")),
    ],
)
def test_two_sinks_on_one_path_are_refused(
    data: Path, one: tuple[str, str], other: tuple[str, str]
) -> None:
    with pytest.raises(UserError, match="'out0' and 'out1' both write to"):
        require_separate_paths(graph("data/in.json", one, other))


def test_a_path_behind_a_reference_is_compared_once_it_is_resolved(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = graph("data/in.json", ("single_file", "${env:RESURGENCE_OUT}"))
    require_separate_paths(compiled)
    monkeypatch.setenv("RESURGENCE_OUT", "link/in.json")
    with pytest.raises(UserError, match=r"writes to \$\{env:RESURGENCE_OUT\}, which overlaps"):
        require_separate_paths(compiled)


def test_a_file_that_another_job_writes_is_refused(data: Path) -> None:
    other = JobName("other")
    taken = {other: files_written(graph("data/in.json", ("single_file", "data/out.json")))}
    with pytest.raises(PathTaken, match="which table 'out0' of job 'other' writes already"):
        mine = graph("elsewhere.json", ("single_file", "link/out.json"))
        require_not_taken(files_written(mine), taken)
    for sink in (("single_file", "data/more.json"), ("filesystem", "data/out.json")):
        require_not_taken(files_written(graph("elsewhere.json", sink)), taken)


def test_jobs_are_chained_by_reading_what_another_writes(data: Path) -> None:
    first = graph("data/in.json", ("filesystem", "data/out"), ("single_file", "data/out.json"))
    second = graph("data/out.json", ("single_file", "last.json"))
    require_separate_paths(second)
    require_not_taken(files_written(second), {JobName("first"): files_written(first)})


def test_a_sink_in_the_table_of_a_catalog_that_its_job_reads_is_refused() -> None:
    catalog = "connector = 'iceberg', 'catalog.rest.url' = 'http://host', namespace = 'db'"

    def made(written: str) -> Graph:
        return compile_pipeline(
            f"CREATE TABLE a (id BIGINT) WITH ({catalog}, table_name = 't', type = 'source');"
            f"CREATE TABLE b WITH ({catalog}, table_name = '{written}', type = 'sink');"
            "INSERT INTO b SELECT id FROM a;",
            CONNECTORS,
        )

    require_separate_paths(made("u"))
    with pytest.raises(UserError, match=r"table 'b' writes to db\.t, which overlaps"):
        require_separate_paths(made("t"))
