"""Two commands that run one job: real processes, real SIGKILL."""

from __future__ import annotations

import os
import re
import signal
from contextlib import closing

import pytest

from resurgence.control.store.metadata import MetadataStore
from tests.integration.conftest import QUICK, Project, settings

TICKS = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT counter FROM ticks"""


@pytest.mark.timeout(400)
def test_a_live_run_is_named_and_not_fenced_until_it_is_taken_over_or_killed(
    project: Project,
) -> None:
    (project.folder / "rides.sql").write_text(TICKS)
    arguments = settings(*QUICK)
    first = project.start(*arguments)
    project.wait_for("committed", epoch=1)

    refused = project.run(*arguments)
    assert refused.returncode == 1
    assert re.search(
        rf"job 'rides' has been run by `resurgence run` on \S+ \(pid {first.pid}\) since \d",
        refused.stderr,
    )
    assert "--take-over" in refused.stderr
    assert first.poll() is None

    second = project.start("--take-over", *arguments)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 1
    assert f"(pid {second.pid}) took over the job" in err
    project.wait_for("worker_started", generation=2)
    with closing(MetadataStore(project.folder / ".resurgence" / "resurgence.db")) as metadata:
        (record,) = metadata.jobs()
    assert (record.status.generation, record.status.failure) == (2, None)

    # The lease of a process that was killed does not hold its successor off.
    second.kill()
    second.wait(10)
    third = project.start(*arguments)
    project.wait_for("worker_started", generation=3)
    os.kill(third.pid, signal.SIGINT)
    third.communicate(timeout=60)
    assert third.returncode == 0
    assert not (project.folder / ".resurgence" / "rides" / "leases").exists()
