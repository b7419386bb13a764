"""Every connector by name: what the planner must know of it, and how it is made."""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.connectors import impulse, nexmark
from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.filesystem import FilesystemSink
from resurgence.connectors.formats.json_lines import TIMESTAMP_FORMAT, TimestampFormat
from resurgence.connectors.formats.json_values import TIMESTAMP_UNIT, UNITS
from resurgence.connectors.lookups.contract import LookupTable
from resurgence.connectors.lookups.delta import DeltaLookup
from resurgence.connectors.lookups.files import FilesystemLookup
from resurgence.connectors.lookups.postgres import PostgresLookup
from resurgence.connectors.path_overlap import require_separate_paths
from resurgence.connectors.single_file import METADATA as SINGLE_FILE_METADATA
from resurgence.connectors.single_file import SingleFileSink, SingleFileSource
from resurgence.connectors.terminal import BlackholeSink, StdoutSink
from resurgence.errors import ConfigError
from resurgence.graph.connector_spec import ConnectorSpec, Guarantee, OptionSpec, Role, RoleSpec
from resurgence.graph.model import Graph
from resurgence.graph.specs.lookup_join import LookupSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity, JobName
from resurgence.secrets import concealer_for, open_options

_JSON = OptionSpec(choices=("json", "debezium_json"), default="json")
_TIMESTAMPS = OptionSpec(choices=tuple(TimestampFormat))

CONNECTORS: dict[str, ConnectorSpec] = {
    "impulse": ConnectorSpec(
        name="impulse",
        roles={
            Role.SOURCE: RoleSpec(
                options={
                    "event_rate": OptionSpec(),
                    "message_count": OptionSpec(),
                    "event_time_interval": OptionSpec(),
                    "start_time": OptionSpec(),
                },
                fixed_columns=impulse.COLUMNS,
                event_time="timestamp",
                needs_columns=False,
            )
        },
    ),
    "nexmark": ConnectorSpec(
        name="nexmark",
        roles={
            Role.SOURCE: RoleSpec(
                options={
                    "event_rate": OptionSpec(),
                    "runtime": OptionSpec(),
                    "message_count": OptionSpec(),
                    "event_time_interval": OptionSpec(),
                    "start_time": OptionSpec(),
                },
                fixed_columns=nexmark.COLUMNS,
                event_time="timestamp",
                needs_columns=False,
            )
        },
    ),
    "single_file": ConnectorSpec(
        name="single_file",
        roles={
            Role.SOURCE: RoleSpec(
                options={
                    "path": OptionSpec(required=True),
                    "format": _JSON,
                    "bad_data": OptionSpec(choices=("fail", "drop"), default="fail"),
                    "json.unstructured": OptionSpec(choices=("true", "false")),
                    TIMESTAMP_UNIT: OptionSpec(choices=tuple(UNITS), per_column=True),
                },
                metadata=SINGLE_FILE_METADATA,
            ),
            Role.SINK: RoleSpec(
                options={
                    "path": OptionSpec(required=True),
                    "format": _JSON,
                    TIMESTAMP_FORMAT: _TIMESTAMPS,
                },
                needs_columns=False,
                guarantee=Guarantee.EXACTLY_ONCE,
            ),
        },
    ),
    "filesystem": ConnectorSpec(
        name="filesystem",
        roles={
            Role.SINK: RoleSpec(
                options={
                    "path": OptionSpec(required=True),
                    "format": OptionSpec(
                        choices=("parquet", "json", "debezium_json"), default="parquet"
                    ),
                    TIMESTAMP_FORMAT: _TIMESTAMPS,
                },
                needs_columns=False,
                guarantee=Guarantee.EXACTLY_ONCE,
            ),
            Role.LOOKUP: RoleSpec(
                options={
                    "path": OptionSpec(required=True),
                    "format": OptionSpec(choices=("parquet",), default="parquet"),
                }
            ),
        },
    ),
    "delta": ConnectorSpec(
        name="delta", roles={Role.LOOKUP: RoleSpec(options={"path": OptionSpec(required=True)})}
    ),
    "postgres": ConnectorSpec(
        name="postgres",
        roles={
            Role.LOOKUP: RoleSpec(
                options={
                    "url": OptionSpec(required=True),
                    "table": OptionSpec(required=True),
                    "password": OptionSpec(),
                }
            )
        },
    ),
    "stdout": ConnectorSpec(
        name="stdout",
        roles={
            Role.SINK: RoleSpec(
                options={"format": _JSON, TIMESTAMP_FORMAT: _TIMESTAMPS},
                needs_columns=False,
                guarantee=Guarantee.AT_LEAST_ONCE,
            )
        },
    ),
    "blackhole": ConnectorSpec(
        name="blackhole",
        roles={
            Role.SINK: RoleSpec(
                options={"format": _JSON}, needs_columns=False, guarantee=Guarantee.EXACTLY_ONCE
            )
        },
    ),
}


def make_source(operator: SourceSpec) -> Source:
    """The source that an operator reads. Here references to secrets are read."""
    opened = open_options(operator.table, operator.options)
    with opened.concealer.over_errors():
        return _source(operator, opened.values)


def _source(operator: SourceSpec, options: Mapping[str, str]) -> Source:
    operator = operator.model_copy(update={"columns": operator.read_columns})
    if operator.connector == "impulse":
        return impulse.ImpulseSource(options, operator.columns)
    if operator.connector == "nexmark":
        return nexmark.NexmarkSource(options, operator.columns)
    if operator.connector == "single_file":
        return SingleFileSource(options, operator.columns, operator.keys)
    raise ConfigError(f"'{operator.connector}' is not a source")


def make_sink(operator: SinkSpec, state_url: str, job: JobName) -> Sink:
    """The sink that an operator writes. Here references to secrets are read."""
    opened = open_options(operator.table, operator.options)
    with opened.concealer.over_errors():
        return _sink(operator, opened.values, state_url, job)


def _sink(operator: SinkSpec, given: Mapping[str, str], state_url: str, job: JobName) -> Sink:
    options = {
        "format": "parquet" if operator.connector == "filesystem" else "json",
        **given,
    }
    if operator.connector == "filesystem":
        return FilesystemSink(options, operator.keys)
    if operator.connector == "single_file":
        return SingleFileSink(options, operator.keys)
    if operator.connector == "stdout":
        folder, is_limited = f"{job}/staged/{operator.id}", operator.limit is not None
        return StdoutSink(options, operator.keys, state_url, folder, is_limited=is_limited)
    if operator.connector == "blackhole":
        return BlackholeSink()
    raise ConfigError(f"'{operator.connector}' is not a sink")


def newest_held(graph: Graph, state_url: str, job: JobName, identity: JobIdentity) -> Epoch:
    """The highest epoch that any sink has committed or retracted for a job. A rollback must
    declare all up to it dead, also if the state has no record of it.
    """
    newest = NO_EPOCH
    for sink in graph.sinks():
        with concealer_for([sink.options]).over_errors():
            newest = max(newest, make_sink(sink, state_url, job).recall(identity, ()).newest)
    return newest


def make_lookup(spec: LookupSpec) -> LookupTable:
    """The table that rows are joined with. Here references to secrets are read."""
    opened = open_options(spec.name, spec.options)
    with opened.concealer.over_errors():
        return _lookup(spec, opened.values)


def _lookup(spec: LookupSpec, options: Mapping[str, str]) -> LookupTable:
    if spec.connector == "filesystem":
        return FilesystemLookup(spec.name, options, spec.columns)
    if spec.connector == "delta":
        return DeltaLookup(spec.name, options, spec.columns)
    if spec.connector == "postgres":
        return PostgresLookup(spec.name, options, spec.columns)
    raise ConfigError(f"'{spec.connector}' has no lookup tables")


def check_connectors(graph: Graph, state_url: str, job: JobName) -> None:
    """Raise a UserError for what can be seen to be wrong before Spark starts: a missing file
    or secret, say.
    """
    require_separate_paths(graph)
    for source in graph.sources():
        with open_options(source.table, source.options).concealer.over_errors():
            make_source(source).check()
    for table in graph.lookup_tables():
        with open_options(table.name, table.options).concealer.over_errors():
            make_lookup(table).check()
    for sink in graph.sinks():
        with open_options(sink.table, sink.options).concealer.over_errors():
            make_sink(sink, state_url, job).check()
