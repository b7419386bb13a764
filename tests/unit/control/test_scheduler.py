"""Worker processes: torn down with all their children, and not waited for when dead."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from resurgence.control.scheduler import WorkerProcess

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
def test_tear_down_ends_a_worker_and_its_children_within_a_second() -> None:
    async def scene() -> None:
        worker, output = await start(PARENT)
        child = int(await output.readline())
        assert is_alive(child)
        began = time.monotonic()
        await worker.tear_down()
        assert time.monotonic() - began < 1
        assert await worker.wait() == -9
        while is_alive(child):
            await asyncio.sleep(0.01)
            assert time.monotonic() - began < 1

    asyncio.run(scene())


def test_a_worker_that_is_dead_is_not_waited_for() -> None:
    async def scene() -> None:
        worker, _ = await start("raise SystemExit(5)")
        assert await worker.wait() == 5
        began = time.monotonic()
        await worker.tear_down()
        await worker.tear_down()
        assert time.monotonic() - began < 0.5

    asyncio.run(scene())
