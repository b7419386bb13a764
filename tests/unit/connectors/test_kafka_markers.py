"""Markers of a Kafka sink: which parts are committed, and which epochs must not be."""

from __future__ import annotations

import pytest

from resurgence.connectors.contract import CoveredInput, SourceSpan
from resurgence.connectors.kafka.writing.markers import LaneKey, Marker, MarkerView, merged
from resurgence.errors import SinkError
from resurgence.ids import Epoch, JobIdentity, OperatorId


def covering(rows: int) -> CoveredInput:
    span = SourceSpan(start={"line": 0}, end={"line": rows})
    return CoveredInput(sources={OperatorId("source-in"): span})


def view(**changes: object) -> MarkerView:
    marker = Marker(epoch=Epoch(5), part=1, input=covering(10))
    return MarkerView(next_offset=9, lanes={0: marker.model_copy(update=changes)})


def test_a_marker_stands_for_all_parts_up_to_its_own() -> None:
    assert view().committed_parts(0, Epoch(5)) == 2
    assert view().committed_parts(1, Epoch(5)) == 0
    assert view().committed_parts(0, Epoch(6)) == 0
    assert view(part=-1, is_closed=True).committed_parts(0, Epoch(6)) == 0


@pytest.mark.parametrize(
    ("epoch", "rows", "changes", "is_refused"),
    [
        (5, 10, {}, False),
        (6, 20, {}, False),
        (5, 11, {}, True),
        (4, 10, {}, True),
        (5, 10, {"is_closed": True, "input": None}, True),
        (6, 10, {"is_closed": True, "input": None}, False),
    ],
)
def test_an_epoch_that_is_over_or_covers_other_input_is_a_conflict(
    epoch: int, rows: int, changes: dict[str, object], is_refused: bool
) -> None:
    conflict = view(**changes).conflict("topic 'out'", Epoch(epoch), covering(rows))
    assert (conflict is not None) == is_refused


def test_markers_are_read_as_they_were_written() -> None:
    key = LaneKey(job=JobIdentity("a1b2c3d4e5f6"), sink="näme", lane=3)
    assert LaneKey.decoded(key.encoded()) == key
    marker = Marker(epoch=Epoch(5), part=1, input=covering(10))
    assert Marker.decoded(marker.encoded(), "markers") == marker
    whole = view()
    assert MarkerView.model_validate_json(whole.model_dump_json()) == whole


def test_records_of_others_are_skipped_and_damaged_markers_are_not() -> None:
    for data in (None, b"", b"key", b"[1]", b'{"a": 1}'):
        assert LaneKey.decoded(data) is None
    with pytest.raises(SinkError, match="a marker in topic 'markers' is damaged"):
        Marker.decoded(b"{}", "markers")


def test_of_several_views_the_one_that_has_read_furthest_is_kept() -> None:
    assert merged([MarkerView(next_offset=3), view(), MarkerView(next_offset=8)]) == view()
    assert merged([]) == MarkerView()
