"""The table of formats: the capabilities of a format decide which connectors accept it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.debezium.events import DEBEZIUM_JSON
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.line_encoder import LineEncoder
from resurgence.connectors.formats.registry import FORMATS
from resurgence.connectors.registry import CONNECTORS, INSTALLED, make_sink, make_source
from resurgence.connectors.single_file import SINGLE_FILE
from resurgence.errors import ConfigError, SqlError
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Role
from resurgence.graph.explain import explain_graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.table_options import TableOptions, option
from resurgence.ids import JobName, OperatorId
from resurgence.sql import compile_pipeline


def names(connector: str, role: Role) -> list[str]:
    return [each.name for each in CONNECTORS[connector].roles[role].formats]


def test_connectors_accept_the_formats_with_the_required_capabilities() -> None:
    lines = ["json", "debezium_json", "csv", "raw_string"]
    assert names("single_file", Role.SOURCE) == lines
    assert names("single_file", Role.SINK) == lines
    assert names("filesystem", Role.SINK) == ["parquet", *lines]
    assert names("filesystem", Role.LOOKUP) == ["parquet"]
    assert names("stdout", Role.SINK) == lines
    assert names("impulse", Role.SOURCE) == []


def test_a_new_format_is_accepted_by_its_capabilities() -> None:
    lines = replace(JSON, spec=FormatSpec("logfmt"))
    blobs = replace(JSON, spec=FormatSpec("orc"), is_line_based=False, reader=None)
    formats = {"json": JSON, "logfmt": lines, "orc": blobs}
    for role in (Role.SOURCE, Role.SINK):
        accepted = SINGLE_FILE.spec(formats).roles[role].formats
        assert [each.name for each in accepted] == ["json", "logfmt"]
    written = INSTALLED["filesystem"].spec(formats).roles[Role.SINK].formats
    assert "orc" in [each.name for each in written]


def test_messages_can_have_every_format_but_that_of_files() -> None:
    names_of = {
        "read": [each.name for each in FORMATS.values() if each.reads_messages],
        "written": [each.name for each in FORMATS.values() if each.writes_messages],
    }
    expected = [name for name in FORMATS if name != "parquet"]
    assert names_of == {"read": expected, "written": expected}


class LogfmtOptions(TableOptions):
    separator: str = option("between two members", name="logfmt.separator")


def test_a_format_has_options_of_its_own() -> None:
    spec = FormatSpec("logfmt", source_options=LogfmtOptions)
    connectors = {"single_file": SINGLE_FILE.spec({**FORMATS, "logfmt": replace(JSON, spec=spec)})}
    table = (
        "CREATE TABLE t (a INT) WITH (connector = 'single_file', path = 'x', type = 'source',"
        " format = '{}'{}); SELECT a FROM t"
    )
    text = table.format("logfmt", ", 'logfmt.separator' = ';'")
    (source,) = compile_pipeline(text, connectors).sources()
    assert source.options["logfmt.separator"] == ";"
    with pytest.raises(SqlError, match=r"the format of the table needs .*'logfmt\.separator'"):
        compile_pipeline(table.format("logfmt", ""), connectors)
    with pytest.raises(SqlError, match=r"'logfmt\.separator' requires format = 'logfmt'"):
        compile_pipeline(text.replace("'logfmt',", "'json',"), connectors)


PIPELINE = """CREATE TABLE t (id BIGINT PRIMARY KEY, a INT)
WITH (connector = 'single_file', path = 'x', type = 'source', format = '{format}');
CREATE TABLE o (id BIGINT PRIMARY KEY, n BIGINT)
WITH (connector = 'single_file', path = 'y', type = 'sink', format = '{format}');
INSERT INTO o SELECT id, {value} FROM t"""


def with_format(name: str) -> Mapping[str, ConnectorSpec]:
    """The connectors, where a format of changes has another name."""
    renamed = replace(DEBEZIUM_JSON, spec=replace(DEBEZIUM_JSON.spec, name=name))
    return {"single_file": SINGLE_FILE.spec({**FORMATS, name: renamed})}


@pytest.mark.parametrize("name", ["debezium_json", "changes"])
def test_the_planner_uses_the_capabilities_of_a_format_and_not_its_name(name: str) -> None:
    graph = compile_pipeline(PIPELINE.format(format=name, value="a"), with_format(name))
    (source,), (sink,) = graph.sources(), graph.sinks()
    assert (source.is_changelog, source.keys, source.is_updating) == (True, ("id",), False)
    assert sink.pairs_changes
    assert "one by the keys of changes" in explain_graph(graph, 1)


def test_rows_of_an_append_only_format_are_inserts() -> None:
    graph = compile_pipeline(PIPELINE.format(format="json", value="a"), CONNECTORS)
    (source,), (sink,) = graph.sources(), graph.sinks()
    assert (source.is_changelog, source.keys, sink.pairs_changes) == (False, (), False)
    assert "one by the keys of changes" not in explain_graph(graph, 1)


def test_the_hint_for_a_changelog_into_an_append_only_sink_names_suitable_formats() -> None:
    text = PIPELINE.format(format="json", value="count(*)") + " GROUP BY id"
    with pytest.raises(SqlError) as caught:
        compile_pipeline(text, with_format("changes"))
    assert "Set format = 'debezium_json' or 'changes'" in caught.value.hint


def test_a_changelog_that_was_compiled_as_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    text = PIPELINE.format(format="debezium_json", value="a").replace("'x'", f"'{tmp_path}/x'")
    (source,) = compile_pipeline(text, CONNECTORS).sources()
    make_source(source).check()
    older = source.model_dump(exclude={"is_changelog"})
    with pytest.raises(ConfigError, match="compiled for another kind of format"):
        make_source(SourceSpec.model_validate(older))


def test_an_unsupported_format_is_refused_when_the_connector_is_created() -> None:
    spec = SinkSpec(
        id=OperatorId("sink-o"),
        input=OperatorId("query"),
        table="o",
        connector="single_file",
        options={"path": "x", "format": "parquet"},
    )
    with pytest.raises(ConfigError, match="'parquet' is not a valid value for option 'format'"):
        make_sink(spec, "file:///tmp", JobName("job"))


def test_lines_are_joined_into_one_file() -> None:
    encoder = LineEncoder()
    assert encoder.finish() is None
    lines = pa.array(["skipped\n", "a\n", "bé\n", "c\n"])
    encoder.add(pa.RecordBatch.from_arrays([lines.slice(1, 2)], [VALUE]))
    encoder.add(pa.RecordBatch.from_arrays([lines.slice(3)], [VALUE]))
    found = encoder.finish()
    assert found is not None
    assert (found.data, found.rows) == ("a\nbé\nc\n".encode(), 3)
    assert encoder.size == len(found.data)
