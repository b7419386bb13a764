"""How long a job is away after a failure, side by side: Resurgence and Structured Streaming in one run.

Count, sum and max by key in windows of half a minute; rows come at a fixed rate and are generated
inside Spark; some 80,000 groups are open at a time; Parquet out; checkpoints on. Both get the same
rows, on the same cores, memory and shuffle partitions. What counts is the time from the failure to the
first epoch committed that was not sealed before it.

    Structured Streaming  SIGKILL; a loop starts the program again at once
    cold                  SIGKILL; a new worker, without a class-data archive
    archive               SIGKILL; a new worker, with one
    standby               SIGKILL; the standby takes over
    in place              a task fails; the same worker takes the next generation

SIGKILL goes to the process group, so that nothing of the old driver is left. Structured Streaming runs
on Spark as it comes, with its faster state store, and begins each micro-batch as soon as it can.
Resurgence runs as `resurgence run`, with its default wait before a restart, which counts. One setting
is not the default: a job is healthy again after two seconds, or failures so close to each other would
each wait longer than the one before. The modes take turns, so that all of them meet the same machine.
Only the ratios mean anything on another machine.

    python benchmarks/recovery.py [--kills N] [--rounds N] [--only MODE]...
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

RATE = 20_000
"""Rows a second."""
KEYS = 100_000
WINDOW = "30 seconds"
DELAY = "1 second"
START = "2024-01-01T00:00:00"
PARALLELISM = 2
MASTER = "local[2]"
MEMORY = "2g"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

EPOCHS_BEFORE = 12
"""Epochs before the first failure: by then most groups are there."""
EPOCHS_BETWEEN = 4
"""Epochs from one recovery to the next failure."""
PATIENCE = 300.0
LOOK = 0.02
PHASES = ("notice", "detect", "tear_down", "backoff", "plan", "schedule", "restore", "resume")

T = TypeVar("T")


class Mode(StrEnum):
    """What fails, and what takes over."""

    STREAMING = "Structured Streaming"
    COLD = "cold"
    ARCHIVE = "archive"
    STANDBY = "standby"
    IN_PLACE = "in place"


ORIGINS = {
    Mode.COLD: "started",
    Mode.ARCHIVE: "started",
    Mode.STANDBY: "standby",
    Mode.IN_PLACE: "in_place",
}


@dataclass(frozen=True)
class Recovery:
    """One failure: seconds until the first new epoch was committed, and where they went."""

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)


class Side(Protocol):
    """A running job that can be made to fail."""

    def commits(self) -> int:
        """How many epochs have been committed since it runs."""
        ...

    def get_ready(self) -> None:
        """Wait for what must be there before a failure counts."""
        ...

    def fail(self) -> Recovery:
        """Make it fail, and wait until it is back."""
        ...


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """What `look` finds, as soon as it finds something."""
    give_up_at = time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        found = look()
        if found is not None:
            return found
        time.sleep(LOOK)
    raise SystemExit(f"waited {PATIENCE:g} s in vain: {what}")


# -------------------------------------------------------------------- Resurgence


PIPELINE = f"""
CREATE TABLE numbers (
    counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL,
    WATERMARK FOR timestamp AS timestamp - INTERVAL '{DELAY}'
) WITH (connector = 'impulse', event_rate = '{RATE}', start_time = '{START}', type = 'source');
CREATE TABLE totals (start TIMESTAMP, k INT, n BIGINT, total BIGINT, highest BIGINT)
WITH (connector = 'filesystem', path = '{{folder}}/out', format = 'parquet', type = 'sink');
INSERT INTO totals SELECT window.start, k, n, total, highest FROM (
    SELECT tumble(INTERVAL '{WINDOW}') AS window, pmod(hash(counter), {KEYS}) AS k,
           count(*) AS n, sum(counter) AS total, max(counter) AS highest
    FROM numbers GROUP BY window, k);
"""


class ResurgenceJob:
    """`resurgence run`, seen through its events."""

    def __init__(self, folder: Path, mode: Mode, process: subprocess.Popen[bytes]) -> None:
        self._mode = mode
        self._process = process
        self._events: list[dict[str, Any]] = []
        self._faults = folder / "state" / "job" / "faults"
        self._failures = 0
        self._file = folder / "events.jsonl"
        self._read_bytes = 0

    def commits(self) -> int:
        return sum(each["event"] == "committed" for each in self.events())

    def get_ready(self) -> None:
        if self._mode is Mode.STANDBY:
            wait_for("a standby is ready", self._standby)

    def fail(self) -> Recovery:
        failed_at = self._strike() if self._mode is Mode.IN_PLACE else self._kill()
        self._failures += 1
        recovery = wait_for("the job is back", lambda: self._recovery(failed_at))
        origin = self._last("worker_started")["origin"]
        if origin != ORIGINS[self._mode]:
            raise SystemExit(f"{self._mode}: the worker that took over was {origin}")
        return recovery

    def events(self) -> list[dict[str, Any]]:
        """All events until now."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self._mode}: the job ended with status {self._process.returncode}")
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read_bytes)
                for line in file:
                    if line.endswith(b"\n"):
                        self._read_bytes += len(line)
                        self._events.append(json.loads(line))
        return self._events

    def _last(self, event: str) -> dict[str, Any]:
        return next(each for each in reversed(self.events()) if each["event"] == event)

    def _standby(self) -> bool | None:
        """Whether one got ready since the job has its worker; None if not."""
        for each in reversed(self.events()):
            if each["event"] in ("standby_ready", "worker_started"):
                return each["event"] == "standby_ready" or None
        return None

    def _kill(self) -> float:
        pid = self._last("worker_started")["pid"]
        failed_at = time.time()
        os.killpg(pid, signal.SIGKILL)
        return failed_at

    def _strike(self) -> float:
        """When the next of the injected faults struck: it leaves a mark just before."""
        epoch = fault_epochs(self._failures + 1)[-1]
        mark = self._faults / f"sink.staged-{epoch}-raise"
        wait_for(f"the fault of epoch {epoch}", lambda: mark.exists() or None)
        return mark.stat().st_mtime

    def _recovery(self, failed_at: float) -> Recovery | None:
        incidents = [each for each in self.events() if each["event"] == "incident"]
        if len(incidents) < self._failures:
            return None
        incident = incidents[-1]
        for each in self._events:
            # Every epoch up to the restored one was sealed before the failure.
            if each["event"] == "committed" and each["epoch"] > incident["restored_epoch"]:
                seconds = instant(each["at"]) - failed_at
                phases = {"notice": instant(incident["detected_at"]) - failed_at}
                phases |= incident["phases"]
                # An incident ends with a commit that was pending, too; that is no new epoch.
                phases["resume"] = seconds - sum(
                    phases[name] for name in phases.keys() - {"resume"}
                )
                return Recovery(seconds, phases)
        return None


@contextlib.contextmanager
def resurgence_job(folder: Path, mode: Mode, failures: int) -> Iterator[Side]:
    """Our side, running."""
    (folder / "job.sql").write_text(PIPELINE.format(folder=folder), encoding="utf-8")
    settings = {
        "pipeline.parallelism": str(PARALLELISM),
        "pipeline.healthy_duration": "2s",
        "spark.master": MASTER,
        "spark.driver.memory": MEMORY,
    }
    if mode is Mode.STANDBY:
        settings["controller.standby"] = "1"
    if mode is Mode.IN_PLACE:
        epochs = fault_epochs(failures)
        settings["faults"] = ",".join(f"sink.staged@{epoch}=raise" for epoch in epochs)
    environment = dict(os.environ)
    if mode is Mode.COLD:
        # There is no archive inside a file, and none can be built there.
        environment["RESURGENCE_CACHE_DIR"] = str(folder / "job.sql")
    command = [sys.executable, "-m", "resurgence", "run", str(folder / "job.sql")]
    command += ["--state-dir", str(folder / "state"), "--events", str(folder / "events.jsonl")]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(command, stdout=console, stderr=console, env=environment)
    try:
        yield ResurgenceJob(folder, mode, process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fault_epochs(failures: int) -> list[int]:
    """When a task fails: the epoch that fails comes again, so each costs none."""
    return [EPOCHS_BEFORE + 1 + number * (EPOCHS_BETWEEN + 1) for number in range(failures)]


def build_archive() -> None:
    """The class-data archive is there before anything is measured."""
    # Imported here: this file is the program of Structured Streaming, too, which needs none of it.
    from resurgence.engine.spark.class_archive import archive_path, build_archive_in_background
    from resurgence.engine.spark.java import find_java

    archive = archive_path(find_java())
    if not archive.exists():
        build_archive_in_background(archive)
        wait_for("the class-data archive is built", lambda: archive.exists() or None)


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# -------------------------------------------------------------------- Structured Streaming


class StreamingLoop:
    """A program with a Structured Streaming query, and a loop that starts it again when it ends."""

    def __init__(self, folder: Path) -> None:
        self._commits = folder / "checkpoint" / "commits"
        self._command = [sys.executable, __file__, "--query", str(folder)]
        self._console = folder / "console"
        self._stopped = False
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._loop = threading.Thread(target=self._run)
        self._loop.start()

    def _run(self) -> None:
        while not self._stopped:
            with self._console.open("ab") as console:
                self._process = subprocess.Popen(
                    self._command, stdout=console, stderr=console, start_new_session=True
                )
            self._starts += 1
            self._process.wait()

    def close(self) -> None:
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._loop.join(PATIENCE)

    def commits(self) -> int:
        if not self._commits.is_dir():
            return 0
        return max((int(each.name) + 1 for each in self._commits.glob("[0-9]*")), default=0)

    def get_ready(self) -> None:
        """Nothing is kept ready."""

    def fail(self) -> Recovery:
        assert self._process is not None
        starts = self._starts
        failed_at = time.time()
        os.killpg(self._process.pid, signal.SIGKILL)
        wait_for("the loop starts it again", lambda: self._starts > starts or None)
        new = self._commits / str(self.commits())
        wait_for("the query is back", lambda: new.exists() or None)
        return Recovery(new.stat().st_mtime - failed_at)


@contextlib.contextmanager
def streaming_loop(folder: Path) -> Iterator[Side]:
    """Their side, running."""
    loop = StreamingLoop(folder)
    try:
        yield loop
    finally:
        loop.close()


def run_query(folder: Path) -> None:
    """The program that is killed: the same query in Spark's own words, until it ends."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = (
        SparkSession.builder.master(MASTER)
        .config("spark.driver.memory", MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", PARALLELISM)
        .config("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    numbers = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", RATE)
        .option("numPartitions", PARALLELISM)
        .load()
    )
    start = int(instant(f"{START}+00:00")) * 1_000_000
    query = (
        numbers.selectExpr(
            "value AS counter",
            f"pmod(hash(value), {KEYS}) AS k",
            f"timestamp_micros({start} + value * {1_000_000 // RATE}) AS at",
        )
        .withWatermark("at", DELAY)
        .groupBy(F.window("at", WINDOW), "k")
        .agg(
            F.count("*").alias("n"),
            F.sum("counter").alias("total"),
            F.max("counter").alias("highest"),
        )
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .start()
    )
    query.awaitTermination()


# -------------------------------------------------------------------- the measurement


def measure(mode: Mode, failures: int) -> list[Recovery]:
    """Run a job from nothing, let it fail so many times, each time when it is warm again."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        running = (
            streaming_loop(folder)
            if mode is Mode.STREAMING
            else resurgence_job(folder, mode, failures)
        )
        recoveries: list[Recovery] = []
        try:
            with running as side:
                await_commits(side, EPOCHS_BEFORE)
                while len(recoveries) < failures:
                    side.get_ready()
                    recoveries.append(side.fail())
                    await_commits(side, side.commits() + EPOCHS_BETWEEN - 1)
        except SystemExit:
            print((folder / "console").read_text(errors="replace")[-5000:], file=sys.stderr)
            raise
        return recoveries


def await_commits(side: Side, enough: int) -> None:
    wait_for(f"{enough} epochs are committed", lambda: side.commits() >= enough or None)


def show(results: dict[Mode, list[Recovery]]) -> None:
    """Seconds by mode, their ratio to Structured Streaming, and where ours went."""
    print(f"{'seconds to the first new epoch':34}{'median':>8}{'min':>8}{'max':>8}{'ratio':>8}")
    medians = {
        mode: statistics.median(each.seconds for each in recoveries)
        for mode, recoveries in results.items()
    }
    for mode, recoveries in results.items():
        seconds = [each.seconds for each in recoveries]
        ratio = (
            f"{medians[mode] / medians[Mode.STREAMING]:8.2f}" if Mode.STREAMING in medians else ""
        )
        print(f"  {mode:32}{medians[mode]:8.2f}{min(seconds):8.2f}{max(seconds):8.2f}{ratio}")
    # A worker is connected before it starts Spark: that is part of `restore`.
    print(f"\n{'medians of the phases':26}" + "".join(f"{name:>10}" for name in PHASES))
    for mode, recoveries in results.items():
        if mode is not Mode.STREAMING:
            cells = [
                statistics.median(each.phases.get(name, 0.0) for each in recoveries)
                for name in PHASES
            ]
            print(f"  {mode:24}" + "".join(f"{cell:10.2f}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="failures of each mode, in all")
    parser.add_argument("--rounds", type=int, default=2, help="how often the modes take turns")
    parser.add_argument("--only", choices=list(Mode), type=Mode, action="append")
    parser.add_argument("--query", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.query is not None:
        run_query(arguments.query)
        return
    results: dict[Mode, list[Recovery]] = {mode: [] for mode in arguments.only or Mode}
    build_archive()
    for turn in range(min(arguments.rounds, arguments.kills)):
        share = len(range(turn, arguments.kills, arguments.rounds))
        for mode, recoveries in results.items():
            recoveries += measure(mode, share)
            found = ", ".join(f"{each.seconds:.2f}" for each in recoveries[-share:])
            print(f"round {turn + 1}, {mode}: {found}", flush=True)
    print()
    show(results)


if __name__ == "__main__":
    main()
