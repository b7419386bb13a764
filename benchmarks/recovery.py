"""Recovery time after a failure: Resurgence compared with Structured Streaming in one run.

The query computes count, sum and max by key in windows of half a minute, with about 80,000 open
groups. Rows are generated inside Spark at a fixed rate; the output is Parquet; checkpoints are on.
Both systems process the same rows with the same cores, memory and shuffle partitions. The recovery
time is the time from the failure to the first committed epoch that was not sealed before it.

    Structured Streaming  SIGKILL; a loop restarts the program at once
    cold                  SIGKILL; a new worker, without a class-data archive
    archive               SIGKILL; a new worker, with a class-data archive
    standby               SIGKILL; the standby takes over
    in place              a task fails; the same worker runs the next generation

SIGKILL is sent to the process group, so that nothing of the old driver is left. Structured
Streaming runs on an unmodified Spark, with its faster state store, and starts each micro-batch as
soon as it can. Resurgence runs as `resurgence run`, in which a first failure has no backoff. One
setting is not the default: a job is healthy again after two seconds, because otherwise each of
these frequent failures would be one more of the same job, with a growing backoff. The modes
alternate, so that all of them run under the same conditions. Only the ratios are comparable between
machines.

    python benchmarks/recovery.py [--kills N] [--rounds N] [--only MODE]...
                                  [--json FILE] [--plot FILE]
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report import Report, add_arguments, at_most, spread_of

RATE = 20_000
"""Rows per second."""
KEYS = 100_000
WINDOW = "30 seconds"
DELAY = "1 second"
START = "2024-01-01T00:00:00"
PARALLELISM = 2
MASTER = "local[2]"
MEMORY = "2g"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

EPOCHS_BEFORE = 12
"""Epochs before the first failure: by then most groups are open."""
EPOCHS_BETWEEN = 4
"""Epochs from one recovery to the next failure."""
TIMEOUT_SECONDS = 300.0
POLL_SECONDS = 0.02
PHASES = ("notice", "detect", "tear_down", "backoff", "plan", "schedule", "restore", "resume")

T = TypeVar("T")
SECONDS = "seconds to the first new epoch"


class Mode(StrEnum):
    """The kind of failure, and what takes over."""

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


GOALS = {
    Mode.COLD: at_most(0.8),
    Mode.ARCHIVE: at_most(0.6),
    Mode.STANDBY: at_most(0.08),
    Mode.IN_PLACE: at_most(0.08),
}
"""Of the ratio to Structured Streaming."""


@dataclass(frozen=True)
class Recovery:
    """One failure: seconds until the first new epoch was committed, in total and by phase."""

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)


class Side(Protocol):
    """A running job that can be made to fail."""

    def commits(self) -> int:
        """Return how many epochs have been committed since the start."""
        ...

    def get_ready(self) -> None:
        """Wait until the preconditions of a failure hold."""
        ...

    def fail(self) -> Recovery:
        """Make the job fail, and wait until it has recovered."""
        ...


def wait_for(what: str, find: Callable[[], T | None]) -> T:
    """Poll `find` until it returns something."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            return found
        time.sleep(POLL_SECONDS)
    raise SystemExit(f"timed out after {TIMEOUT_SECONDS:g} s waiting for {what}")


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
    """A `resurgence run`, observed through its events."""

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
            wait_for("a ready standby", self._standby)

    def fail(self) -> Recovery:
        failed_at = self._await_fault() if self._mode is Mode.IN_PLACE else self._kill()
        self._failures += 1
        recovery = wait_for("the job to recover", lambda: self._recovery(failed_at))
        origin = self._last("worker_started")["origin"]
        if origin != ORIGINS[self._mode]:
            raise SystemExit(f"{self._mode}: the origin of the new worker is {origin}")
        return recovery

    def events(self) -> list[dict[str, Any]]:
        """Return all events so far."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self._mode}: the job exited with {self._process.returncode}")
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
        """Return True if a standby became ready after the job's worker started; otherwise None."""
        for each in reversed(self.events()):
            if each["event"] in ("standby_ready", "worker_started"):
                return each["event"] == "standby_ready" or None
        return None

    def _kill(self) -> float:
        pid = self._last("worker_started")["pid"]
        failed_at = time.time()
        os.killpg(pid, signal.SIGKILL)
        return failed_at

    def _await_fault(self) -> float:
        """Return when the next injected fault fired: it creates a marker just before."""
        epoch = fault_epochs(self._failures + 1)[-1]
        marker = self._faults / f"sink.staged-{epoch}-raise"
        wait_for(f"the fault of epoch {epoch}", lambda: marker.exists() or None)
        return marker.stat().st_mtime

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
                # An incident also ends with a pending commit, which is not a new epoch.
                phases["resume"] = seconds - sum(
                    phases[name] for name in phases.keys() - {"resume"}
                )
                return Recovery(seconds, phases)
        return None


@contextlib.contextmanager
def resurgence_job(folder: Path, mode: Mode, failures: int) -> Iterator[Side]:
    """Run the Resurgence job."""
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
        # The cache directory is a file, so it has no archive, and none can be built in it.
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
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fault_epochs(failures: int) -> list[int]:
    """Return the epochs in which a task fails. A failed epoch is retried under the same number."""
    return [EPOCHS_BEFORE + 1 + number * (EPOCHS_BETWEEN + 1) for number in range(failures)]


def build_archive() -> None:
    """Build the class-data archive before anything is measured, or say why that is not possible."""
    # Imported here because the Structured Streaming process, which runs this file too, must not
    # load it.
    from resurgence.engine.spark import class_archive
    from resurgence.engine.spark.java import find_java

    archive = class_archive.archive_path(find_java())
    if archive.exists():
        return
    try:
        is_built = class_archive.build_archive(archive)
        reason = (
            "another process is building it"
            if class_archive.is_being_built(archive)
            else f"see {class_archive.failure_log(archive)}"
        )
    except OSError as error:
        is_built, reason = False, str(error)
    if not is_built:
        print(f"the class-data archive could not be built: {reason}; measuring without", flush=True)


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# -------------------------------------------------------------------- Structured Streaming


class StreamingLoop:
    """A program with a Structured Streaming query, and a loop that restarts it when it exits."""

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
        self._loop.join(TIMEOUT_SECONDS)

    def commits(self) -> int:
        if not self._commits.is_dir():
            return 0
        return max((int(each.name) + 1 for each in self._commits.glob("[0-9]*")), default=0)

    def get_ready(self) -> None:
        """There are no preconditions."""

    def fail(self) -> Recovery:
        assert self._process is not None
        starts = self._starts
        failed_at = time.time()
        os.killpg(self._process.pid, signal.SIGKILL)
        wait_for("the loop to restart the query", lambda: self._starts > starts or None)
        new = self._commits / str(self.commits())
        wait_for("the query to recover", lambda: new.exists() or None)
        return Recovery(new.stat().st_mtime - failed_at)


@contextlib.contextmanager
def streaming_loop(folder: Path) -> Iterator[Side]:
    """Run the Structured Streaming query."""
    loop = StreamingLoop(folder)
    try:
        yield loop
    finally:
        loop.close()


def run_query(folder: Path) -> None:
    """Run the equivalent Structured Streaming query until the process is killed."""
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
    """Run a job without prior state and make it fail, each time after it has warmed up again."""
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
    wait_for(f"{enough} committed epochs", lambda: side.commits() >= enough or None)


def show(report: Report, results: dict[Mode, list[Recovery]]) -> None:
    """Print seconds by mode, their ratio to Structured Streaming, and our seconds by phase."""
    print(f"{SECONDS:34}{'median':>8}{'min':>8}{'max':>8}")
    seconds = {mode: [each.seconds for each in own] for mode, own in results.items()}
    for mode, values in seconds.items():
        print(f"  {mode:32}{spread_of(values).median:8.2f}{min(values):8.2f}{max(values):8.2f}")
        report.add(
            SECONDS,
            mode,
            "Structured Streaming" if mode is Mode.STREAMING else "Resurgence",
            values,
        )
    if Mode.STREAMING in seconds:
        print(f"\nratio to {Mode.STREAMING}")
        for mode, goal in GOALS.items():
            if mode in seconds:
                report.compare(mode, seconds[mode], seconds[Mode.STREAMING], goal)
    # A worker connects before it starts Spark, so the start of Spark is part of `restore`.
    print(f"\n{'median seconds by phase':26}" + "".join(f"{name:>10}" for name in PHASES))
    for mode, recoveries in results.items():
        if mode is not Mode.STREAMING:
            cells = []
            for name in PHASES:
                phase = [each.phases.get(name, 0.0) for each in recoveries]
                report.add("seconds by phase", name, mode, phase)
                cells.append(statistics.median(phase))
            print(f"  {mode:24}" + "".join(f"{cell:10.2f}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="failures per mode in total")
    parser.add_argument("--rounds", type=int, default=2, help="rounds in which the modes alternate")
    parser.add_argument("--only", choices=list(Mode), type=Mode, action="append")
    parser.add_argument("--query", type=Path, help=argparse.SUPPRESS)
    add_arguments(parser)
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
            seconds = ", ".join(f"{each.seconds:.2f}" for each in recoveries[-share:])
            print(f"round {turn + 1}, {mode}: {seconds}", flush=True)
    print()
    report = Report("recovery", arguments)
    show(report, results)
    report.save()


if __name__ == "__main__":
    main()
