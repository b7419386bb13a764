"""`resurgence run` as a user starts it, killed at fault points by real signals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

POINTS = (
    "sink.staged",
    "metadata.written",
    "manifest.published",
    "sink.committing",
    "sink.committed",
    "restore.mid",
)
"""Those of a sink, reached in this order, one in each epoch."""

DEADLINE_SECONDS = 570.0


def run_killed(
    folder: Path,
    sql: str,
    *,
    points: Sequence[str] = POINTS,
    first_epoch: int = 1,
    epoch_rows: int = 500,
) -> None:
    """Run a pipeline to its end, killed at one point in each epoch from the first one on; assert
    that it was.
    """
    (folder / "killed.sql").write_text(sql)
    faults = ",".join(
        f"{point}@{epoch}=kill" for epoch, point in enumerate(points, start=first_epoch)
    )
    settings = (
        f"faults={faults}",
        "pipeline.initial_backoff=50ms",
        "pipeline.maximal_backoff=200ms",
        f"pipeline.epoch_rows={epoch_rows}",
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "resurgence", "run", "killed.sql", "--events", "events.jsonl"),
            *(part for each in settings for part in ("--set", each)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(each) for each in (folder / "events.jsonl").read_text().splitlines()]
    fired = [each.name for each in folder.glob("**/faults/*") if not each.name.startswith(".")]
    assert len(fired) == len(points), fired
    failures = [each for each in events if each["event"] == "failure"]
    assert [each["kind"] for each in failures] == ["worker_exited"] * len(points)
    incidents = [each for each in events if each["event"] == "incident"]
    assert all(each["resumed_at"] and each["phases"]["restore"] > 0 for each in incidents)
