"""Markers: what a job has committed to Kafka, as records in a compacted topic. Pure.

A marker belongs to one lane of one sink of one job. It is produced in the same transaction as a
part, so it is visible if and only if the part is. It names the epoch, the number of the part in
its lane, and the input that the epoch covers.

The newest marker of a lane is enough, which is what a compacted topic retains:

- The parts of a lane are committed in order, one transaction each. So part n of epoch E stands for
  the parts 0 to n of E.
- Epoch E+1 is begun only after every lane has committed all its parts of E, or after E was rolled
  back. So a marker of a later epoch means that E is over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from resurgence.connectors.contract import CoveredInput, require_same_input
from resurgence.errors import SinkConflict, SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity


class LaneKey(BaseModel):
    """The key of a marker."""

    model_config = ConfigDict(frozen=True)

    job: JobIdentity
    sink: str
    lane: int

    def encoded(self) -> bytes:
        return json.dumps([self.job, self.sink, self.lane]).encode()

    @classmethod
    def decoded(cls, data: bytes | None) -> LaneKey | None:
        """Return the key of a record; None if it is none of ours."""
        try:
            job, sink, lane = json.loads(data or b"null")
            return cls(job=job, sink=sink, lane=lane)
        except (ValueError, TypeError):
            return None


class Marker(BaseModel):
    """The newest commit of a lane."""

    model_config = ConfigDict(frozen=True)

    version: int = 1
    epoch: Epoch
    part: int = -1
    """The parts up to this one are committed."""
    is_closed: bool = False
    """The epoch and all before it are over: it was rolled back."""
    input: CoveredInput | None = None

    def encoded(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def decoded(cls, data: bytes | None, topic: str) -> Marker:
        try:
            return cls.model_validate_json(data or b"")
        except ValidationError as error:
            raise SinkError(
                f"a marker in topic '{topic}' is damaged",
                hint="Choose another 'sink.marker_topic' for new jobs. Only this program may write"
                " to this one.",
            ) from error


class MarkerView(BaseModel):
    """The newest marker of each lane of a sink, up to an offset of the topic."""

    model_config = ConfigDict(frozen=True)

    next_offset: int = 0
    """Every marker before this offset is included."""
    lanes: dict[int, Marker] = {}

    @property
    def newest(self) -> Epoch:
        return max((each.epoch for each in self.lanes.values()), default=NO_EPOCH)

    @property
    def inputs(self) -> dict[Epoch, CoveredInput]:
        """The input of each epoch that a marker names."""
        return {each.epoch: each.input for each in self.lanes.values() if each.input is not None}

    def committed_parts(self, lane: int, epoch: Epoch) -> int:
        """Return how many parts of an epoch a lane has committed."""
        marker = self.lanes.get(lane)
        return marker.part + 1 if marker is not None and marker.epoch == epoch else 0

    def with_marker(self, lane: int, marker: Marker) -> MarkerView:
        """Return the view with a newer marker of a lane."""
        return self.model_copy(update={"lanes": self.lanes | {lane: marker}})

    def conflict(self, place: str, epoch: Epoch, covered: CoveredInput) -> SinkConflict | None:
        """Return why an epoch must not be committed: it is over, or was begun over other input."""
        for marker in self.lanes.values():
            if marker.epoch > epoch or (marker.epoch == epoch and marker.is_closed):
                return SinkConflict(
                    f"{place} holds epoch {marker.epoch}, which is not before epoch {epoch}, the"
                    " epoch to commit",
                    hint="Check whether another copy of this state dir is running. Restore the"
                    " newest copy, or start over with another --name.",
                )
            if marker.epoch == epoch:
                try:
                    require_same_input(place, epoch, marker.input, covered)
                except SinkConflict as error:
                    return error
        return None


def merged(views: Iterable[MarkerView]) -> MarkerView:
    """Return the view that has read furthest, which includes the others."""
    return max(views, key=lambda each: each.next_offset, default=MarkerView())
