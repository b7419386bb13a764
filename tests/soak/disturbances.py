"""Random events in the life of a job: crashes, rescales, damage, edits, rollbacks; and a job that
goes through them, as a controller would run it.

A crash is an engine that is discarded at a fault point. Every few pipelines are run by real
processes instead, which kill themselves.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resurgence.cli.commands.rollback import roll_back
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import DamagedState, InjectedFault, ResurgenceError
from resurgence.faults import AT_OR_AFTER, FaultPoint
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from tests.engine.harness import Job, Leg
from tests.sql.cases import ROOT

EXTRA_SINK = """
CREATE TABLE extra WITH (connector = 'blackhole', format = 'debezium_json', type = 'sink');
INSERT INTO extra SELECT id FROM {table} WHERE id < 0;
"""
"""An edit that keeps all state, if the table is read without it, too."""

_POINTS = [each for each in FaultPoint if each not in (*AT_OR_AFTER, FaultPoint.SINK_BETWEEN)]
_PROCESS_DEADLINE_SECONDS = 600


@dataclass(frozen=True)
class Step:
    """A stretch of a job's life: how it is opened, and what ends it."""

    rows: int
    """Per epoch."""
    parallelism: int
    epochs: int
    """After so many it ends, without any trouble."""
    fault: FaultPoint | None = None
    """Where its last epoch fails."""
    damage: str = ""
    """What is damaged before it begins: `manifest`, `operator` or `state`."""
    is_edited: bool = False
    rolls_back: bool = False


def random_steps(seed: int, rows: int) -> list[Step]:
    """Two to six steps; what is left of the input is read after them."""
    rng = random.Random(f"steps {seed}")
    return [
        Step(
            rows=rng.randint(max(1, rows // 12), max(2, rows // 2)),
            parallelism=rng.choice([1, 2, 2, 3, 5]),
            epochs=rng.randint(1, 3),
            fault=rng.choice([*_POINTS, None]),
            damage=rng.choice(["", "", "", "manifest", "operator", "state"]),
            is_edited=rng.random() < 0.2,
            rolls_back=rng.random() < 0.1,
        )
        for _ in range(rng.randint(2, 6))
    ]


@dataclass
class DisturbedJob:
    """A job and what has happened to it so far."""

    job: Job
    rng: random.Random
    damaged: frozenset[str] = frozenset()
    """State files that proved unreadable."""
    happened: list[str] = field(default_factory=list)
    sql: str = ""

    def live(self, steps: Sequence[Step]) -> None:
        """Go through the steps, then to the end of the input."""
        self.sql = self.job.sql
        for number, step in enumerate(steps):
            if self._take(step, number):
                return
        last = Step(rows=10**6, parallelism=2, epochs=10**6)
        while not self._take(last, len(steps)):
            pass

    def _take(self, step: Step, number: int) -> bool:
        """Whether the input has come to its end."""
        if step.damage:
            self._damage(step.damage)
        if step.rolls_back:
            self._roll_back()
        self.job.sql = self.sql
        if step.is_edited:
            source = self._graph().sources()[0].id
            self.job.sql += EXTRA_SINK.format(table=source.removeprefix("source-"))
        try:
            engine = self._open(step)
            for _ in range(step.epochs):
                if engine.finished:
                    return True
                if engine.run_epoch() is None:
                    raise AssertionError("a bounded input gave no epoch")
            if step.fault is not None and not engine.finished:
                self._crash(step, engine)
            return engine.finished
        except Exception as raised:
            error = translate(raised)
            if isinstance(error, InjectedFault):
                self.happened.append(f"crashed: {error}")
            elif isinstance(error, DamagedState) and error.path not in self.damaged:
                self.happened.append(f"found damaged: {error.path}")
                self.damaged |= {error.path}
            else:
                raise
            return False

    def _open(self, step: Step, faults: str = "") -> Engine:
        self.job.settings = {
            "checkpoint.keep": str(self.rng.choice([3, 5, 10])),
            "checkpoint.compact_files": str(self.rng.choice([2, 4, 8])),
            "faults": faults,
        }
        engine = self.job.open(Leg(step.rows, step.parallelism), self.damaged)
        self.happened.append(
            f"opened at epoch {engine.epoch}: {step.rows} rows, {step.parallelism} subtasks"
        )
        return engine

    def _crash(self, step: Step, engine: Engine) -> None:
        """Run one more epoch, which crashes."""
        if f"crashed: fault injected at {step.fault}, epoch {engine.epoch + 1}" in self.happened:
            return  # A fault fires once, also if its epoch is run again.
        engine = self._open(step, f"{step.fault}@{engine.epoch + 1}=raise")
        if not engine.finished:
            engine.run_epoch()
            raise AssertionError(f"{step.fault} did not fire at epoch {engine.epoch}")

    def _damage(self, kind: str) -> None:
        """Flip bits in an object of the newest checkpoint that no older one names."""
        state = self.job.folder / "state" / self.job.name
        epochs = sorted(each.name for each in (state / "epochs").glob("*") if _is_sealed(each))
        if len(epochs) < 2:
            return
        newest = state / "epochs" / epochs[-1]
        found = {
            "manifest": sorted(newest.glob("manifest-*.json"))[-1:],
            "operator": sorted(newest.glob("operator-*.json")),
            "state": sorted(state.glob(f"tables/*/*/{int(epochs[-1])}-*.parquet")),
        }[kind]
        if found:
            path = self.rng.choice(found)
            data = bytearray(path.read_bytes())
            data[self.rng.randrange(len(data))] ^= self.rng.randint(1, 255)
            path.write_bytes(bytes(data))
            self.happened.append(f"damaged {path.relative_to(state)}")

    def _roll_back(self) -> None:
        """To the newest checkpoint but one, if there is one that is whole."""
        backend = StateBackend(self.job.store, JobName(self.job.name))
        state = self.job.folder / "state" / self.job.name / "epochs"
        epochs = sorted(int(each.name) for each in state.glob("*") if _is_sealed(each))
        if len(epochs) < 2:
            return
        try:
            roll_back(
                backend, self._graph(), Epoch(epochs[-2]), dry_run=False, accept_duplicates=False
            )
        except ResurgenceError as error:
            self.happened.append(f"no rollback: {error}")
        else:
            self.happened.append(f"rolled back to epoch {epochs[-2]}")

    def _graph(self) -> Graph:
        kinds = {name: each.kind for name, each in self.job.functions.items()}
        return compile_pipeline(self.sql, CONNECTORS, kinds)


def _is_sealed(epoch: Path) -> bool:
    return any(epoch.glob("manifest-*.json")) and not any(epoch.glob("condemned-*.json"))


def run_in_processes(job: Job, seed: int, rows: int) -> str:
    """The whole of it with `resurgence run`, killed three times; what it printed."""
    rng = random.Random(f"processes {seed}")
    epochs = rng.sample(range(1, 6), 3)
    kills = ",".join(f"{rng.choice(_POINTS)}@{epoch}=kill" for epoch in sorted(epochs))
    (job.folder / "pipeline.sql").write_text(job.sql, encoding="utf-8")
    command = f"""{sys.executable} -m resurgence run pipeline.sql --udfs {ROOT}/tests/sql/functions.py
        --epoch-rows {max(1, rows // 6)} --set pipeline.initial_backoff=50ms --set faults={kills}"""
    done = subprocess.run(
        command.split(),
        cwd=job.folder,
        capture_output=True,
        text=True,
        timeout=_PROCESS_DEADLINE_SECONDS,
        check=False,
    )
    struck = done.stderr.count("failure (worker_exited")
    if done.returncode != 0 or struck != len(epochs):
        raise AssertionError(f"{kills}: exit {done.returncode}, {struck} kills\n{done.stderr}")
    return f"killed at {kills}"
