"""The dataflow graph of a job as a picture: its operators with their numbers; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from resurgence.control.controller import JobView
from resurgence.graph.model import Graph
from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.lookup_join import LookupJoinSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.state.inspection.checkpoints import CheckpointView
from resurgence.ui.views.graph_layout import SMALL_HEIGHT, WIDTH, Layout, laid_out
from resurgence.ui.views.markup import NOTHING, Markup, html
from resurgence.ui.views.numbers import byte_size, share, short_count

_MARGIN = 6
_KINDS = {
    "source": "source",
    "sink": "sink",
    "query": "projection, filter",
    "union": "union",
    "window_aggregate": "window",
    "late_rows": "late rows",
    "closed_query": "query over windows",
    "updating_query": "updating query",
    "normalise": "changelog by key",
    "lookup_join": "lookup join",
}
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAME, _LONGEST_KIND = 25, 31
_HEAD, _LINE, _FOOT, _BAR = 48.0, 14.0, 10.0, 18.0
"""Where the first fact of an operator is drawn, the distance to the next one, and what is below the
last one.
"""
_WATERMARK = "watermark "


@dataclass(frozen=True)
class OperatorFacts:
    """What is known about an operator, from the newest checkpoint. None: it has no such number."""

    rows_in: int | None = None
    rows_out: int | None = None
    late_rows: int | None = None
    bad_rows: int | None = None
    state_bytes: int | None = None
    state_rows: int | None = None
    watermark: str | None = None
    watermark_at: str | None = None
    """As an instant, unless it is at the end of the input."""
    share: float | None = None
    """Of the time of recent epochs."""
    is_failing: bool = False


@dataclass(frozen=True)
class Dataflow:
    """A graph with the facts about its operators."""

    graph: Graph
    facts: Mapping[str, OperatorFacts] = field(default_factory=dict)


def operator_facts(
    graph: Graph,
    newest: CheckpointView | None,
    seconds: Mapping[str, float],
    failing: Collection[str] = (),
) -> dict[str, OperatorFacts]:
    """Return the facts about all operators. `seconds` is the time of recent epochs by operator."""
    totals = newest.manifest.totals.counts if newest and newest.manifest else None
    stored = newest.operators if newest else {}
    spent = sum(seconds.values())
    found = {}
    for each in graph.operators:
        name = each.id
        metadata = stored.get(name)
        files = (
            [file for table in metadata.tables.values() for file in table.files] if metadata else []
        )
        window_in = None
        if totals and name in totals.kept_rows:
            window_in = totals.kept_rows[name] + totals.late_rows.get(name, 0)
        found[str(name)] = OperatorFacts(
            rows_in=totals.rows_in.get(name, window_in) if totals else None,
            rows_out=totals.rows_out.get(name) if totals else None,
            late_rows=totals.late_rows.get(name) if totals else None,
            bad_rows=(totals.bad_rows.get(name, 0) + totals.dead_rows.get(name, 0)) or None
            if totals
            else None,
            state_bytes=sum(file.bytes for file in files) if each.has_state and metadata else None,
            state_rows=sum(file.rows for file in files) if each.has_state and metadata else None,
            watermark=watermark_text(metadata.watermark) if metadata else None,
            watermark_at=_instant(metadata.watermark) if metadata else None,
            share=seconds[name] / spent if spent and name in seconds else None,
            is_failing=name in failing,
        )
    return found


def failing_operators(view: JobView) -> set[str]:
    """Return the operator that a job failed in, or recovers from."""
    incident = view.progress.get("incident")
    causes = [view.record.status.failure, incident if isinstance(incident, dict) else None]
    return {str(each["operator_id"]) for each in causes if each and each.get("operator_id")}


def watermark_text(watermark: int | None) -> str | None:
    """Return a watermark as an instant, without what is the same for everything."""
    if watermark is None:
        return None
    if watermark >= END_OF_TIME:
        return "end of input"
    try:
        return f"{_1970 + timedelta(microseconds=watermark):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return None


def _instant(watermark: int | None) -> str | None:
    if watermark is None or watermark >= END_OF_TIME:
        return None
    try:
        return (_1970 + timedelta(microseconds=watermark)).isoformat(timespec="seconds")
    except OverflowError:
        return None


def kind_of(spec: OperatorSpec) -> str:
    """Return the kind of an operator in words, with its connector."""
    kind = _KINDS.get(spec.kind, spec.kind.replace("_", " "))
    if isinstance(spec, SourceSpec | SinkSpec):
        return f"{kind} · {spec.connector}"
    if isinstance(spec, LookupJoinSpec):
        return f"{kind} · {spec.table.name}"
    return kind


def name_of(spec: OperatorSpec) -> str:
    """Return the name of an operator: of its table, if it is one."""
    return spec.table if isinstance(spec, SourceSpec | SinkSpec) else str(spec.id)


def dataflow_svg(dataflow: Dataflow) -> Markup:
    """Return the picture."""
    graph = dataflow.graph
    facts = {
        str(each.id): dataflow.facts.get(str(each.id), OperatorFacts()) for each in graph.operators
    }
    layout = laid_out(
        {str(each.id): [*map(str, each.input_ids)] for each in graph.operators},
        {name: box_height(each) for name, each in facts.items()},
    )
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    return html(
        '<div class="graph" tabindex="0" role="group" aria-label="Dataflow graph, {} operators">'
        '<svg width="{}" height="{}" viewBox="{} {} {} {}" role="img" aria-label="{}">{}{}</svg></div>',
        len(graph.operators),
        f"{width:.0f}",
        f"{height:.0f}",
        -_MARGIN,
        -_MARGIN,
        f"{width:.0f}",
        f"{height:.0f}",
        _spoken(graph),
        html.join(_edge(points) for points in layout.edges.values()),
        html.join(_node(each, layout, facts[str(each.id)]) for each in graph.operators),
    )


def dataflow_panel(dataflow: Dataflow, about: str) -> Markup:
    """Return the picture of a graph, and the same as a table."""
    return html(
        '<section class="panel"><header><h2>Dataflow</h2><span class="dim">{} operators{}</span>'
        '<label class="to-width"><input type="checkbox"> Fit to the width</label></header>{}'
        '<details class="body"><summary>As a table</summary>{}</details></section>',
        len(dataflow.graph.operators),
        about,
        dataflow_svg(dataflow),
        operators_table(dataflow),
    )


def _spoken(graph: Graph) -> str:
    lines = [
        f"{each.id} reads {' and '.join(each.input_ids)}"
        for each in graph.operators
        if each.input_ids
    ]
    return "; ".join(lines)


def _edge(points: Sequence[tuple[float, float]]) -> Markup:
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        if y == to_y:
            path += f"L{to_x:.1f} {to_y:.1f}"
        else:
            bend = (to_x - x) / 2
            path += f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    return html('<path class="edge" d="{}"/>', path)


def _node(spec: OperatorSpec, layout: Layout, facts: OperatorFacts) -> Markup:
    place = layout.places[str(spec.id)]
    look: str = spec.kind if isinstance(spec, SourceSpec | SinkSpec) else ""
    if spec.has_state:
        look = "state"
    classes = f"node {look}{' failing' if facts.is_failing else ''}"
    height = box_height(facts)
    load = NOTHING
    if facts.share is not None:
        load = html(
            '<rect class="load" x="12" y="{y}" width="{w}" height="3" rx="1.5"/>'
            '<rect class="load part" x="12" y="{y}" width="{part}" height="3" rx="1.5"/>',
            y=height - 9,
            w=WIDTH - 24,
            part=f"{(WIDTH - 24) * facts.share:.1f}",
        )
    return html(
        '<g class="{classes}" transform="translate({x} {y})" data-operator="{id}"><title>{title}'
        '</title><rect class="box" width="{w}" height="{h}" rx="7"/>'
        '<rect class="kind" width="4" height="{bar}" x="0" y="12" rx="2"/>'
        '<text class="name" x="12" y="19">{name}</text><text class="kind" x="12" y="33">{kind}</text>'
        "{lines}{load}</g>",
        classes=classes,
        x=f"{place.x:.1f}",
        y=f"{place.y:.1f}",
        id=spec.id,
        title="\n".join((f"{spec.id} ({kind_of(spec)})", *fact_lines(facts))),
        w=WIDTH,
        h=height,
        bar=height - 24,
        name=_cut(name_of(spec), _LONGEST_NAME),
        kind="failing" if facts.is_failing else _cut(kind_of(spec), _LONGEST_KIND),
        lines=html.join(
            html('<text x="12" y="{}">{}</text>', _HEAD + _LINE * number, line)
            for number, line in enumerate(_lines_drawn(facts))
        ),
        load=load,
    )


def fact_lines(facts: OperatorFacts) -> list[str]:
    """Return the facts about an operator in lines that fit its box."""
    rows = []
    if facts.rows_in is not None:
        rows.append(f"{short_count(facts.rows_in)} in")
    if facts.rows_out is not None:
        rows.append(f"{short_count(facts.rows_out)} out")
    lost = []
    if facts.late_rows:
        lost.append(f"{short_count(facts.late_rows)} late")
    if facts.bad_rows:
        lost.append(f"{short_count(facts.bad_rows)} bad")
    lines = [" · ".join(each) for each in (rows, lost) if each]
    if facts.state_bytes is not None:
        lines.append(f"state {byte_size(facts.state_bytes)} · {short_count(facts.state_rows)} rows")
    if facts.watermark is not None:
        lines.append(f"{_WATERMARK}{facts.watermark}")
    if facts.share is not None:
        lines.append(f"{share(facts.share)} of time")
    return lines


def _lines_drawn(facts: OperatorFacts) -> list[Markup]:
    """Return the lines with the delay of the watermark instead of its instant: the browser counts
    it on.
    """
    delay = html('{}<tspan data-since="{}"></tspan> behind', _WATERMARK, facts.watermark_at or "")
    return [
        delay if facts.watermark_at and each.startswith(_WATERMARK) else html("{}", each)
        for each in fact_lines(facts)
    ]


def box_height(facts: OperatorFacts) -> float:
    """Return the height of an operator's box: one line for each of its facts, and the bar of its
    share of time.
    """
    lines = len(fact_lines(facts))
    if not lines:
        return SMALL_HEIGHT
    return _HEAD + _LINE * (lines - 1) + (_BAR if facts.share is not None else _FOOT)


def operators_table(dataflow: Dataflow) -> Markup:
    """Return the same as a table, for many operators and for screen readers."""
    return html(
        '<div class="scroll"><table class="grid"><thead><tr><th scope="col">Operator</th>'
        '<th scope="col">Kind</th><th class="num">Rows in</th><th class="num">Rows out</th>'
        '<th class="num">Late</th><th class="num">State</th><th class="num">State rows</th>'
        '<th>Watermark</th><th class="num">Time</th></tr></thead><tbody>{}</tbody></table></div>',
        html.join(
            _line(each, dataflow.facts.get(str(each.id), OperatorFacts()))
            for each in dataflow.graph.operators
        ),
    )


def _line(spec: OperatorSpec, facts: OperatorFacts) -> Markup:
    mark = html(' <span class="bad">failing</span>') if facts.is_failing else NOTHING
    return html(
        '<tr><th scope="row">{}{}</th><td class="dim">{}</td><td class="num">{}</td>'
        '<td class="num">{}</td><td class="num">{}</td><td class="num">{}</td><td class="num">{}</td>'
        '<td>{}</td><td class="num">{}</td></tr>',
        spec.id,
        mark,
        kind_of(spec),
        short_count(facts.rows_in),
        short_count(facts.rows_out),
        short_count(facts.late_rows),
        byte_size(facts.state_bytes),
        short_count(facts.state_rows),
        facts.watermark or "–",
        share(facts.share),
    )


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
