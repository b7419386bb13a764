"""`make demo`: run a windowed pipeline over a stream of rides with a standby beside it, kill its
worker in the middle, and compare the output with the batch answer.

It runs in a temporary folder, with the same `resurgence run` that a user types. The rides are
generated at a fixed rate, so that the standby is warm before the stream ends.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from resurgence.engine.spark.session import start_session

RIDES = 60_000
RIDES_PER_SECOND = 2_000
KILL_AFTER_EPOCH = 4
KILL_AT_THE_LATEST = 0.8
"""Of all rides: the worker is killed then, even if the standby is not warm yet."""
_DEADLINE_SECONDS = 180.0

RIDE = {
    "at": "timestamp - (counter % 25) * INTERVAL '1' SECOND",
    "driver": "pmod(hash(counter), 5000)",
    "kind": "element_at(array('taxi', 'pool', 'van'), CAST(1 + counter % 3 AS INT))",
}
"""The columns of a ride, slightly out of order, as SQL over a number and a time."""

SQL = f"""\
CREATE TABLE rides (
  counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL,
  {", ".join(f"{name} AS {sql}" for name, sql in RIDE.items())},
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'impulse', event_rate = '{RIDES_PER_SECOND}', message_count = '{RIDES}',
  event_time_interval = '5 seconds', start_time = '2024-01-01T00:00:00', type = 'source');

CREATE TABLE hourly (hour TIMESTAMP, kind TEXT, rides BIGINT, avg_driver DOUBLE)
WITH (connector = 'filesystem', path = 'out/hourly', format = 'parquet', type = 'sink');

INSERT INTO hourly
SELECT window.start, kind, rides, avg_driver FROM (
  SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS rides, avg(driver) AS avg_driver
  FROM rides GROUP BY window, kind);
"""

BATCH = f"""\
WITH numbers AS (
  SELECT id AS counter, TIMESTAMP '2024-01-01 00:00:00' + id * INTERVAL '5' SECOND AS timestamp
  FROM range({RIDES})),
rides AS (SELECT {", ".join(f"{sql} AS {name}" for name, sql in RIDE.items())} FROM numbers)
SELECT window.start AS hour, kind, count(*) AS rides, avg(driver) AS avg_driver
FROM rides GROUP BY window(at, '1 hour'), kind
"""

console = Console(highlight=False)


def main() -> None:
    """Run the demo; exit 1 if a row is lost or doubled."""
    with tempfile.TemporaryDirectory(prefix="resurgence-demo-") as name:
        folder = Path(name)
        (folder / "rides.sql").write_text(SQL)
        console.print(
            f"[bold]{RIDES:,} rides[/], {RIDES_PER_SECOND:,} a second, counted by the hour and kind"
        )
        console.print("starting a worker, and a standby beside it")
        killed_at = run_and_kill(folder)
        sys.exit(0 if report(folder, killed_at) else 1)


def command(has_console: bool) -> list[str]:
    """Return the command that runs the pipeline."""
    run = [sys.executable, "-m", "resurgence", "run", "rides.sql", "--events", "events.jsonl"]
    settings = ["--set", "controller.standby=1"]
    return [*run, *settings, *(["--ui"] if has_console else [])]


def has_console() -> bool:
    """Return whether `run` can serve the web console."""
    from resurgence.cli.app import app

    run: Any = typer.main.get_command(app)
    return any("--ui" in each.opts for each in run.commands["run"].params)


def console_address(log: str) -> str | None:
    """Return the address that `run` has printed, if it serves the console."""
    found = re.search(r"http://(?:127\.0\.0\.1|localhost):\d+\S*", log)
    return found[0] if found else None


def run_and_kill(folder: Path) -> datetime:
    """Run the pipeline, kill its worker with SIGKILL in the middle, and wait for the end."""
    with (folder / "run.log").open("w") as log:
        run = subprocess.Popen(command(has_console()), cwd=folder, stdout=log, stderr=log)
        killed_at = None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        shown = 0
        is_address_shown = False
        while run.poll() is None and time.monotonic() < deadline:
            seen = events(folder)
            for event in seen[shown:]:
                show(event)
            shown = len(seen)
            address = (
                None if is_address_shown else console_address((folder / "run.log").read_text())
            )
            if address is not None:
                is_address_shown = True
                console.print(f"[bold]console:[/] {address}")
            if killed_at is None and is_time_to_kill(seen):
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


def is_time_to_kill(seen: Sequence[dict[str, Any]]) -> bool:
    """Return whether some epochs are committed and the standby is warm; if it takes too long, only
    the former.
    """
    committed = [each["epoch"] for each in seen if each["event"] == "committed"]
    if not committed or committed[-1] < KILL_AFTER_EPOCH:
        return False
    rows = sum(each["rows"] for each in seen if each["event"] == "checkpoint")
    is_warm = any(each["event"] == "standby_ready" for each in seen)
    return is_warm or rows >= KILL_AT_THE_LATEST * RIDES


def events(folder: Path) -> list[dict[str, Any]]:
    """Return the events of the run so far."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def show(event: dict[str, Any]) -> None:
    """Print an event."""
    if event["event"] == "standby_ready":
        console.print(f"standby is warm, pid {event['pid']}")
    elif event["event"] == "worker_started":
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
    console.print("computing the batch answer")
    spark, jvm = start_session(
        app_name="demo",
        master="local[2]",
        memory="1g",
        shuffle_partitions=2,
        conf={},
        log_file=folder / "batch.log",
    )
    try:
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
