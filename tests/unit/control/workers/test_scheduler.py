"""Worker processes: torn down with all their children, not waited for when dead, and watched even
if another controller started them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resurgence.control.workers.scheduler import (
    ProcessScheduler,
    WorkerOrder,
    WorkerProcess,
    WorkerStartFailed,
)
from resurgence.ids import Generation, WorkerId

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


async def start(code: str) -> tuple[WorkerProcess, asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return WorkerProcess(process), process.stdout


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")
def test_tear_down_ends_a_worker_and_its_children() -> None:
    async def scene() -> None:
        worker, output = await start(PARENT)
        child = int(await output.readline())
        assert is_alive(child)
        began = time.monotonic()
        await worker.tear_down()
        assert time.monotonic() - began < 10
        assert await worker.wait() == -9
        while is_alive(child):
            await asyncio.sleep(0.01)
            assert time.monotonic() - began < 10

    asyncio.run(scene())


def test_a_worker_that_is_dead_is_not_waited_for() -> None:
    async def scene() -> None:
        worker, _ = await start("raise SystemExit(5)")
        assert await worker.wait() == 5
        began = time.monotonic()
        await worker.tear_down()
        await worker.tear_down()
        assert time.monotonic() - began < 10

    asyncio.run(scene())


def test_a_worker_whose_log_cannot_be_written_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    order = WorkerOrder(
        WorkerId("worker-1"), Generation(1), ("127.0.0.1", 1), "t", tmp_path / "file" / "log"
    )

    async def exited(_worker: WorkerId, _status: int | None) -> None: ...

    with pytest.raises(WorkerStartFailed):
        asyncio.run(ProcessScheduler().start(order, exited))


# ---------------------------------------------------------------- adopted workers

LEFT = WorkerId("worker-left")


@pytest.fixture
def left() -> Iterator[subprocess.Popen[bytes]]:
    """A worker that the controller under test did not start."""
    command = [sys.executable, "-c", "import time; time.sleep(60)", LEFT]
    process = subprocess.Popen(command, start_new_session=True)
    # For a moment of its start a process has no command line.
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


class Adoption:
    """Takes over a worker, and hears of its end."""

    def __init__(self, worker: WorkerId, pid: int) -> None:
        self.reported: list[tuple[WorkerId, int | None]] = []
        self._ended = asyncio.Event()
        self._scheduler = ProcessScheduler()
        self.process = self._scheduler.adopt(worker, pid, self._exited)

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        self.reported.append((worker, status))
        self._ended.set()

    async def ended(self) -> None:
        async with asyncio.timeout(5):
            await self._ended.wait()


def test_the_exit_of_an_adopted_worker_is_reported_at_once(left: subprocess.Popen[bytes]) -> None:
    async def scene() -> None:
        adoption = Adoption(LEFT, left.pid)
        await asyncio.sleep(0.1)
        assert adoption.reported == []
        began = time.monotonic()
        left.kill()
        await adoption.ended()
        assert time.monotonic() - began < 10
        assert adoption.reported == [(LEFT, None)]

    asyncio.run(scene())


def test_an_adopted_worker_that_has_already_exited_is_reported(
    left: subprocess.Popen[bytes],
) -> None:
    left.kill()
    left.wait()

    async def scene() -> None:
        adoption = Adoption(LEFT, left.pid)
        await adoption.ended()
        await adoption.process.tear_down()

    asyncio.run(scene())


def test_an_adopted_worker_is_torn_down(left: subprocess.Popen[bytes]) -> None:
    async def scene() -> None:
        adoption = Adoption(LEFT, left.pid)
        await adoption.process.tear_down()
        await adoption.ended()

    asyncio.run(scene())
    assert left.wait(5) == -9


def test_a_process_that_reuses_the_pid_of_a_worker_is_not_torn_down(
    left: subprocess.Popen[bytes],
) -> None:
    async def scene() -> None:
        adoption = Adoption(WorkerId("worker-other"), left.pid)
        await adoption.process.tear_down()

    asyncio.run(scene())
    assert left.poll() is None
