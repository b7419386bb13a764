"""Messages of a worker as events."""

from __future__ import annotations

from resurgence.control.telemetry.worker_events import event_of
from resurgence.engine.epochs.profile import EpochProfile, WorkSeconds
from resurgence.engine.epochs.timeline import Work
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.worker.messages import EpochProfiled, EpochStarted


def test_a_profile_is_an_event_with_the_checkpoint_share_to_the_microsecond() -> None:
    profile = EpochProfile(
        epoch=Epoch(3),
        seconds=0.3000000004,
        work=(WorkSeconds(work=Work.STORAGE, driver=0.1), WorkSeconds(work=Work.PLANNING)),
    )
    message = EpochProfiled(worker=WorkerId("w"), generation=Generation(1), profile=profile)
    found = event_of(message)
    assert found is not None
    kind, facts = found
    assert kind == "profile"
    assert facts["epoch"] == 3
    assert (facts["seconds"], facts["checkpoint_share"]) == (0.3, 0.333333)
    assert isinstance(facts["work"], list)
    assert facts["work"][0] == {
        "work": "storage",
        "operator": None,
        "driver": 0.1,
        "submission": 0.0,
        "scheduling": 0.0,
        "tasks": 0.0,
    }


def test_the_start_of_an_epoch_is_an_event_only_if_it_is_replayed() -> None:
    message = EpochStarted(worker=WorkerId("w"), generation=Generation(2), epoch=Epoch(13), rows=40)
    assert event_of(message) is None
    replayed = message.model_copy(update={"replay": (Epoch(12), Epoch(18))})
    facts = {"epoch": 13, "first": 12, "last": 18, "rows": 40}
    assert event_of(replayed) == ("replay_started", facts)
