"""The layout of a dataflow graph: layers from left to right, few crossings; pure.

Each operator is one layer behind its last input. An edge across several layers passes through an
empty place in each of them. Within a layer, operators are ordered by the middle of their
neighbours, forth and back a few times; that leaves few crossings in graphs of this size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 186.0, 74.0
SMALL_HEIGHT = 44.0
"""Of an operator about which there is little to show."""
_LAYER_GAP, _ROW_GAP, _EMPTY_HEIGHT = 44.0, 14.0, 14.0
_SWEEPS = 6
_SETTLES = 12


@dataclass(frozen=True)
class Place:
    """Where an operator is drawn: its upper left corner."""

    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    """The places of all operators, and the points that each edge passes."""

    places: Mapping[str, Place]
    edges: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


@dataclass
class _Cell:
    """An operator, or a place that an edge passes."""

    name: str | None
    height: float
    before: list[_Cell]
    after: list[_Cell]
    y: float = 0.0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def laid_out(
    inputs: Mapping[str, Sequence[str]], heights: Mapping[str, float] | None = None
) -> Layout:
    """Lay out operators, given in topological order with the inputs of each, and with heights that
    differ from the usual one.
    """
    heights = heights or {}
    layer_of: dict[str, int] = {}
    for name, sources in inputs.items():
        layer_of[name] = max((layer_of[each] + 1 for each in sources), default=0)
    _pull_sources(layer_of, inputs)
    layers: list[list[_Cell]] = [[] for _ in range(max(layer_of.values(), default=0) + 1)]
    cells: dict[str, _Cell] = {}
    for name in inputs:
        cells[name] = _Cell(name, heights.get(name, HEIGHT), [], [])
        layers[layer_of[name]].append(cells[name])
    chains: dict[tuple[str, str], list[_Cell]] = {}
    for name, sources in inputs.items():
        for source in dict.fromkeys(sources):
            chain = [cells[source]]
            for layer in range(layer_of[source] + 1, layer_of[name]):
                empty = _Cell(None, _EMPTY_HEIGHT, [], [])
                layers[layer].append(empty)
                chain.append(empty)
            chain.append(cells[name])
            for one, other in pairwise(chain):
                one.after.append(other)
                other.before.append(one)
            chains[source, name] = chain
    _order(layers)
    _settle(layers)
    x_of = {
        cell: number * (WIDTH + _LAYER_GAP) for number, layer in enumerate(layers) for cell in layer
    }
    top = min((cell.y for layer in layers for cell in layer), default=0.0)
    bottom = max((cell.y + cell.height for layer in layers for cell in layer), default=0.0)
    return Layout(
        places={name: Place(x_of[cell], cell.y - top) for name, cell in cells.items()},
        edges={ends: tuple(_points(chain, x_of, top)) for ends, chain in chains.items()},
        width=len(layers) * (WIDTH + _LAYER_GAP) - _LAYER_GAP,
        height=bottom - top,
    )


def _pull_sources(layer_of: dict[str, int], inputs: Mapping[str, Sequence[str]]) -> None:
    """Move operators without inputs next to their first reader, so that edges are short."""
    for name, sources in inputs.items():
        readers = [layer_of[each] for each, others in inputs.items() if name in others]
        if not sources and readers:
            layer_of[name] = min(readers) - 1


def _order(layers: list[list[_Cell]]) -> None:
    for _ in range(_SWEEPS):
        for layer in layers[1:]:
            _sort(layer, layers, forwards=True)
        for layer in reversed(layers[:-1]):
            _sort(layer, layers, forwards=False)


def _sort(layer: list[_Cell], layers: list[list[_Cell]], *, forwards: bool) -> None:
    place = {cell: number for each in layers for number, cell in enumerate(each)}

    def middle(cell: _Cell) -> float:
        near = cell.before if forwards else cell.after
        return sum(place[each] for each in near) / len(near) if near else place[cell]

    layer.sort(key=middle)


def _settle(layers: list[list[_Cell]]) -> None:
    """Give each cell a height: near the middle of its neighbours, in order, without overlaps."""
    for layer in layers:
        y = 0.0
        for cell in layer:
            cell.y = y
            y += cell.height + _ROW_GAP
    for number in range(_SETTLES):
        forwards = number % 2 == 0
        for layer in layers if forwards else reversed(layers):
            _place(layer, forwards)


def _place(layer: list[_Cell], forwards: bool) -> None:
    wanted = []
    for cell in layer:
        near = cell.before if forwards else cell.after
        near = near or cell.before or cell.after
        middle = sum(each.middle for each in near) / len(near) if near else cell.middle
        wanted.append(middle - cell.height / 2)
    # Down from the top, then up from the bottom, and the mean of both: each keeps the order.
    down, y = [], float("-inf")
    for cell, at in zip(layer, wanted, strict=True):
        y = max(y, at)
        down.append(y)
        y += cell.height + _ROW_GAP
    up: list[float] = []
    y = float("inf")
    for cell, at in zip(reversed(layer), reversed(wanted), strict=True):
        y = min(y - cell.height - (_ROW_GAP if up else 0), at) if up else at
        up.append(y)
    up.reverse()
    for cell, one, other in zip(layer, down, up, strict=True):
        cell.y = (one + other) / 2


def _points(
    chain: list[_Cell], x_of: Mapping[_Cell, float], top: float
) -> list[tuple[float, float]]:
    first, *between, last = chain
    points = [(x_of[first] + WIDTH, first.middle - top)]
    for each in between:
        y = each.middle - top
        points += [(x_of[each], y), (x_of[each] + WIDTH, y)]
    return [*points, (x_of[last], last.middle - top)]
