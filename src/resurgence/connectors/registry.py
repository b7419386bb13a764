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
from resurgence.connectors.filesystem import FILESYSTEM
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.registry import FORMATS
from resurgence.connectors.impulse import IMPULSE
from resurgence.connectors.lookups.contract import LookupTable
from resurgence.connectors.lookups.delta import DELTA
from resurgence.connectors.lookups.postgres import POSTGRES
from resurgence.connectors.nexmark import NEXMARK
from resurgence.connectors.single_file import SINGLE_FILE
from resurgence.connectors.terminal import BLACKHOLE, STDOUT
from resurgence.errors import ConfigError, UserError, did_you_mean
from resurgence.graph.connector_spec import ConnectorSpec
from resurgence.graph.model import Graph
from resurgence.graph.specs.lookup_join import LookupSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.table_options import FORMAT
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity, JobName
from resurgence.plugins import CONNECTOR_GROUP, PluginRegistry
from resurgence.secrets import concealer_for, open_options

R = TypeVar("R")
AnyRole = SourceRole[Any] | SinkRole[Any] | LookupRole[Any]

INSTALLED: Mapping[str, Connector] = PluginRegistry(
    CONNECTOR_GROUP,
    Connector,
    (IMPULSE, NEXMARK, SINGLE_FILE, FILESYSTEM, DELTA, POSTGRES, STDOUT, BLACKHOLE),
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


def make_source(operator: SourceSpec) -> Source:
    """Return the source that an operator reads. Resolves references to secrets."""
    opened = open_options(operator.table, operator.options)
    with opened.concealer.over_errors():
        role = _required(
            _connector(operator.connector).source,
            f"connector '{operator.connector}' is not a source",
        )
        options, chosen = _read(operator.table, opened.values, role)
        if chosen.spec.is_changelog != operator.is_changelog:
            # A controller of an older release does not set it; changes would be read as inserts.
            raise ConfigError(
                f"table '{operator.table}' was compiled for another kind of format than"
                f" '{chosen.name}'",
                hint="Restart the controller. Packages were upgraded while it ran.",
            )
        declaration = SourceDeclaration(
            operator.table, operator.read_columns, operator.keys, chosen
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
        options, chosen = _read(operator.table, opened.values, role)
        declaration = SinkDeclaration(
            operator.table,
            operator.keys,
            chosen,
            state_url,
            f"{job}/staged/{operator.id}",
            is_limited=operator.limit is not None,
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
        options, chosen = _read(spec.name, opened.values, role)
        return role.make(options, LookupDeclaration(spec.name, spec.columns, chosen))


def _connector(name: str) -> Connector:
    if name not in INSTALLED:
        raise ConfigError(f"connector '{name}' does not exist", hint=did_you_mean(name, INSTALLED))
    return INSTALLED[name]


def _required(role: R | None, message: str) -> R:
    if role is None:
        raise ConfigError(message)
    return role


def _read(table: str, values: Mapping[str, str], role: AnyRole) -> tuple[Any, Format]:
    """Return the parsed options of a table, and its format."""
    options, chosen = dict(values), NO_FORMAT
    if role.formats is not None:
        name = options.pop(FORMAT, role.formats.default.name)
        known = {each.name: each for each in role.formats.among(FORMATS)}
        if name not in known:
            raise ConfigError(
                f"table '{table}': '{name}' is not a valid value for option '{FORMAT}'",
                hint=did_you_mean(name, known),
            )
        chosen = known[name]
    try:
        return role.options.read(options), chosen
    except UserError as error:
        raise UserError(f"table '{table}': {error.message}", hint=error.hint) from error


def newest_held(graph: Graph, state_url: str, job: JobName, identity: JobIdentity) -> Epoch:
    """Return the highest epoch that any sink has committed or retracted for a job. A rollback must
    declare all epochs up to it dead, also if the state has no record of it.
    """
    newest = NO_EPOCH
    for sink in graph.sinks():
        with concealer_for([sink.options]).over_errors():
            newest = max(newest, make_sink(sink, state_url, job).recall(identity, ()).newest)
    return newest


def records_folder(sink: SinkSpec, path: Path) -> Path | None:
    """Return where a sink with a file of its own stores its records; None for any other sink."""
    role = INSTALLED[sink.connector].sink if sink.connector in INSTALLED else None
    return role.records_folder(path) if role and role.records_folder else None
