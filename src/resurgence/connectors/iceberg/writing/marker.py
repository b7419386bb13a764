"""What a table records of a sink's commits: the newest epoch, in a table property. Pure.

Each commit of a sink sets the property together with its snapshot, so it is there exactly if the
rows are. Unlike the history of snapshots, properties never expire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from resurgence.connectors.contract import CoveredInput
from resurgence.errors import SinkError
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity

JOB, SINK, EPOCH = "resurgence.job", "resurgence.sink", "resurgence.epoch"
"""Properties of each snapshot of a sink."""


@dataclass(frozen=True)
class Marker:
    """The newest epoch that a sink has committed to a table, or retracted from it."""

    epoch: Epoch = NO_EPOCH
    covered: CoveredInput | None = None
    """The input that the epoch covers; None if it was retracted."""
    retracted_after: Epoch | None = None
    """Set if the epochs after this one, up to `epoch`, were retracted."""

    @property
    def rank(self) -> tuple[int, int]:
        """A retraction ranks after the epoch itself, and the one that reaches back further last."""
        is_retraction = self.retracted_after is not None
        return self.epoch, self.epoch - (self.retracted_after or 0) if is_retraction else 0


@dataclass(frozen=True)
class Writer:
    """All that a job writes to a table by the INSERTs into one of its sink tables."""

    job: JobIdentity
    sink: str

    @property
    def property_name(self) -> str:
        return f"resurgence.{self.job}.{self.sink}"

    def read(self, properties: Mapping[str, str]) -> Marker:
        """Return the marker in the properties of a table."""
        text = properties.get(self.property_name)
        if text is None:
            return Marker()
        try:
            content = json.loads(text)
            held = content.get("input")
            covered = None if held is None else CoveredInput.model_validate(held)
            after = content.get("retracted_after")
            return Marker(
                Epoch(int(content["epoch"])), covered, None if after is None else Epoch(int(after))
            )
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise SinkError(
                f"the table property '{self.property_name}' is damaged",
                hint="Restore it from an older metadata file of the table. It was edited by hand.",
            ) from error

    def properties(self, marker: Marker) -> dict[str, str]:
        """Return the table property that records a marker."""
        content: dict[str, JsonValue] = {"epoch": marker.epoch}
        if marker.covered is not None:
            content["input"] = marker.covered.model_dump(mode="json")
        if marker.retracted_after is not None:
            content["retracted_after"] = marker.retracted_after
        return {self.property_name: json.dumps(content)}

    def snapshot_properties(self, epoch: Epoch) -> dict[str, str]:
        """Return what the snapshot of an epoch says of its origin."""
        return {JOB: self.job, SINK: self.sink, EPOCH: str(epoch)}

    def epoch_of(self, summary: Mapping[str, str]) -> Epoch | None:
        """Return the epoch of a snapshot, by its properties; None if it is another's."""
        if (summary.get(JOB), summary.get(SINK)) != (self.job, self.sink):
            return None
        text = summary.get(EPOCH, "")
        return Epoch(int(text)) if text.isdecimal() else None
