"""`make demo`: run a windowed pipeline over generated rides, kill its worker in the middle, and
compare the output with the batch answer.

It runs in a temporary folder, with the same `resurgence run` that a user types.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from resurgence.engine.spark.session import start_session

RIDES = 60_000
EPOCH_ROWS = 6_000
KILL_AFTER_EPOCH = 4
_DEADLINE_SECONDS = 180.0

SQL = """\
CREATE TABLE rides (
  at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT, place TEXT,
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');

CREATE TABLE hourly (hour TIMESTAMP, kind TEXT, rides BIGINT, avg_driver DOUBLE)
WITH (connector = 'filesystem', path = 'out/hourly', format = 'parquet', type = 'sink');

INSERT INTO hourly
SELECT window.start, kind, rides, avg_driver FROM (
  SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS rides, avg(driver) AS avg_driver
  FROM rides GROUP BY window, kind);
"""

BATCH = """\
SELECT window.start AS hour, kind, count(*) AS rides, avg(driver) AS avg_driver
FROM rides GROUP BY window(at, '1 hour'), kind
"""

console = Console(highlight=False)


def main() -> None:
    """Run the demo; exit 1 if a row is lost or doubled."""
    with tempfile.TemporaryDirectory(prefix="resurgence-demo-") as name:
        folder = Path(name)
        write_rides(folder / "rides.json")
        (folder / "rides.sql").write_text(SQL)
        console.print(
            f"[bold]{RIDES:,} rides[/], counted by the hour and kind, {EPOCH_ROWS:,} an epoch"
        )
        killed_at = run_and_kill(folder)
        sys.exit(0 if report(folder, killed_at) else 1)


def write_rides(path: Path) -> None:
    """Write rides that are slightly out of order."""
    generator = random.Random(2024)
    at = datetime(2024, 1, 1)
    with path.open("w") as file:
        for _ in range(RIDES):
            at += timedelta(seconds=generator.randint(0, 9))
            ride = {
                "at": (at - timedelta(seconds=generator.randint(0, 25))).isoformat(),
                "driver": generator.randint(1, 5000),
                "kind": generator.choice(["taxi", "pool", "van"]),
                "place": generator.choice(["north", "south", "east", "west"]),
            }
            file.write(json.dumps(ride) + "\n")


def run_and_kill(folder: Path) -> datetime:
    """Run the pipeline, kill its worker with SIGKILL in the middle, and wait for the end."""
    command = [
        sys.executable,
        "-m",
        "resurgence",
        "run",
        "rides.sql",
        "--epoch-rows",
        str(EPOCH_ROWS),
    ]
    with (folder / "run.log").open("w") as log:
        run = subprocess.Popen(
            [*command, "--events", "events.jsonl"], cwd=folder, stdout=log, stderr=log
        )
        killed_at = None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        shown = 0
        while run.poll() is None and time.monotonic() < deadline:
            seen = events(folder)
            for event in seen[shown:]:
                show(event)
            shown = len(seen)
            committed = [each["epoch"] for each in seen if each["event"] == "committed"]
            if killed_at is None and committed and committed[-1] >= KILL_AFTER_EPOCH:
                pid = next(each["pid"] for each in seen if each["event"] == "worker_started")
                killed_at = datetime.now().astimezone()
                os.kill(pid, signal.SIGKILL)
                console.print(f"[bold red]kill -9 {pid}[/] (the worker)")
            time.sleep(0.02)
        for event in events(folder)[shown:]:
            show(event)
    if run.returncode != 0 or killed_at is None:
        run.kill()
        sys.exit((folder / "run.log").read_text())
    return killed_at


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of the run so far."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def show(event: dict[str, Any]) -> None:
    """Print an event."""
    if event["event"] == "worker_started":
        console.print(f"worker started, pid {event['pid']}, generation {event['generation']}")
    elif event["event"] == "checkpoint":
        console.print(f"epoch {event['epoch']}: {event['rows']:,} rows in, {event['rows_out']} out")
    elif event["event"] == "failure":
        console.print(f"[yellow]failure detected:[/] {event['error']}")
    elif event["event"] == "incident":
        console.print(f"[green]recovered[/] from the checkpoint of epoch {event['restored_epoch']}")


def report(folder: Path, killed_at: datetime) -> bool:
    """Compare the output with Spark's batch answer over the same file; return True if equal."""
    incident = next(each for each in events(folder) if each["event"] == "incident")
    detected_at = datetime.fromisoformat(incident["detected_at"])
    resumed_at = datetime.fromisoformat(incident["resumed_at"])
    spark, jvm = start_session(
        app_name="demo",
        master="local[2]",
        memory="1g",
        shuffle_partitions=2,
        conf={},
        log_file=folder / "batch.log",
    )
    try:
        schema = "at TIMESTAMP, driver BIGINT, kind STRING, place STRING"
        spark.read.schema(schema).json(str(folder / "rides.json")).createOrReplaceTempView("rides")
        batch = spark.sql(BATCH)
        output = spark.read.parquet(str(folder / "out" / "hourly"))
        rows_out = output.count()
        duplicates = rows_out - output.select("hour", "kind").distinct().count()
        lost = batch.exceptAll(output).count()
        wrong = output.exceptAll(batch).count() - duplicates
    finally:
        spark.stop()
        jvm.close()
    console.print()
    console.print(f"rows in            {RIDES:>10,}")
    console.print(f"rows out           {rows_out:>10,}")
    console.print(f"rows replayed      {incident['replayed_rows']:>10,}")
    console.print(f"duplicates         {duplicates:>10,}")
    console.print(f"lost               {lost:>10,}")
    console.print(f"wrong              {wrong:>10,}")
    console.print(f"time to detect     {(detected_at - killed_at).total_seconds():>10.2f} s")
    console.print(f"time to recover    {(resumed_at - killed_at).total_seconds():>10.2f} s")
    exact = duplicates == lost == wrong == 0
    console.print("[bold green]exactly once[/]" if exact else "[bold red]NOT exactly once[/]")
    return exact


if __name__ == "__main__":
    main()
