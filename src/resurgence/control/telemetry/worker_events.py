"""Translates the messages of a worker to events; pure."""

from __future__ import annotations

from pydantic import JsonValue

from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.spark.executors import Executor
from resurgence.worker.messages import (
    CheckpointDamaged,
    EpochCommitted,
    EpochProfiled,
    EpochSealed,
    EpochStarted,
    ExecutorAdded,
    ExecutorLostEvent,
    FromWorker,
    StateRestored,
)


def event_of(message: FromWorker) -> tuple[str, dict[str, JsonValue]] | None:
    """Return the kind and the facts of the event for a message; None if it is not an event."""
    match message:
        case EpochStarted() if message.replay is not None:
            first, last = message.replay
            return "replay_started", {
                "epoch": message.epoch,
                "first": first,
                "last": last,
                "rows": message.rows,
            }
        case EpochSealed():
            return "checkpoint", {
                "epoch": message.epoch,
                "rows": message.rows,
                "bytes": message.bytes,
                "duration": round(message.seconds, 3),
                "watermark": message.watermark,
                "state_bytes": message.state_bytes,
                "cache_hits": message.cache_hits,
                "cache_misses": message.cache_misses,
                "late": sum(message.counts.late_rows.values()),
                "partly_late": sum(message.counts.partly_late_rows.values()),
                "bad": sum(message.counts.bad_rows.values()),
                "dead": sum(message.counts.dead_rows.values()),
                "skipped": sum(message.counts.skipped_rows.values()),
                "rows_out": sum(message.counts.rows_out.values()),
            }
        case EpochCommitted():
            committed: dict[str, JsonValue] = {
                "epoch": message.epoch,
                "phases": {kind: round(each, 3) for kind, each in message.phases.items()},
                "operators": {name: round(each, 3) for name, each in message.operators.items()},
            }
            if message.lag is not None:
                committed["lag"] = message.lag.model_dump(mode="json")
            return "committed", committed
        case EpochProfiled():
            return "profile", _profile_facts(message.profile)
        case StateRestored() if message.committed_pending:
            return "committed", {"epoch": message.epoch}
        case ExecutorAdded():
            return "executor_added", _executor_facts(message.executor)
        case ExecutorLostEvent():
            lost: dict[str, JsonValue] = {"epoch": message.epoch}
            return "executor_lost", _executor_facts(message.executor) | lost
        case CheckpointDamaged():
            facts: dict[str, JsonValue] = {"epoch": message.epoch}
            return "checkpoint_damaged", facts | {"reasons": list(message.reasons)}
        case _:
            return None


def _profile_facts(profile: EpochProfile) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        "epoch": profile.epoch,
        "seconds": profile.seconds,
        "checkpoint_share": profile.checkpoint_share,
        "work": [each.model_dump(mode="json") for each in profile.work],
        "jobs": [each.model_dump(mode="json") for each in profile.jobs],
    }
    return {name: _to_the_microsecond(value) for name, value in facts.items()}


def _to_the_microsecond(value: JsonValue) -> JsonValue:
    """Round what is measured, so that the lines stay readable."""
    match value:
        case float():
            return round(value, 6)
        case list():
            return [_to_the_microsecond(each) for each in value]
        case dict():
            return {name: _to_the_microsecond(each) for name, each in value.items()}
        case _:
            return value


def _executor_facts(executor: Executor) -> dict[str, JsonValue]:
    facts: dict[str, JsonValue] = {
        "executor": executor.id,
        "host": executor.host,
        "cores": executor.cores,
    }
    if executor.reason:
        facts["reason"] = executor.reason
    return facts
