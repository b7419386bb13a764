"""The operator specs, one module each. `OperatorSpec` is their union."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resurgence.graph.specs.closed_query import ClosedQuerySpec
from resurgence.graph.specs.late_rows import LateRowsSpec
from resurgence.graph.specs.lookup_join import LookupJoinSpec
from resurgence.graph.specs.normalise import NormaliseSpec
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.specs.union import UnionSpec
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec

OperatorSpec = Annotated[
    SourceSpec
    | QuerySpec
    | UnionSpec
    | WindowAggregateSpec
    | LateRowsSpec
    | ClosedQuerySpec
    | UpdatingQuerySpec
    | NormaliseSpec
    | LookupJoinSpec
    | SinkSpec,
    Field(discriminator="kind"),
]
