"""A job whose connectors need jars: it gets them before its worker starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from resurgence.connectors import registry
from resurgence.connectors.impulse import IMPULSE
from resurgence.control.jobs import context
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.states import Failed, Scheduling
from resurgence.engine.spark.connector_jars import INSTALL_WITHIN
from resurgence.errors import JarsUnavailable

if TYPE_CHECKING:
    from tests.unit.control.conftest import ScriptedWorker, Supervised

START_UP = ["Compiling", "Scheduling", "Running"]
Provide = Callable[[tuple[str, ...], str, Callable[[str], None]], tuple[Path, ...]]


@pytest.fixture(autouse=True)
def needs_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert IMPULSE.source is not None
    source = replace(IMPULSE.source, jars=("avro",))
    installed = {**registry.INSTALLED, "impulse": replace(IMPULSE, source=source)}
    monkeypatch.setattr(registry, "INSTALLED", installed)
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path / "cache"))


async def finishes(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.finish()


async def stops_on_request(worker: ScriptedWorker) -> int:
    await worker.restore()
    return await worker.beat_until_stopped()


def provides(monkeypatch: pytest.MonkeyPatch, provide: Provide) -> None:
    monkeypatch.setattr(context, "provide", provide)


def test_the_worker_is_started_with_the_jars_of_the_directory(
    job: Supervised, tmp_path: Path
) -> None:
    jar = tmp_path / "spark-avro_2.13-4.0.0.jar"
    jar.touch()
    job.settings |= {"connectors.jars": str(tmp_path), "spark.jars": "/mine.jar"}
    run = job.run(finishes)
    assert run.visited == [*START_UP, "Finishing", "Finished"]
    assert run.workers[0]._order.spark == {"spark.jars": f"/mine.jar,{jar}"}
    assert run.of("jars") == []


def test_a_directory_without_the_jar_fails_the_job_before_a_worker_starts(
    job: Supervised, tmp_path: Path
) -> None:
    job.settings["connectors.jars"] = str(tmp_path)
    run = job.run(finishes)
    assert run.visited == ["Compiling", "Scheduling", "Failing", "Failed"]
    assert run.workers == []
    (failure,) = run.of("failure")
    assert "spark-avro_2.13 is not in" in str(failure["error"])
    assert "resurgence connectors install avro" in str(failure["hint"])


def test_progress_of_a_download_is_reported(
    job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provide(names: tuple[str, ...], directory: str, report: Any) -> tuple[Path, ...]:
        report(f"downloading {names}")
        return (Path("/cache/a.jar"),)

    provides(monkeypatch, provide)
    run = job.run(finishes)
    assert [each["message"] for each in run.of("jars")] == ["downloading ('avro',)"]
    assert run.workers[0]._order.spark == {"spark.jars": "/cache/a.jar"}


def test_a_download_that_fails_fails_the_job_at_once_with_the_reason(
    job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provide(names: tuple[str, ...], directory: str, report: Any) -> tuple[Path, ...]:
        raise JarsUnavailable("the jars for avro cannot be downloaded: no route to host")

    provides(monkeypatch, provide)
    run = job.run(finishes)
    assert run.visited == ["Compiling", "Scheduling", "Failing", "Failed"]
    assert isinstance(run.state, Failed)
    assert "no route to host" in run.state.given_up.reason
    assert run.workers == []


def test_a_stop_does_not_wait_for_a_download(
    job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def provide(names: tuple[str, ...], directory: str, report: Any) -> tuple[Path, ...]:
        ended.wait(9)
        return ()

    def stop(ctx: JobContext) -> None:
        ctx.requests.request_stop(StopMode.CHECKPOINT)

    provides(monkeypatch, provide)
    job.on_entering[Scheduling.name] = stop
    run = job.run(stops_on_request)
    ended.set()
    assert run.visited == ["Compiling", "Scheduling", "Stopping", "Stopped"]
    assert run.took.total_seconds() < 5


def test_a_start_may_take_longer_while_jars_are_missing(
    job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = []

    def provide(names: tuple[str, ...], directory: str, report: Any) -> tuple[Path, ...]:
        return ()

    def note(ctx: JobContext) -> None:
        deadlines.append(Scheduling().deadline(ctx))

    provides(monkeypatch, provide)
    job.on_entering[Scheduling.name] = note
    start = job.run(finishes)
    assert start.visited[-1] == "Finished"
    monkeypatch.setattr(context, "may_download", lambda _names, _directory: False)
    job.run(finishes)
    first, second = deadlines
    assert first is not None
    assert second is not None
    assert first - second == INSTALL_WITHIN
