"""Translates the messages of a worker to events; pure."""

from __future__ import annotations

from pydantic import JsonValue

from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochSealed,
    FromWorker,
    StateRestored,
)


def event_of(message: FromWorker) -> tuple[str, dict[str, JsonValue]] | None:
    """Return the kind and the facts of the event for a message; None if it is not an event."""
    match message:
        case EpochSealed():
            return "checkpoint", {
                "epoch": message.epoch,
                "rows": message.rows,
                "bytes": message.bytes,
                "duration": round(message.seconds, 3),
                "watermark": message.watermark,
                "state_bytes": message.state_bytes,
                "late": sum(message.counts.late_rows.values()),
                "partly_late": sum(message.counts.partly_late_rows.values()),
                "bad": sum(message.counts.bad_rows.values()),
                "rows_out": sum(message.counts.rows_out.values()),
            }
        case EpochCommitted():
            return "committed", {"epoch": message.epoch}
        case StateRestored() if message.committed_pending:
            return "committed", {"epoch": message.epoch}
        case CheckpointDamaged():
            facts: dict[str, JsonValue] = {"epoch": message.epoch}
            return "checkpoint_damaged", facts | {"reasons": list(message.reasons)}
        case _:
            return None
