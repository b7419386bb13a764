"""A day of epochs, accelerated: whether anything grows that a job uses.

A `resurgence serve` runs one job: an aggregate in windows, written as files, and an updating
aggregate. Its epochs have 1,000 rows and follow each other at once. Its keys and open windows are
bounded, so that everything else should be, too. The database begins with as many events of the job
as a service retains.

Samples are taken all the time: of each process its memory (the proportional set size), threads and
open files; the files of the state directory, of the sink's commit log and of the temporary
directory; the size of the database. A few times per slice the JVM collects its garbage, so that its
heap shows what is alive. The table has the median of each slice; of that heap the minimum, because
Spark holds the buffers of every Python task for up to two seconds longer than it runs. The first
third is warm-up. A measure grows if it is higher in the last third than in the second one by more
than its tolerance; then the exit status is 1.

    python benchmarks/day.py [--minutes N] [--slices N] [--json FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from benchmarks.processes import Role, Usage, processes_of, role_of, usage_of
from benchmarks.report import Report, add_arguments

from resurgence.clock import instant_text
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.ids import JobName

JOB = JobName("day")
PIPELINE = """
CREATE TABLE numbers WITH (connector = 'impulse', event_time_interval = '1 millisecond');
CREATE TABLE windows (start TIMESTAMP, k INT, n BIGINT, total BIGINT)
WITH (connector = 'filesystem', path = '{folder}/out', format = 'parquet');
CREATE TABLE totals (k INT, n BIGINT, total BIGINT)
WITH (connector = 'blackhole', format = 'debezium_json');
INSERT INTO windows SELECT window.start, k, n, total FROM (
    SELECT tumble(INTERVAL '10 seconds') AS window, pmod(hash(counter), 1000) AS k,
           count(*) AS n, sum(counter) AS total
    FROM numbers GROUP BY window, k);
INSERT INTO totals SELECT k, count(*), sum(counter)
FROM (SELECT pmod(hash(counter), 10000) AS k, counter FROM numbers) GROUP BY k;
"""
SETTINGS = {
    "pipeline.epoch_rows": "1000",
    "pipeline.epoch_interval": "0s",
    "spark.driver.memory": "1g",
}
EVENTS = 12_000
"""As many as a service retains of a job before it deletes the oldest ones."""
SAMPLE_SECONDS = 1.0
START_SECONDS = 120.0


@dataclass(frozen=True)
class Tolerance:
    """How much higher a measure may be in the last third than in the second one."""

    share: float
    absolute: float


EPOCH, HEAP = "seconds per epoch", "JVM: heap after GC, MiB"
COLLECTIONS = 4
"""Of garbage, in each slice."""
TOLERANCES = {
    EPOCH: Tolerance(0.25, 0),
    "memory, MiB": Tolerance(0.05, 8),
    "threads": Tolerance(0, 2),
    "open files": Tolerance(0, 4),
    HEAP: Tolerance(0.05, 5),
    "metaspace, MiB": Tolerance(0.02, 1),
    "code cache, MiB": Tolerance(0.1, 2),
    "state, files": Tolerance(0.1, 20),
    "commit log, files": Tolerance(0.1, 20),
    "temporary files": Tolerance(0.1, 5),
    "database, MiB": Tolerance(0.05, 0.5),
}


class Samples:
    """The values of all measures, with the seconds at which they were found."""

    def __init__(self, seconds: float, slices: int) -> None:
        self._seconds = seconds
        self._slices = slices
        self.values: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def by_slice(self, measure: str) -> list[float | None]:
        """Return the median of each slice; None for one without samples."""
        found: list[list[float]] = [[] for _ in range(self._slices)]
        for at, value in self.values[measure]:
            found[min(int(at / self._seconds * self._slices), self._slices - 1)].append(value)
        return [typical(measure, each) if each else None for each in found]

    def growth(self, measure: str) -> tuple[float, float] | None:
        """Return the figures of the second third and of the last one; None if one has no samples."""
        thirds: list[list[float]] = [[], [], []]
        for at, value in self.values[measure]:
            thirds[min(int(at / self._seconds * 3), 2)].append(value)
        if not thirds[1] or not thirds[2]:
            return None
        return typical(measure, thirds[1]), typical(measure, thirds[2])


def typical(measure: str, values: list[float]) -> float:
    return min(values) if measure == HEAP else statistics.median(values)


def grows(measure: str, before: float, after: float) -> bool:
    tolerance = next(each for name, each in TOLERANCES.items() if measure.endswith(name))
    return after > before * (1 + tolerance.share) + tolerance.absolute


# -------------------------------------------------------------------- the job


class Service:
    """A `resurgence serve` with the job."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], url: str) -> None:
        self._folder = folder
        self._process = process
        self._client = httpx.Client(base_url=url, timeout=30)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def database(self) -> Path:
        return self._folder / "state" / ".service" / "resurgence.db"

    def create_job(self) -> None:
        sql = PIPELINE.format(folder=self._folder)
        request = {"name": JOB, "sql": sql, "settings": SETTINGS}
        self._wait("the service answers", lambda: self._client.get("/ready").is_success)
        self._client.post("/v1/jobs", json=request).raise_for_status()
        self._wait("the job commits epochs", lambda: self.epoch() >= 3)

    def epoch(self) -> int:
        """Return the newest committed epoch. The job must not have failed."""
        job = self._client.get(f"/v1/jobs/{JOB}").raise_for_status().json()
        if job["status"]["failure"] is not None or job["status"]["generation"] > 1:
            raise SystemExit(f"the job failed: {job['status']}")
        return int(job["progress"].get("epoch") or 0)

    def add_old_events(self) -> None:
        """Fill the database as after a day."""
        metadata = MetadataStore(self.database)
        event: Event = {"event": "committed", "at": instant_text(datetime.now(UTC)), "epoch": 0}
        metadata.record_events([(JOB, event)] * EVENTS)
        metadata.close()

    def sample(self) -> dict[str, float]:
        """Return the value of each measure, except those of the JVM's heap."""
        found: dict[str, float] = {}
        usages: dict[Role, Usage] = defaultdict(Usage)
        for pid in processes_of(self.pid):
            usages[role_of(pid)] += usage_of(pid)
        for role in (Role.CONTROLLER, Role.DRIVER, Role.JVM, Role.PYTHON_WORKERS):
            found[f"{role}: memory, MiB"] = usages[role].memory
            found[f"{role}: threads"] = usages[role].threads
            found[f"{role}: open files"] = usages[role].open_files
        found["state, files"] = count_files(self._folder / "state")
        found["commit log, files"] = count_files(self._folder / "out", but=".parquet")
        found["temporary files"] = count_files(self._folder / "tmp")
        written = self.database.parent.glob(f"{self.database.name}*")
        found["database, MiB"] = sum(each.stat().st_size for each in written) / 2**20
        return found

    def sample_jvm(self) -> dict[str, float]:
        """Collect the garbage of the JVM; return what is left. Empty without a JDK."""
        jvm = next(each for each in processes_of(self.pid) if role_of(each) is Role.JVM)
        if shutil.which("jcmd") is None:
            return {}
        answers = {}
        for command in ("GC.run", "GC.heap_info", "Compiler.codecache"):
            done = subprocess.run(
                ["jcmd", str(jvm), command], capture_output=True, text=True, check=True, timeout=60
            )
            answers[command] = done.stdout
        heap = re.findall(
            r"(PSYoungGen|ParOldGen|Metaspace) .*used (\d+)K", answers["GC.heap_info"]
        )
        used = {name: int(kilobytes) / 1024 for name, kilobytes in heap}
        code = re.findall(r"size=.* used=(\d+)Kb", answers["Compiler.codecache"])
        return {
            HEAP: used["PSYoungGen"] + used["ParOldGen"],
            "JVM: metaspace, MiB": used["Metaspace"],
            "JVM: code cache, MiB": sum(map(int, code)) / 1024,
        }

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while time.monotonic() < give_up_at:
            with contextlib.suppress(httpx.TransportError):
                if holds():
                    return
            time.sleep(0.2)
        raise SystemExit(f"timed out: {what}\n{(self._folder / 'console').read_text()[-3000:]}")


def count_files(folder: Path, but: str | None = None) -> int:
    """Return how many files are below a folder, without those of one kind."""
    return sum(
        but is None or not name.endswith(but) for _, _, names in os.walk(folder) for name in names
    )


@contextlib.contextmanager
def running_service(folder: Path) -> Iterator[Service]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "resurgence", "serve", "--port", str(port)]
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(
            [*command, "--state-dir", str(folder / "state")],
            stdout=console,
            stderr=console,
            env=os.environ | {"TMPDIR": str(folder / "tmp")},
            start_new_session=True,
        )
    try:
        yield Service(folder, process, f"http://127.0.0.1:{port}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            for pid in processes_of(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()


# -------------------------------------------------------------------- the measurement


def measure(service: Service, seconds: float, slices: int) -> tuple[Samples, int]:
    """Sample a service for so long. Return the samples, and the number of epochs."""
    samples = Samples(seconds, slices)
    began, first = time.monotonic(), service.epoch()
    before, before_at, collections = first, 0.0, 0
    while (elapsed := time.monotonic() - began) < seconds:
        found = service.sample()
        epoch = service.epoch()
        if epoch > before:
            found[EPOCH] = (elapsed - before_at) / (epoch - before)
            before, before_at = epoch, elapsed
        if elapsed > (collections + 0.5) * seconds / slices / COLLECTIONS:
            found |= service.sample_jvm()
            collections += 1
        for measure_name, value in found.items():
            samples.values[measure_name].append((elapsed, value))
        time.sleep(SAMPLE_SECONDS)
    return samples, before - first


def show(report: Report, samples: Samples, slices: int) -> list[str]:
    """Print the table. Return the measures that grow."""
    growing = []
    print(f"{'':32}" + "".join(f"{number + 1:>9}" for number in range(slices)))
    for measure_name, values in samples.values.items():
        report.add_series(measure_name, "seconds", "Resurgence", values)
        cells = "".join(
            f"{'–' if each is None else format(each, ',.3g' if each < 10 else ',.0f'):>9}"
            for each in samples.by_slice(measure_name)
        )
        found = samples.growth(measure_name)
        if found is None:
            verdict = "not judged"
        elif grows(measure_name, *found):
            verdict = "GROWS"
            growing.append(measure_name)
        else:
            verdict = "flat"
        print(f"{measure_name:32}{cells}  {verdict}")
    return growing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--slices", type=int, default=9)
    add_arguments(parser)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="day-", ignore_cleanup_errors=True) as name,
        running_service(Path(name)) as service,
    ):
        service.create_job()
        service.add_old_events()
        samples, epochs = measure(service, options.minutes * 60, options.slices)
    report = Report("day", options)
    print(f"{epochs:,} epochs in {options.minutes:g} minutes; medians of {options.slices} slices\n")
    growing = show(report, samples, options.slices)
    report.save()
    if growing:
        raise SystemExit(f"\ngrowing: {'; '.join(growing)}")


if __name__ == "__main__":
    main()
