"""Every connector by name: what the planner must know of it, and its instances for tables.

Besides the built-in ones there are those that installed packages add under the entry point group
`resurgence.connectors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from resurgence.connectors.connector import (
    NO_FORMAT,
    Connector,
    LookupDeclaration,
    LookupRole,
    SinkDeclaration,
    SinkRole,
    SourceDeclaration,
    SourceRole,
)
from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.dead_letter_table import DeadLetterTable
from resurgence.connectors.delta import DELTA
from resurgence.connectors.filesystem import FILESYSTEM
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.registry import FORMATS
from resurgence.connectors.iceberg import ICEBERG
from resurgence.connectors.impulse import IMPULSE
from resurgence.connectors.kafka import KAFKA
from resurgence.connectors.lookups.contract import LookupTable
from resurgence.connectors.nexmark import NEXMARK
from resurgence.connectors.postgres import POSTGRES
from resurgence.connectors.single_file import SINGLE_FILE
from resurgence.connectors.terminal import BLACKHOLE, STDOUT
from resurgence.errors import ConfigError, UserError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec, Role
from resurgence.graph.model import Graph
from resurgence.graph.specs.lookup_join import LookupSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.table_options import FORMAT, TableOptions
from resurgence.ids import Epoch, JobIdentity, JobName
from resurgence.plugins import CONNECTOR_GROUP, PluginRegistry
from resurgence.secrets import concealer_for, open_options
from resurgence.state.paths import JobPaths

R = TypeVar("R")
AnyRole = SourceRole[Any] | SinkRole[Any] | LookupRole[Any]

INSTALLED: Mapping[str, Connector] = PluginRegistry(
    CONNECTOR_GROUP,
    Connector,
    (IMPULSE, NEXMARK, SINGLE_FILE, FILESYSTEM, KAFKA, DELTA, ICEBERG, POSTGRES, STDOUT, BLACKHOLE),
)


class _Specs(Mapping[str, ConnectorSpec]):
    """The spec of each connector, created when it is first looked up."""

    def __init__(self) -> None:
        self._made: dict[str, ConnectorSpec] = {}

    def __getitem__(self, name: str) -> ConnectorSpec:
        if name not in self._made:
            self._made[name] = INSTALLED[name].spec(FORMATS)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(INSTALLED)

    def __len__(self) -> int:
        return len(INSTALLED)

    def __contains__(self, name: object) -> bool:
        return name in INSTALLED


CONNECTORS: Mapping[str, ConnectorSpec] = _Specs()
"""What the planner must know of each connector."""


def make_source(operator: SourceSpec, job: JobName | None = None) -> Source:
    """Return the source that an operator reads; `job` is the job that runs it, if it is run.
    Resolves references to secrets.
    """
    opened = open_options(operator.table, operator.options)
    with opened.concealer.over_errors():
        role = _required(
            _connector(operator.connector).source,
            f"connector '{operator.connector}' is not a source",
        )
        options, chosen, own = _read(operator.table, opened.values, role, Role.SOURCE)
        if chosen.spec.is_changelog != operator.is_changelog:
            # A controller of an older release does not set it; changes would be read as inserts.
            raise ConfigError(
                f"table '{operator.table}' was compiled for another kind of format than"
                f" '{chosen.name}'",
                hint="Restart the controller. Packages were upgraded while it ran.",
            )
        declaration = SourceDeclaration(
            operator.table, operator.read_columns, operator.keys, chosen, own, job
        )
        return role.make(options, declaration)


def make_sink(operator: SinkSpec, state_url: str, job: JobName) -> Sink:
    """Return the sink that an operator writes. Resolves references to secrets."""
    opened = open_options(operator.table, operator.options)
    with opened.concealer.over_errors():
        role = _required(
            _connector(operator.connector).sink,
            f"connector '{operator.connector}' is not a sink",
        )
        options, chosen, own = _read(operator.table, opened.values, role, Role.SINK)
        declaration = SinkDeclaration(
            operator.table,
            operator.keys,
            chosen,
            own,
            state_url,
            f"{job}/staged/{operator.id}",
            is_limited=operator.limit is not None,
            columns=operator.columns or (),
        )
        return role.make(options, declaration)


def make_lookup(spec: LookupSpec) -> LookupTable:
    """Return the table that rows are joined with. Resolves references to secrets."""
    opened = open_options(spec.name, spec.options)
    with opened.concealer.over_errors():
        role = _required(
            _connector(spec.connector).lookup,
            f"connector '{spec.connector}' has no lookup tables",
        )
        options, chosen, _ = _read(spec.name, opened.values, role, Role.LOOKUP)
        return role.make(options, LookupDeclaration(spec.name, spec.columns, chosen))


def jar_sets_of(graph: Graph) -> tuple[str, ...]:
    """Return the names of the sets of jars that a pipeline needs."""
    used: list[tuple[AnyRole | None, Mapping[str, str]]] = [
        *((_connector(each.connector).source, each.options) for each in graph.sources()),
        *((_connector(each.connector).sink, each.options) for each in graph.sinks()),
        *((_connector(each.connector).lookup, each.options) for each in graph.lookup_tables()),
    ]
    needed: dict[str, None] = {}
    for role, options in used:
        if role is not None:
            needed.update(dict.fromkeys((*role.jars, *_format_of(role, options).jars)))
    return tuple(needed)


def _connector(name: str) -> Connector:
    if name not in INSTALLED:
        raise ConfigError(f"connector '{name}' does not exist", hint=did_you_mean(name, INSTALLED))
    return INSTALLED[name]


def _required(role: R | None, message: str) -> R:
    if role is None:
        raise ConfigError(message)
    return role


def _read(
    table: str, values: Mapping[str, str], role: AnyRole, use: Role
) -> tuple[Any, Format, TableOptions]:
    """Return the parsed options of a table, its format, and the parsed options of that."""
    try:
        chosen = _format_of(role, values)
    except ConfigError as error:
        raise ConfigError(f"table '{table}': {error.message}", hint=error.hint) from error
    options = dict(values)
    if role.formats is not None:
        options.pop(FORMAT, None)
    model = chosen.spec.options(use)
    own = {name: value for name, value in options.items() if name in model.declared()}
    others = {name: value for name, value in options.items() if name not in own}
    try:
        return role.options.read(others), chosen, model.read(own)
    except UserError as error:
        raise UserError(f"table '{table}': {error.message}", hint=error.hint) from error


def _format_of(role: AnyRole, options: Mapping[str, str]) -> Format:
    if role.formats is None:
        return NO_FORMAT
    name = options.get(FORMAT, role.formats.default.name)
    known = {each.name: each for each in role.formats.among(FORMATS)}
    if name not in known:
        raise ConfigError(
            f"'{name}' is not a valid value for option '{FORMAT}'", hint=did_you_mean(name, known)
        )
    return known[name]


def newest_held(graph: Graph, state_url: str, job: JobName, identity: JobIdentity) -> Epoch:
    """Return the highest epoch that any sink, or the table of dead letters, has committed or
    retracted for a job. A rollback must declare all epochs up to it dead, also if the state has no
    record of it.
    """
    newest = DeadLetterTable(state_url, JobPaths(job)).recall(identity, ()).newest
    for sink in graph.sinks():
        with concealer_for([sink.options]).over_errors():
            newest = max(newest, make_sink(sink, state_url, job).recall(identity, ()).newest)
    return newest


def records_folder(sink: SinkSpec, path: Path) -> Path | None:
    """Return where a sink with a file of its own stores its records; None for any other sink."""
    role = INSTALLED[sink.connector].sink if sink.connector in INSTALLED else None
    return role.records_folder(path) if role and role.records_folder else None


def listed_folder(source: SourceSpec, path: str) -> str:
    """Return the folder that a source reads if its path has patterns; else the path."""
    role = INSTALLED[source.connector].source if source.connector in INSTALLED else None
    return role.listed_folder(path) if role and role.listed_folder else path
