"""The layout of dataflow graphs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurgence.ui.views.graph_layout import HEIGHT, WIDTH, Layout, laid_out


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Operators in topological order with their inputs."""
    found: dict[str, list[str]] = {}
    for number in range(draw(st.integers(0, 60))):
        known = [*found]
        some = st.lists(st.sampled_from(known), max_size=3, unique=True) if known else st.just([])
        found[f"o{number}"] = draw(some)
    return found


def overlaps(layout: Layout) -> bool:
    return any(
        abs(one.x - other.x) < WIDTH and abs(one.y - other.y) < HEIGHT - 0.01
        for one, other in combinations(layout.places.values(), 2)
    )


@given(graphs())
def test_operators_never_overlap_and_are_behind_their_inputs(graph: dict[str, list[str]]) -> None:
    layout = laid_out(graph)
    assert layout.places.keys() == graph.keys()
    assert not overlaps(layout)
    for name, inputs in graph.items():
        place = layout.places[name]
        assert 0 <= place.y <= layout.height - HEIGHT + 0.01
        assert 0 <= place.x <= layout.width - WIDTH + 0.01
        for each in inputs:
            assert layout.places[each].x + WIDTH < place.x


@given(graphs())
def test_edges_connect_the_sides_of_their_operators(graph: dict[str, list[str]]) -> None:
    layout = laid_out(graph)
    for (source, target), points in layout.edges.items():
        start, end = layout.places[source], layout.places[target]
        assert points[0] == pytest.approx((start.x + WIDTH, start.y + HEIGHT / 2))
        assert points[-1] == pytest.approx((end.x, end.y + HEIGHT / 2))


def test_a_chain_is_a_straight_line() -> None:
    layout = laid_out({"a": [], "b": ["a"], "c": ["b"]})
    assert {each.y for each in layout.places.values()} == {0.0}
    assert layout.height == HEIGHT


def test_a_source_stands_next_to_its_reader() -> None:
    layout = laid_out({"a": [], "b": ["a"], "late": [], "c": ["b", "late"]})
    assert layout.places["late"].x == layout.places["b"].x


@st.composite
def graphs_of_any_height(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, float]]:
    graph = draw(graphs())
    some = st.sampled_from([44.0, 58.0, 72.0, 104.0, 122.0])
    return graph, {name: draw(some) for name in graph}


@given(graphs_of_any_height())
def test_operators_of_different_heights_never_overlap(
    given_graph: tuple[dict[str, list[str]], dict[str, float]],
) -> None:
    graph, heights = given_graph
    places = laid_out(graph, heights).places
    for one, other in combinations(graph, 2):
        (upper, name), (lower, _) = sorted(
            ((places[each], each) for each in (one, other)), key=lambda each: each[0].y
        )
        assert abs(upper.x - lower.x) >= WIDTH or lower.y >= upper.y + heights[name] - 0.01
