"""The supervisor and the real states; workers are simulated over the real control channel."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from resurgence.control.detection.failure import Failure, FailureKind
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import StopMode, rescaled, restarted
from resurgence.control.jobs.states import Failed, Recovering
from resurgence.control.jobs.transitions import StateName
from resurgence.errors import ConfigError, ErrorDomain, ResurgenceError, RetryHint, SqlError
from resurgence.graph.model import Graph
from resurgence.ids import JobName

if TYPE_CHECKING:
    from tests.unit.control.conftest import Script, ScriptedWorker, Supervised

START_UP = ["Compiling", "Scheduling", "Running"]
RECOVERY = ["Recovering", *START_UP]
END = ["Finishing", "Finished"]
LONG_AGO = 10_000.0
JOB = JobName("rides")


async def finishes(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.finish()


async def stops_on_request(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.beat_until_stopped()


async def ignores_orders(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.beat_for_ever()


async def dies_before_it_connects(_worker: ScriptedWorker) -> int:
    return -9


async def dies_in_its_restore(worker: ScriptedWorker) -> int:
    await worker.connect()
    return -9


async def dies_while_running(worker: ScriptedWorker) -> int:
    await worker.restore()
    await worker.run_epoch(worker.first_epoch)
    return -9


async def dies_on_stop_request(worker: ScriptedWorker) -> int:
    await worker.restore()
    while not worker.stop_asked.is_set():
        await worker.beat()
        await asyncio.sleep(0.02)
    return -9


async def never_connects(_worker: ScriptedWorker) -> int:
    await asyncio.Event().wait()
    return 0


async def falls_silent(worker: ScriptedWorker) -> int:
    await worker.restore()
    await asyncio.Event().wait()
    return 0


async def falls_silent_in_its_restore(worker: ScriptedWorker) -> int:
    await worker.connect()
    await worker.beat("restore")
    await asyncio.Event().wait()
    return 0


async def hangs(worker: ScriptedWorker) -> int:
    await worker.restore()
    await worker.beat("execute", LONG_AGO)
    await asyncio.Event().wait()
    return 0


async def fails_once(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.fail("out of memory", RetryHint.WITH_BACKOFF, ErrorDomain.INTERNAL)


async def fails_for_good(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.fail("line 3 is not JSON", RetryHint.NO_RETRY, ErrorDomain.USER)


# ---------------------------------------------------------------- the happy path


def test_a_job_goes_from_created_to_finished(job: Supervised) -> None:
    run = job.run(finishes)
    assert run.visited == [*START_UP, *END]
    assert run.of("state")[0]["from"] == "Created"
    assert [each["epoch"] for each in run.of("committed")] == [1]
    assert run.of("incident") == run.of("failure") == []


def test_the_worker_gets_graph_plan_and_settings(job: Supervised) -> None:
    job.settings["pipeline.epoch_timeout"] = "20m"
    (worker,) = job.run(finishes).workers
    assert worker.start is not None
    assert worker.start.plan.generation == worker.generation == 1
    assert worker.start.plan.parallelism == 2
    assert [each.table for each in worker.start.graph.sources()] == ["ticks"]
    assert worker.start.settings.pipeline.epoch_timeout == timedelta(minutes=20)


def test_the_final_state_is_stored_in_the_database(job: Supervised) -> None:
    job.run(finishes)
    record = job.metadata.job(JOB)
    assert record is not None
    assert (record.status.state, record.status.generation) == ("Finished", 1)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("script", "kind", "running_first"),
    [
        (dies_before_it_connects, "worker_exited", False),
        (dies_in_its_restore, "worker_exited", False),
        (falls_silent_in_its_restore, "start_failed", False),
        (dies_while_running, "worker_exited", True),
        (falls_silent, "worker_timedout", True),
        (hangs, "progress_stalled", True),
        (fails_once, "task_failed", True),
    ],
)
def test_a_failed_worker_is_replaced_and_the_job_continues(
    job: Supervised, script: Script, kind: str, running_first: bool
) -> None:
    run = job.run(script, finishes)
    before = START_UP if running_first else START_UP[:-1]
    assert run.visited == [*before, *RECOVERY, *END]
    assert [each["kind"] for each in run.of("failure")] == [kind]
    assert [each["generation"] for each in run.of("worker_started")] == [1, 2]


def test_an_incident_has_its_phases_and_ends_with_the_first_commit(job: Supervised) -> None:
    run = job.run(dies_while_running, finishes)
    (incident,) = run.of("incident")
    phases = incident["phases"]
    assert isinstance(phases, dict)
    assert list(phases) == [
        "detect",
        "tear_down",
        "backoff",
        "plan",
        "schedule",
        "restore",
        "resume",
    ]
    assert incident["attempts"] == 1
    assert incident["restored_epoch"] == 0
    assert incident["resumed_at"] is not None
    kinds = [each["event"] for each in run.events]
    first_commit = kinds.index("committed", kinds.index("failure"))
    assert kinds.index("incident") == first_commit + 1


def test_failures_during_recovery_belong_to_the_same_incident(job: Supervised) -> None:
    run = job.run(dies_while_running, dies_before_it_connects, finishes)
    (incident,) = run.of("incident")
    assert incident["attempts"] == 2
    assert len(run.of("failure")) == 2


def test_a_silent_worker_is_detected_at_the_heartbeat_timeout(job: Supervised) -> None:
    run = job.run(falls_silent, finishes)
    assert timedelta(milliseconds=300) <= run.took < timedelta(seconds=10)


def test_a_worker_that_falls_silent_while_it_starts_is_not_waited_for(job: Supervised) -> None:
    job.settings["pipeline.start_timeout"] = "1h"
    run = job.run(falls_silent_in_its_restore, finishes)
    (failure,) = run.of("failure")
    assert "no heartbeat from the starting worker" in str(failure["error"])


def test_a_worker_that_does_not_start_in_time_is_replaced(job: Supervised) -> None:
    job.settings["pipeline.start_timeout"] = "300ms"
    run = job.run(never_connects, finishes)
    assert run.visited == [*START_UP[:-1], *RECOVERY, *END]
    (failure,) = run.of("failure")
    assert failure["kind"] == "start_failed"


def test_a_failure_that_no_retry_can_fix_fails_the_job(job: Supervised) -> None:
    run = job.run(fails_for_good)
    assert run.visited == [*START_UP, "Recovering", "Failing", "Failed"]
    assert isinstance(run.state, Failed)
    failure = run.state.failure
    assert (failure.reason, failure.hint, failure.subtask) == ("line 3 is not JSON", "fix it", 1)
    (event,) = run.of("failure")
    assert (event["domain"], event["operator_id"]) == ("user", "source-1")


def test_identical_failures_without_progress_escalate_within_three_tries(job: Supervised) -> None:
    run = job.run(fails_once)
    assert run.visited[-2:] == ["Failing", "Failed"]
    assert len(run.workers) == 3
    assert isinstance(run.state, Failed)
    assert "the same failure occurred 3 times" in run.state.reason


@pytest.mark.parametrize("dies", [dies_before_it_connects, dies_in_its_restore])
def test_repeated_kills_while_starting_are_no_crash_loop(job: Supervised, dies: Script) -> None:
    run = job.run(*[dies] * 8, finishes)
    assert run.visited[-1] == "Finished"
    assert [each["kind"] for each in run.of("failure")] == ["worker_exited"] * 8


def test_a_worker_that_crashes_by_itself_while_starting_is_a_crash_loop(job: Supervised) -> None:
    async def crashes(_worker: ScriptedWorker) -> int:
        return -signal.SIGSEGV

    run = job.run(crashes)
    assert isinstance(run.state, Failed)
    assert len(run.workers) == 3


def test_a_rescale_resets_the_restart_budget(job: Supervised) -> None:
    def rescale_once(ctx: JobContext) -> None:
        seen.append(ctx.history.restarts)
        if len(seen) == 1:
            rescale(ctx)

    seen: list[int] = []
    job.on_entering[StateName.RUNNING] = rescale_once
    run = job.run(dies_before_it_connects, stops_on_request, finishes)
    assert run.visited[-1] == "Finished"
    assert seen == [1, 0]


def test_the_restart_budget_is_enforced(job: Supervised) -> None:
    job.settings["pipeline.allowed_restarts"] = "1"
    run = job.run(dies_while_running, dies_in_its_restore)
    assert isinstance(run.state, Failed)
    assert len(run.workers) == 2


def test_sql_that_does_not_compile_fails_the_job_at_its_place(job: Supervised) -> None:
    def refuse(_sql: str) -> Graph:
        raise SqlError("no such table", line=3, column=7)

    job.compiler = refuse
    run = job.run(finishes)
    assert run.visited == ["Compiling", "Failing", "Failed"]
    assert isinstance(run.state, Failed)
    assert (run.state.failure.line, run.state.failure.column) == (3, 7)


def test_a_defect_in_a_state_is_recovered_from_and_then_fails_the_job(job: Supervised) -> None:
    def is_broken(_sql: str) -> Graph:
        raise ZeroDivisionError("oops")

    job.compiler = is_broken
    job.settings["pipeline.allowed_restarts"] = "0"
    run = job.run(finishes)
    assert run.visited == ["Compiling", "Recovering", "Failing", "Failed"]
    assert isinstance(run.state, Failed)
    assert "ZeroDivisionError: oops" in run.state.reason


def storage_is_away(job: Supervised, listings: int) -> Callable[[JobContext], None]:
    def begin(_ctx: JobContext) -> None:
        job.on_entering.pop(StateName.RECOVERING, None)
        job.store.outage = listings

    return begin


def test_recovery_waits_for_unavailable_storage(job: Supervised) -> None:
    job.on_entering[StateName.RECOVERING] = storage_is_away(job, 5)
    run = job.run(dies_while_running, finishes)
    assert run.visited == [*START_UP, *["Recovering"] * 5, *RECOVERY, *END]
    (incident,) = run.of("incident")
    assert incident["attempts"] == 6


def test_permanently_unavailable_storage_uses_up_the_restart_budget(job: Supervised) -> None:
    job.settings["pipeline.allowed_restarts"] = "4"
    job.on_entering[StateName.RECOVERING] = storage_is_away(job, 1_000)
    run = job.run(dies_while_running, finishes)
    assert isinstance(run.state, Failed)
    assert "all 4 restarts are used up" in run.state.reason
    assert run.state.failure.domain is ErrorDomain.EXTERNAL


def test_a_short_outage_at_the_start_is_retried(job: Supervised) -> None:
    job.store.outage = 1
    assert job.run(finishes).visited == [*START_UP, *END]


def test_a_broken_database_neither_stops_nor_delays_the_job(job: Supervised) -> None:
    with closing(sqlite3.connect(job.folder / "metadata.db")) as connection:
        connection.execute("DROP TABLE statuses")
    run = job.run(dies_while_running, finishes)
    assert run.visited == [*START_UP, *RECOVERY, *END]
    assert run.took < timedelta(seconds=10)


# ---------------------------------------------------------------- stops


def stop(mode: StopMode) -> Callable[[JobContext], None]:
    return lambda ctx: ctx.requests.request_stop(mode)


def rescale(ctx: JobContext) -> None:
    ctx.requests.set_desired(rescaled(ctx.requests.desired, 3))


def restart(ctx: JobContext) -> None:
    ctx.requests.set_desired(restarted(ctx.requests.desired, force=False, without_state=False))


@pytest.mark.parametrize("mode", list(StopMode))
@pytest.mark.parametrize(
    ("state", "script", "wish"),
    [
        (StateName.CREATED, stops_on_request, None),
        (StateName.COMPILING, stops_on_request, None),
        (StateName.SCHEDULING, stops_on_request, None),
        (StateName.RUNNING, stops_on_request, None),
        (StateName.RECOVERING, dies_while_running, None),
        (StateName.RESCALING, stops_on_request, rescale),
        (StateName.RESTARTING, stops_on_request, restart),
        (StateName.CHECKPOINT_STOPPING, stops_on_request, stop(StopMode.CHECKPOINT)),
        (StateName.STOPPING, stops_on_request, stop(StopMode.FORCE)),
    ],
)
def test_a_stop_request_in_any_state_ends_in_stopped(
    job: Supervised,
    state: StateName,
    script: Script,
    wish: Callable[[JobContext], None] | None,
    mode: StopMode,
) -> None:
    if wish is not None:
        job.on_entering[StateName.RUNNING] = wish
    if state is StateName.CREATED:
        run = job.run(script, before=stop(mode))
    else:
        job.on_entering[state] = stop(mode)
        run = job.run(script)
        assert str(state) in run.visited
    assert run.visited[-1] == "Stopped"
    assert len(run.workers) <= 1


def test_a_stop_with_a_checkpoint_lets_the_worker_finish_its_epoch(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.CHECKPOINT)
    run = job.run(stops_on_request)
    assert run.visited == [*START_UP, "CheckpointStopping", "Stopping", "Stopped"]
    assert run.workers[0].stop_asked.is_set()


def test_a_forced_stop_does_not_wait_for_the_worker(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.FORCE)
    run = job.run(ignores_orders)
    assert run.visited == [*START_UP, "Stopping", "Stopped"]
    assert run.took < timedelta(seconds=10)


def test_a_forced_stop_overrides_one_with_a_checkpoint(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.CHECKPOINT)
    job.on_entering[StateName.CHECKPOINT_STOPPING] = stop(StopMode.FORCE)
    run = job.run(ignores_orders)
    assert run.visited == [*START_UP, "CheckpointStopping", "Stopping", "Stopped"]
    assert run.took < timedelta(seconds=10)


def test_a_stop_that_the_worker_does_not_obey_escalates_at_its_deadline(job: Supervised) -> None:
    job.settings["pipeline.stop_timeout"] = "300ms"
    job.on_entering[StateName.RUNNING] = stop(StopMode.CHECKPOINT)
    run = job.run(ignores_orders)
    assert run.visited == [*START_UP, "CheckpointStopping", "Stopping", "Stopped"]
    assert run.took < timedelta(seconds=10)


def test_a_worker_that_dies_while_stopping_does_not_delay_the_stop(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.CHECKPOINT)
    run = job.run(dies_on_stop_request)
    assert run.visited == [*START_UP, "CheckpointStopping", "Stopping", "Stopped"]
    assert [each["kind"] for each in run.of("failure")] == ["worker_exited"]


def test_a_stop_while_finishing_still_finishes(job: Supervised) -> None:
    job.on_entering[StateName.FINISHING] = stop(StopMode.FORCE)
    assert job.run(finishes).visited == [*START_UP, *END]


def test_a_stop_while_failing_still_fails(job: Supervised) -> None:
    job.on_entering[StateName.FAILING] = stop(StopMode.FORCE)
    assert job.run(fails_for_good).visited[-1] == "Failed"


def test_a_stop_completes_while_storage_is_unavailable(job: Supervised) -> None:
    job.store.outage = 1_000
    job.on_entering[StateName.RECOVERING] = stop(StopMode.CHECKPOINT)
    run = job.run(finishes)
    assert run.visited == ["Recovering", "Stopping", "Stopped"]


@pytest.mark.parametrize("failures", [1, 2])
def test_a_failed_tear_down_is_retried(job: Supervised, failures: int) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.FORCE)
    job.refusals += [ResurgenceError("it will not go")] * failures
    assert job.run(ignores_orders).visited == [*START_UP, "Stopping", "Stopped"]


def test_a_failed_stop_fails_the_job_with_its_reason(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = stop(StopMode.FORCE)
    job.refusals += [ResurgenceError("it will not go")] * 3
    run = job.run(ignores_orders)
    assert run.visited == [*START_UP, "Stopping", "Failing", "Failed"]
    assert isinstance(run.state, Failed)
    assert run.state.reason == "it will not go"


def test_a_failing_job_ends_as_failed_whatever_goes_wrong_there(job: Supervised) -> None:
    job.refusals += [ConfigError("no permission")] * 3
    run = job.run(fails_for_good)
    assert run.visited[-2:] == ["Failing", "Failed"]
    assert isinstance(run.state, Failed)
    assert run.state.failure.reason == "line 3 is not JSON"


@pytest.mark.parametrize("backoff", ["20ms", "60s", "1h"])
def test_the_longest_backoff_is_no_reason_for_recovery_to_miss_its_deadline(
    job: Supervised, backoff: str
) -> None:
    job.settings["pipeline.maximal_backoff"] = backoff
    deadlines = []

    def look(ctx: JobContext) -> None:
        failure = Failure(FailureKind.TASK_FAILED, "x", ErrorDomain.USER, RetryHint.NO_RETRY)
        longest = ctx.definition.settings.pipeline.maximal_backoff * 1.25
        deadlines.append((Recovering(failure).deadline(ctx), longest))

    job.run(finishes, before=look)
    ((deadline, longest),) = deadlines
    assert deadline is not None
    assert deadline >= longest + timedelta(seconds=10)


# ---------------------------------------------------------------- rescale and restart


def test_rescaling_takes_a_checkpoint_before_it_changes_the_parallelism(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = rescale
    run = job.run(stops_on_request, finishes)
    assert run.visited == [*START_UP, "Rescaling", *START_UP, *END]
    plans = [each.start.plan for each in run.workers if each.start is not None]
    assert [each.parallelism for each in plans] == [2, 3]


def test_restarting_happens_once(job: Supervised) -> None:
    job.on_entering[StateName.RUNNING] = lambda ctx: (
        restart(ctx) if ctx.model.generation == 1 else None
    )
    run = job.run(stops_on_request, finishes)
    assert run.visited == [*START_UP, "Restarting", *START_UP, *END]


@pytest.mark.parametrize("wish", [rescale, restart])
def test_a_final_checkpoint_that_fails_during_a_planned_restart_is_recovered_from(
    job: Supervised, wish: Callable[[JobContext], None]
) -> None:
    def once(ctx: JobContext) -> None:
        job.on_entering.clear()
        wish(ctx)

    job.on_entering[StateName.RUNNING] = once
    run = job.run(dies_on_stop_request, finishes)
    assert run.visited[3] in ("Rescaling", "Restarting")
    assert run.visited[4:] == [*RECOVERY, *END]
