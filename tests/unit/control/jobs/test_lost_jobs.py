"""A job that another controller of the service may own: its supervisor lets go of it, or goes on, but
the job does not fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.states import Failed
from resurgence.errors import ErrorDomain, JobLost, Retired, RetryHint, TakenOver
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan

if TYPE_CHECKING:
    from tests.unit.control.conftest import ScriptedWorker, Supervised

JOB = JobName("rides")


async def is_fenced_out(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.fail(
        "generation 1 was fenced out", RetryHint.NO_RETRY, ErrorDomain.USER, TakenOver.code
    )


async def finishes(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.finish()


def shared(*, owned: bool) -> Callable[[JobContext], None]:
    """The job of one of several controllers; `owned`: that one still owns it."""

    def require_owned(is_undisputed: bool) -> None:
        if not is_undisputed and not owned:
            raise JobLost("another controller owns the job")

    def share(ctx: JobContext) -> None:
        ctx.claim.require_owned = require_owned

    return share


def test_a_fenced_out_worker_ends_the_supervision_of_a_lost_job(job: Supervised) -> None:
    entered: list[object] = []

    def watch(ctx: JobContext) -> None:
        shared(owned=False)(ctx)
        ctx.events.listeners.append(lambda event: entered.append(event.get("to")))

    with pytest.raises(JobLost):
        job.run(is_fenced_out, before=watch)
    assert entered[-1] == "Recovering"
    record = job.metadata.job(JOB)
    assert record is not None
    assert record.status.state not in ("Failing", "Failed")


def test_a_job_that_is_still_owned_recovers_from_a_fence(job: Supervised) -> None:
    """A controller that had lost the job claimed it once more before it noticed."""
    run = job.run(is_fenced_out, finishes, before=shared(owned=True))
    assert run.visited[-1] == "Finished"
    assert [each.generation for each in run.workers] == [1, 2]


def test_the_only_controller_of_a_job_that_was_taken_over_fails_it(job: Supervised) -> None:
    assert isinstance(job.run(is_fenced_out).state, Failed)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_fence_in_the_middle_of_a_restore_is_final_only_without_other_controllers(
    job: Supervised, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    plan = StateBackend.prepare_checkpoint_load
    fences = [Retired("generation 1 was fenced out by generation 2")]

    def plan_after_a_fence(self: StateBackend, *facts: object) -> LoadPlan:
        if fences:
            raise fences.pop()
        return plan(self, *facts)  # type: ignore[arg-type]

    monkeypatch.setattr(StateBackend, "prepare_checkpoint_load", plan_after_a_fence)
    share = shared(owned=True)
    run = job.run(finishes, before=share if is_shared else lambda _ctx: None)
    assert run.visited[-1] == ("Finished" if is_shared else "Failed")
