"""The charts of a job as options of ECharts; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from resurgence.engine.epochs.timeline import Work
from resurgence.ui.job_history import EpochPoint

_GREY = "#8a929c"
_FAINT = "rgba(138,146,156,.22)"
COLOURS = (
    "#5b8def",
    "#3b9a63",
    "#bf8428",
    "#8f5fd0",
    "#2f9aa0",
    "#c9579a",
    "#d9534f",
    "#7f8b99",
)
"""Legible on light and on dark panels."""
_COLOUR_OF_WORK = {each.value: place for place, each in enumerate(Work)}
_UNKNOWN_WORK = len(COLOURS) - 1
"""Of another release."""
Options = dict[str, Any]
_BYTES = (
    "value => value >= 1073741824 ? (value / 1073741824).toFixed(1) + ' GiB' : value >= 1048576 ? "
    "(value / 1048576).toFixed(1) + ' MiB' : value >= 1024 ? (value / 1024).toFixed(1) + ' KiB' "
    ": Math.round(value) + ' B'"
)
_COUNT = (
    "value => value >= 1e6 ? (value / 1e6).toFixed(1) + 'M' : value >= 1e3 ? "
    "(value / 1e3).toFixed(1) + 'k' : '' + Math.round(value * 10) / 10"
)
_SECONDS = (
    "value => value >= 1 ? Math.round(value * 10) / 10 + ' s' : Math.round(value * 1000) + ' ms'"
)
_NO_PARTITIONS = {
    "text": "No source has partitions.",
    "left": "center",
    "top": "middle",
    "textStyle": {"color": _GREY, "fontSize": 12, "fontWeight": "normal"},
}
TITLES = {
    "throughput": ("Throughput", "rows per second, by epoch"),
    "duration": ("Epoch duration", "seconds, by kind of work"),
    "state": ("State size", "of all operators"),
    "lag": ("Lag", "unread rows after each epoch"),
    "replay": ("Replay forecast", "rows to replay if the worker died in the epoch"),
}


def chart(kind: str, points: Sequence[EpochPoint]) -> Options:
    """Return the options of a chart."""
    match kind:
        case "throughput":
            return _options(_COUNT, _throughput(points))
        case "duration":
            return _options(_SECONDS, _durations(points))
        case "state":
            return _options(_BYTES, [_line("state", [(p.at, p.state_bytes) for p in points], 0)])
        case "lag":
            lags = [(p.at, p.lag_rows) for p in points if p.lag_rows is not None]
            options = _options(_COUNT, [_line("unread rows", lags, 2)])
            title = {"text": ""} if lags else _NO_PARTITIONS
            return options | {"title": title}
        case _:
            return _options(_COUNT, [_line("rows to replay", [(p.at, p.rows) for p in points], 3)])


def _throughput(points: Sequence[EpochPoint]) -> list[Options]:
    into, out = [], []
    for before, each in pairwise(points):
        between = (each.at - before.at) / 1000
        if between > 0:
            into.append((each.at, round(each.rows / between, 1)))
            out.append((each.at, round(each.rows_out / between, 1)))
    return [_line("in", into, 0), _line("out", out, 1)]


def _durations(points: Sequence[EpochPoint]) -> list[Options]:
    kinds = [*dict.fromkeys(kind for each in points for kind, _ in each.phases)]
    if not kinds:
        return [_line("epoch", [(p.at, p.duration) for p in points], 0)]
    series = []
    for kind in kinds:
        colour = _COLOUR_OF_WORK.get(kind, _UNKNOWN_WORK)
        spent = [(p.at, round(dict(p.phases).get(kind, 0.0), 3)) for p in points if p.phases]
        series.append(
            _line(kind, spent, colour) | {"stack": "work", "areaStyle": {"opacity": 0.25}}
        )
    return series


def _line(name: str, data: Sequence[tuple[float, float | None]], colour: int) -> Options:
    return {
        "type": "line",
        "name": name,
        "data": [list(each) for each in data],
        "showSymbol": len(data) == 1,
        "symbolSize": 5,
        "lineStyle": {"width": 1.6},
        "itemStyle": {"color": COLOURS[colour]},
        "emphasis": {"disabled": True},
    }


def _options(labels: str, series: list[Options]) -> Options:
    axis: Options = {"axisLabel": {"color": _GREY, "fontSize": 11}, "axisLine": {"show": False}}
    return {
        "animation": False,
        "useUTC": False,
        "backgroundColor": "transparent",
        "textStyle": {"fontFamily": "Roboto, system-ui, sans-serif"},
        "grid": {
            "left": 8,
            "right": 14,
            "top": 26 if len(series) > 1 else 12,
            "bottom": 6,
            "containLabel": True,
        },
        "legend": {
            "show": len(series) > 1,
            "top": 0,
            "right": 8,
            "itemWidth": 12,
            "itemHeight": 3,
            "icon": "rect",
            "textStyle": {"color": _GREY, "fontSize": 11},
        },
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            ":valueFormatter": labels,
            "textStyle": {"fontSize": 12},
            "axisPointer": {"lineStyle": {"color": _GREY}},
        },
        "xAxis": {
            "type": "time",
            "splitLine": {"show": False},
            "axisTick": {"show": False},
            "minInterval": 1000,
            **axis,
            "axisLabel": {**axis["axisLabel"], "hideOverlap": True},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "splitNumber": 3,
            "splitLine": {"lineStyle": {"color": _FAINT}},
            **axis,
            "axisLabel": {**axis["axisLabel"], ":formatter": labels},
        },
        "series": series,
    }
