"""What a load plan says about the epochs after its checkpoint."""

from __future__ import annotations

from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import RecordedEpoch


def test_the_epochs_with_recorded_input_are_replayed() -> None:
    recorded = RecordedEpoch(inputs={}, sealed=True, committed=True, attempt=1)
    plan = LoadPlan(
        job=JobIdentity("j"),
        generation=Generation(2),
        parallelism=1,
        epoch=Epoch(11),
        recorded={Epoch(each): recorded for each in (13, 12, 14)},
    )
    assert plan.replay_of(Epoch(13)) == (12, 14)
    assert plan.replay_of(Epoch(15)) is None
