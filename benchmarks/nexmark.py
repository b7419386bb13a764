"""Nexmark: rows per second of its 23 queries, beside Structured Streaming, Flink and a batch of Spark.

All systems read the same events from Parquet files, use two cores, and write files: Parquet where the
result is append-only, JSON lines where it is a changelog. Resurgence and Structured Streaming take
the same rows in an epoch, and Flink's checkpoints are as far apart as `--checkpoint-seconds` says. A
batch of Spark reads everything at once, has no state and no checkpoints: the limit.

Each query of each system has a process of its own, which runs the query once to warm up, and then
`--repetitions` times. The seconds are from opening the job to its end, when all output is committed;
Flink's are those that it reports for the job, which exclude planning. Structured Streaming runs with
the faster one of its state stores. The output of every repetition is compared with the answer of the
batch: a wrong answer has no figure. One of Resurgence fails the command.

    python benchmarks/nexmark.py [--queries q0,q5] [--systems streaming,flink,batch] [--rows N]
                                 [--epoch-rows N] [--repetitions N] [--json FILE] [--plot FILE]

Flink is installed into the cache folder on first use. Without it, the others are compared. Only
ratios within one run are comparable.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.nexmark_systems import flink
from benchmarks.nexmark_systems.answers import Answer, answer, columns_of
from benchmarks.nexmark_systems.events import Events, generate
from benchmarks.nexmark_systems.queries import NAMES, Query, System, read_query
from benchmarks.nexmark_systems.runs import CORES, Repetition, Run, RunFailed, execute
from benchmarks.nexmark_systems.spark_runs import run_in_this_process
from benchmarks.report import Goal, Report, add_arguments, at_least, spread_of
from benchmarks.window_aggregate import stock_session

SYSTEMS = {
    "batch": System.BATCH,
    "resurgence": System.RESURGENCE,
    "streaming": System.STREAMING,
    "flink": System.FLINK,
}
"""By their names in `--systems`. The batch is first because its answer is the one expected."""
STATELESS_GOAL, STATEFUL_GOAL = at_least(1.2), at_least(3)
FLINK_GOAL, FLINK_MEDIAN_GOAL = at_least(1), at_least(2)
BATCH_GOAL = at_least(0.5)
_DEADLINE_SECONDS = 120
"""Of a process, besides the time that its repetitions may take."""


@dataclass
class Found:
    """The figures of each repetition of one query, by system."""

    query: Query
    rates: dict[System, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[System, list[float]] = field(default_factory=dict)
    is_wrong: bool = False


def goal_of(query: Query, system: System) -> Goal:
    if system is System.STREAMING:
        return STATELESS_GOAL if query.is_stateless else STATEFUL_GOAL
    return FLINK_GOAL if system is System.FLINK else BATCH_GOAL


class Comparison:
    """Runs the queries in all systems."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._events = Events(options.rows, options.epoch_rows)
        self.systems = [SYSTEMS[each] for each in options.systems]
        self._flink: Path | None = None

    def prepare(self) -> None:
        """Generate the events, and install Flink."""
        if not self._events.folder.exists():
            print(
                f"generating {self._options.rows:,} events into {self._events.folder}", flush=True
            )
            command = [sys.executable, __file__, "--generate"]
            command += ["--rows", str(self._events.rows)]
            command += ["--epoch-rows", str(self._events.epoch_rows)]
            try:
                execute(command, self._deadline)
            except RunFailed as error:
                raise SystemExit(f"no events: {error}") from error
        if System.FLINK in self.systems:
            try:
                self._flink = flink.installed()
            except RunFailed as error:
                print(f"without Flink: {error}", flush=True)
                self.systems.remove(System.FLINK)

    @property
    def _deadline(self) -> float:
        return float(_DEADLINE_SECONDS + self._options.deadline)

    def measure(self, query: Query) -> Found:
        """Run a query in each system, and print its figures."""
        print(query.name, flush=True)
        found = Found(query)
        expected: Answer | None = None
        columns: dict[str, str] = {}
        for system in (System.BATCH, *(each for each in self.systems if each is not System.BATCH)):
            if system in query.reasons:
                print(f"  {system:22} cannot express it: {query.reasons[system]}", flush=True)
                continue
            folder = self._folder / f"{query.name}-{system.name.lower()}"
            try:
                repetitions = self._run(query, system, folder)
                if system is System.BATCH:
                    columns = columns_of(Path(repetitions[0].output))
                    expected = answer(query, system, Path(repetitions[0].output), columns)
                assert expected is not None
                check(query, system, repetitions, columns, expected)
            except WrongAnswer as error:
                found.is_wrong |= system is System.RESURGENCE
                print(f"  {system:22} WRONG: {error}", flush=True)
            except RunFailed as error:
                found.is_wrong |= system in (System.RESURGENCE, System.BATCH)
                print(f"  {system:22} FAILED: {error}", flush=True)
            else:
                self._show(found, system, repetitions, expected)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            if expected is None:
                break
        return found

    def _show(
        self, found: Found, system: System, repetitions: list[Repetition], expected: Answer
    ) -> None:
        warm = [each for each in repetitions if each.is_warm]
        if not warm or system not in self.systems:
            return
        found.rates[system] = [self._events.rows / each.seconds for each in warm]
        found.cpu_seconds[system] = [each.cpu_seconds for each in warm]
        spread = spread_of(found.rates[system])
        print(
            f"  {system:22} {spread.median:12,.0f} rows/s ({spread.low:,.0f} to {spread.high:,.0f}),"
            f" {statistics.median(each.seconds for each in warm):.2f} s,"
            f" {statistics.median(found.cpu_seconds[system]):.1f} s of CPU,"
            f" {expected.rows:,} rows {warm[0].variant}".rstrip(),
            flush=True,
        )

    def _run(self, query: Query, system: System, folder: Path) -> list[Repetition]:
        count = self._options.repetitions if system in self.systems else 0
        run = Run(system, query.name, self._events, folder, count)
        if system is not System.FLINK:
            return execute([sys.executable, __file__, "--run", run.as_json()], self._deadline)
        assert self._flink is not None
        settings = flink.settings(self._options.flink_state, self._options.checkpoint_seconds)
        return flink.run_flink(self._flink, run, query, settings, self._deadline)


class WrongAnswer(Exception):
    """The output of a system is not the answer."""


def check(
    query: Query,
    system: System,
    repetitions: list[Repetition],
    columns: dict[str, str],
    expected: Answer,
) -> None:
    """Raise WrongAnswer unless each repetition has the expected answer."""
    for each in repetitions:
        found = answer(query, system, Path(each.output), columns)
        if found != expected:
            raise WrongAnswer(f"{found} instead of {expected} {each.variant}".rstrip())


def compare(report: Report, found: list[Found], systems: list[System]) -> None:
    """Add the figures and ratios of all queries to the report."""
    for each in found:
        for system, rates in each.rates.items():
            report.add("rows/s", each.query.name, system, rates)
        for system, seconds in each.cpu_seconds.items():
            report.add("CPU seconds", each.query.name, system, seconds)
    for system in systems:
        if system is System.RESURGENCE:
            continue
        print(f"rows per second of Resurgence, over {system}")
        medians = []
        for each in found:
            if {system, System.RESURGENCE} <= each.rates.keys():
                ours, theirs = each.rates[System.RESURGENCE], each.rates[system]
                goal = goal_of(each.query, system)
                report.compare(f"{each.query.name}, over {system}", ours, theirs, goal)
                medians.append(report.ratios[-1].spread.median)
        if medians:
            goal_of_all = FLINK_MEDIAN_GOAL if system is System.FLINK else None
            report.compare(f"median of the queries, over {system}", medians, [1.0], goal_of_all)


def names(known: tuple[str, ...], text: str) -> list[str]:
    chosen = text.split(",")
    unknown = [each for each in chosen if each not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
    return [each for each in known if each in chosen]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--queries", type=lambda text: names(NAMES, text), default=[*NAMES])
    made.add_argument(
        "--systems",
        type=lambda text: names(tuple(SYSTEMS), text),
        default=[*SYSTEMS],
        help="the systems to compare with: batch, streaming, flink; resurgence always runs",
    )
    made.add_argument("--rows", type=int, default=2_000_000, help="events, at most 80 million")
    made.add_argument("--epoch-rows", type=int, default=250_000, help="events of an epoch")
    made.add_argument("--repetitions", type=int, default=3)
    made.add_argument("--checkpoint-seconds", type=float, default=1, help="between Flink's")
    made.add_argument("--flink-state", choices=flink.STATE_BACKENDS, default="hashmap")
    made.add_argument("--deadline", type=float, default=600, help="seconds of each process")
    made.add_argument("--run", help=argparse.SUPPRESS)
    made.add_argument("--generate", action="store_true", help=argparse.SUPPRESS)
    add_arguments(made)
    return made


def main() -> None:
    options = parser().parse_args()
    # The same cores for all, however many the machine has.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    if options.run is not None:
        run_in_this_process(Run.from_json(options.run))
        return
    if options.generate:
        spark = stock_session()
        generate(spark, Events(options.rows, options.epoch_rows))
        spark.stop()
        return
    options.systems = names(tuple(SYSTEMS), ",".join([*options.systems, "resurgence"]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        comparison = Comparison(options, Path(folder))
        comparison.prepare()
        found = [comparison.measure(read_query(each)) for each in options.queries]
    report = Report("nexmark", options)
    compare(report, found, [SYSTEMS[each] for each in options.systems])
    report.save()
    wrong = [each.query.name for each in found if each.is_wrong]
    if wrong:
        raise SystemExit(f"failed, or a wrong answer: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
