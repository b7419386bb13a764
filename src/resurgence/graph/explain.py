"""A graph in words: what each operator does, what it keeps, and which Spark jobs an epoch costs."""

from __future__ import annotations

from collections.abc import Iterator

from resurgence.graph.model import (
    EVENT_TIME,
    AggregateCall,
    ClosedQuerySpec,
    Column,
    Graph,
    LateRowsSpec,
    LookupJoinSpec,
    NormaliseSpec,
    OperatorSpec,
    QuerySpec,
    SinkSpec,
    SourceSpec,
    StatefulSpec,
    UnionSpec,
    UpdatingQuerySpec,
    WindowAggregateSpec,
    inputs_of,
)
from resurgence.ids import OperatorId
from resurgence.secrets import shown_value

_UNITS = (
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
)


def explain_graph(graph: Graph, parallelism: int) -> str:
    """The graph as plain text, its operators from sources to sinks."""
    blocks = ["\n".join(_operator_lines(each, parallelism)) for each in graph.operators]
    return "\n\n".join([*blocks, "\n".join(_job_lines(graph))]) + "\n"


def duration_text(micros: int) -> str:
    """A length of time in the largest units, as in `1 hour 30 minutes`."""
    parts = []
    for size, unit in _UNITS:
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    return " ".join(parts)


def _operator_lines(operator: OperatorSpec, parallelism: int) -> Iterator[str]:
    match operator:
        case SourceSpec():
            yield f"{operator.id}: source"
            yield from _source_lines(operator)
        case QuerySpec():
            yield f"{operator.id}: query"
            yield from _query_lines(operator)
        case WindowAggregateSpec():
            yield f"{operator.id}: window aggregate"
            yield from _window_lines(operator, parallelism)
        case LateRowsSpec():
            yield f"{operator.id}: late rows"
            yield f"  input        {operator.input}"
            yield f"  keeps        rows whose windows in {operator.window} have all closed"
            yield "  state        none"
        case UnionSpec():
            yield f"{operator.id}: union"
            yield f"  inputs       {', '.join(operator.inputs)}"
            yield "  state        none"
        case ClosedQuerySpec():
            yield f"{operator.id}: query over closed windows"
            yield f"  inputs       {', '.join(operator.inputs)}"
            yield f"  computes     {operator.sql}"
            yield "  state        none: all rows of a window come in one epoch"
        case UpdatingQuerySpec():
            yield f"{operator.id}: updating query"
            yield from _updating_lines(operator, parallelism)
        case NormaliseSpec():
            yield f"{operator.id}: changelog by key"
            yield f"  input        {operator.input}"
            yield f"  keys         {', '.join(operator.keys)}"
            yield f"  parallelism  {_subtasks(parallelism)}, by hash of the keys"
            yield "  state        KeyTable 'rows': the last row of each key"
            yield "  dropped      a key, when it is deleted or the table is truncated"
        case LookupJoinSpec():
            yield f"{operator.id}: lookup join"
            yield from _lookup_lines(operator)
        case SinkSpec():
            yield f"{operator.id}: sink"
            yield from _sink_lines(operator)


def _source_lines(operator: SourceSpec) -> Iterator[str]:
    yield f"  reads        table {operator.table} through {operator.connector}{_options(operator.options)}"
    yield f"  columns      {', '.join(_column(each) for each in operator.columns)}"
    if operator.watermark:
        yield f"  event time   {operator.watermark.event_time}"
        yield f"  watermark    greatest {operator.watermark.sql}"
    if operator.idle_micros is not None:
        yield f"  idle         after {duration_text(operator.idle_micros)} without rows"
    if operator.max_future_micros is not None:
        yield f"  bad          event time {duration_text(operator.max_future_micros)} ahead of planning"
    yield "  state        the position in its input (GlobalTable)"


def _column(column: Column) -> str:
    text = f"{column.name} {column.type}".strip()
    if column.generated:
        return f"{text} AS ({column.generated.sql})"
    return f"{text} METADATA FROM '{column.metadata}'" if column.metadata else text


def _query_lines(operator: QuerySpec) -> Iterator[str]:
    yield f"  input        {operator.input}"
    if operator.where:
        yield f"  keeps        rows where {operator.where.sql}"
    for index, each in enumerate(item for item in operator.select if item.name != EVENT_TIME):
        yield f"  {'computes' if index == 0 else '':<12} {each.name} = {each.sql}"
    yield "  state        none"


def _window_lines(operator: WindowAggregateSpec, parallelism: int) -> Iterator[str]:
    yield f"  input        {operator.input}"
    yield f"  window       {_window(operator)}"
    if operator.by_processing_time:
        yield "  time         processing time: when the epoch of a row was planned"
    yield f"  keys         {', '.join(each.sql for each in operator.keys) or 'none'}"
    for index, each in enumerate(operator.aggregates):
        yield f"  {'aggregates' if index == 0 else '':<12} {each.name} = {_aggregate(each)}"
    hashed = "the window and the keys" if operator.keys else "the window"
    if operator.window != "tumble":
        hashed = "the keys"
    yield f"  parallelism  {_subtasks(parallelism)}, by hash of {hashed}"
    if operator.window == "asof":
        yield "  state        TimeTable 'partials': rows that wait for the watermark, the newest right row of each key"
        yield "  dropped      a row, when the watermark passes it; a right row, when a newer one has been passed"
    elif operator.window == "session":
        yield "  state        TimeTable 'partials': a row per open session, group and epoch"
        yield "  dropped      a session, when the watermark passes its end and its row has gone out"
    elif operator.window == "hop":
        yield "  state        TimeTable 'partials': a row per pane, group and epoch, in one bin per pane"
        yield "  dropped      a pane, when the watermark passes the end of its last window"
    elif operator.window == "cumulate":
        yield "  state        TimeTable 'partials': a row per step, group and epoch, in one bin per step"
        yield "  dropped      a bin, when the watermark passes its end and a later one has its rows"
    else:
        yield "  state        TimeTable 'partials': a row per window, group and epoch, in one bin per window"
        yield (
            "  dropped      a bin, when the watermark passes the end of its window and its rows have "
            "gone out"
        )


def _window(operator: WindowAggregateSpec) -> str:
    width = duration_text(operator.width_micros)
    if operator.lateness_micros:
        wait = duration_text(operator.lateness_micros)
        return f"{_window(operator.model_copy(update={'lateness_micros': 0}))}, closed {wait} later"
    if operator.offset_micros:
        later = duration_text(operator.offset_micros)
        return f"{_window(operator.model_copy(update={'offset_micros': 0}))}, shifted by {later}"
    if operator.window == "asof":
        return "asof join: a row goes out when the watermark passes it"
    if operator.window == "cumulate":
        step = duration_text(operator.slide_micros or 0)
        return f"cumulating, up to {width} of event time in steps of {step}"
    if operator.window == "hop":
        slide = duration_text(operator.slide_micros or 0)
        return f"hopping, {width} of event time every {slide}"
    if operator.window == "session":
        return f"session, ended by {width} of event time without a row"
    return f"tumbling, {width} of event time"


def _updating_lines(operator: UpdatingQuerySpec, parallelism: int) -> Iterator[str]:
    for number, each in enumerate(operator.inputs):
        yield f"  input        {each.operator} as input_{number}"
        yield f"  keys         {', '.join(each.keys) or 'none: all rows belong together'}"
        yield f"  keeps        {', '.join(f'{one.name} = {one.sql}' for one in each.columns)}"
    yield f"  computes     {operator.sql}"
    yield f"  parallelism  {_subtasks(parallelism)}, by hash of the keys"
    kept = "the rows of all inputs" if len(operator.inputs) > 1 else "the rows"
    if operator.aggregates is not None:
        kept = "the rows, or for each key what they add up to where that is exact"
    yield f"  state        KeyTable 'rows': {kept}, by key"
    dropped = "never"
    if operator.ttl_micros:
        dropped = f"a key that has not changed for {duration_text(operator.ttl_micros)}"
    elif operator.keep_micros is not None:
        kept_for = f"{duration_text(operator.keep_micros)} " if operator.keep_micros else ""
        dropped = f"a row, when the watermark is {kept_for}beyond its event time"
    yield f"  dropped      {dropped}"


def _lookup_lines(operator: LookupJoinSpec) -> Iterator[str]:
    table = operator.table
    again = f"every {duration_text(table.ttl_micros)}" if table.ttl_micros else "in every epoch"
    yield f"  input        {operator.input}"
    yield f"  looks up     table {table.name} through {table.connector}{_options(table.options)}"
    yield f"  columns      {', '.join(f'{each.name} {each.type}' for each in table.columns)}"
    yield f"  join         {operator.join}, on {operator.on.sql}"
    yield f"  state        none: it keeps nothing, and the table is read again {again}"


def _subtasks(parallelism: int) -> str:
    return f"{parallelism} subtask" if parallelism == 1 else f"{parallelism} subtasks"


def _sink_lines(operator: SinkSpec) -> Iterator[str]:
    yield f"  input        {operator.input}"
    yield f"  writes       table {operator.table} through {operator.connector}{_options(operator.options)}"
    if operator.columns is not None:
        yield f"  columns      {', '.join(f'{each.name} {each.type}' for each in operator.columns)}"
    yield "  state        what it has staged and not yet committed (GlobalTable)"


def _job_lines(graph: Graph) -> Iterator[str]:
    """Sharing ends at an operator with state: what it reads is read once for it, whoever is fed by
    it.
    """
    yield "Spark jobs of an epoch"
    tables = graph.lookup_tables()
    for table in tables:
        yield f"  when due     reads table {table.name} as a whole, to be looked up"
    always: list[str] = []
    closing: list[str] = []
    for operator in graph.operators:
        if not isinstance(operator, StatefulSpec | SinkSpec):
            continue
        feeds = _feeds(graph, operator)
        read = ", ".join(_read(each) for each in feeds)
        if isinstance(operator, WindowAggregateSpec):
            work = "partial aggregates, one shuffle, writes state files"
        elif isinstance(operator, UpdatingQuerySpec | NormaliseSpec):
            work = "one shuffle, writes state files"
        else:
            work = f"{_shuffles(graph, operator)}, stages"
        if all(isinstance(each, WindowAggregateSpec) for each in feeds):
            hint = "only if the watermark has passed the end of a window"
            closing.append(f"  on closing   {operator.id}: reads {read}, {work} ({hint})")
        else:
            always.append(f"  always       {operator.id}: reads {read}, {work}")
    yield from (*always, *closing)
    most = len(always) + len(closing) + len(tables)
    yield f"  in total     {len(always)} at least, {most} at most"


def _shuffles(graph: Graph, sink: SinkSpec) -> str:
    """Of the job that stages what a sink is fed."""
    between = _between(graph, sink)
    found = []
    if any(isinstance(each, ClosedQuerySpec) for each in between):
        found.append("the shuffles of its queries over closed windows")
    if any(isinstance(each, LookupJoinSpec) for each in between):
        found.append("one for each table looked up that is too large to be broadcast")
    if sink.keys and sink.options.get("format") == "debezium_json":
        found.append("one by the keys of changes")
    return " and ".join(found) or "no shuffle"


def _between(graph: Graph, operator: OperatorSpec) -> list[OperatorSpec]:
    """The operators above that have no rows of their own, down from the nearest that have."""
    found: dict[OperatorId, OperatorSpec] = {}
    above = [*inputs_of(operator)]
    while above:
        each = graph.operator(above.pop())
        if each.id not in found and not _has_rows(each):
            found[each.id] = each
            above += inputs_of(each)
    return list(found.values())


def _feeds(graph: Graph, operator: OperatorSpec) -> list[OperatorSpec]:
    """The nearest operators above that have rows of their own: sources and those with state."""
    if isinstance(operator, LateRowsSpec):
        inputs: tuple[OperatorId, ...] = (operator.input,)
    else:
        inputs = inputs_of(operator)
    found: dict[OperatorId, OperatorSpec] = {}
    for each in map(graph.operator, inputs):
        nearest = [each] if _has_rows(each) else _feeds(graph, each)
        found |= {one.id: one for one in nearest}
    return list(found.values())


def _has_rows(operator: OperatorSpec) -> bool:
    return isinstance(operator, SourceSpec | StatefulSpec)


def _read(operator: OperatorSpec) -> str:
    if isinstance(operator, WindowAggregateSpec):
        return f"the closed bins of {operator.id}"
    if isinstance(operator, UpdatingQuerySpec | NormaliseSpec):
        return f"the touched keys of {operator.id}"
    return operator.id


def _aggregate(call: AggregateCall) -> str:
    text = f"{call.function}({', '.join(call.arguments) or '*'})"
    return f"{text} where {call.condition}" if call.condition else text


def _options(options: dict[str, str]) -> str:
    shown = ", ".join(f"{key} = {shown_value(key, value)}" for key, value in options.items())
    return f" ({shown})" if shown else ""
