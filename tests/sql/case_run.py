"""A case, run in three modes on real storage, each compared with Spark's batch answer."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import InjectedFault
from resurgence.faults import AT_OR_AFTER, FaultPoint
from resurgence.sql import compile_pipeline
from resurgence.udf import UserFunction, load_functions
from tests.engine.harness import WHOLE, Job, Leg, random_legs, write_lines
from tests.sql.cases import ROOT, Case
from tests.sql.changelog import merge
from tests.sql.inputs import final_rows

POINTS = [each for each in FaultPoint if each not in (*AT_OR_AFTER, FaultPoint.SINK_BETWEEN)]
SEALED = (FaultPoint.MANIFEST_PUBLISHED, FaultPoint.SINK_COMMITTING, FaultPoint.SINK_COMMITTED)
"""Points at which the epoch that crashes has a checkpoint."""


@dataclass
class CaseRun:
    """A case in its own folder."""

    spark: SparkSession
    case: Case
    folder: Path
    may_be_empty: bool = False
    """A sink that is expected to be empty is no mistake of the case."""
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.case.name)
        for each in self.case.inputs:
            write_lines(self.folder / f"{each.name}.json", each.rows)
            if each.is_lookup:
                rows = self.spark.read.schema(each.schema).json(f"{self.folder}/{each.name}.json")
                rows.write.parquet(f"{self.folder}/{each.name}")

    def difference(self, mode: str) -> str:
        """Run the case in one of MODES; return how its output differs from the batch answer."""
        MODES[mode](self, self.job(mode))
        return self.compared(mode)

    def job(self, mode: str) -> Job:
        """Return a job that writes to its own folder."""
        folder = self.folder / mode
        folder.mkdir()
        sql = self.case.sql.replace("$input", str(self.folder)).replace("$output", str(folder))
        return Job(self.spark, folder, sql, self._functions)

    def compared(self, mode: str) -> str:
        """Return how the output of a job differs from the batch answer."""
        folder = self.folder / mode
        differences = {
            sink: _difference(self._found(folder / sink, expected), expected)
            for sink, expected in self._expected.items()
        }
        return "\n".join(
            f"run {mode}, sink {sink}:\n{text}" for sink, text in differences.items() if text
        )

    @cached_property
    def _functions(self) -> dict[str, UserFunction]:
        if not self.case.has_functions:
            return {}
        return dict(load_functions(ROOT / "tests/sql/functions.py"))

    @cached_property
    def _expected(self) -> dict[str, Answer]:
        for each in self.case.inputs:
            path = self.folder / f"{each.name}.batch.json"
            is_changes = bool(each.rows) and "op" in each.rows[0]
            write_lines(path, final_rows(each.rows) if is_changes else each.rows)
            rows = self.spark.read.schema(each.schema).json(str(path))
            rows.createOrReplaceTempView(each.name)
        if self.case.is_example:
            self._view_generator()
        answers = {
            sink: answer(self.spark.sql(query)) for sink, query in self.case.expected.items()
        }
        assert self.may_be_empty or all(each.rows for each in answers.values()), (
            "a case that expects nothing shows nothing"
        )
        return answers

    def _view_generator(self) -> None:
        declaration = re.sub(r"--.*", "", self.case.sql).partition(";")[0]
        table = declaration.split()[2]
        (operator,) = compile_pipeline(
            f"{declaration}; SELECT * FROM {table}", CONNECTORS
        ).sources()
        source, now = make_source(operator), datetime(2024, 1, 1, tzinfo=UTC)
        planned = source.plan(source.first_offset(now, 1), WHOLE, now)
        assert planned is not None
        assert planned.final
        source.read(self.spark, planned, 1).createOrReplaceTempView(table)

    def _found(self, path: Path, expected: Answer) -> Answer:
        """Return the rows of a sink; JSON is read with the expected types."""
        rows_file, changes_file = path.with_suffix(".json"), path.with_suffix(".changes")
        if changes_file.exists():
            lines = merge(changes_file.read_text(encoding="utf-8").splitlines())
        elif rows_file.exists():
            lines = rows_file.read_text(encoding="utf-8").splitlines()
        elif any(path.glob("*.parquet")):
            return answer(self.spark.read.parquet(str(path)))
        else:
            return Answer(expected.schema, Counter())
        if not lines:
            return Answer(expected.schema, Counter())
        text = self.spark.createDataFrame([(each,) for each in lines], "line STRING")
        names = {name for line in lines for name in json.loads(line)}
        by_name = {each.name: each for each in expected.schema}
        if names != set(by_name):
            raise AssertionError(f"columns are {sorted(names)}, expected {list(by_name)}")
        schema = StructType([StructField(name, each.dataType) for name, each in by_name.items()])
        return answer(self.spark.read.schema(schema).json(text))


@dataclass(frozen=True)
class Answer:
    """Rows as a multiset of texts, in which floats have nine digits."""

    schema: StructType
    rows: Counter[str]
    values: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """A row by its text."""


def answer(rows: DataFrame) -> Answer:
    """Return all rows of a query."""
    values = [tuple(each) for each in rows.collect()]
    texts = [_text(each) for each in values]
    return Answer(rows.schema, Counter(texts), dict(zip(texts, values, strict=True)))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_text(k)}: {_text(v)}' for k, v in value.items()))}}}"
    return repr(value)


def _is_close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-7)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    return one == other


def _difference(found: Answer, expected: Answer) -> str:
    if found.rows == expected.rows:
        return ""
    extra, missing = found.rows - expected.rows, expected.rows - found.rows
    for one, other in itertools.product(list(extra), list(missing)):
        # The order of a sum is not fixed in Spark either, so a last digit may differ.
        if _is_close(found.values[one], expected.values[other]):
            same = min(extra[one], missing[other])
            extra[one] -= same
            missing[other] -= same
    extra, missing = +extra, +missing
    if not extra and not missing:
        return ""
    lines = [f"{found.rows.total()} rows, expected {expected.rows.total()}"]
    lines += [f"  too much {row} x{count}" for row, count in sorted(extra.items())[:8]]
    lines += [f"  missing  {row} x{count}" for row, count in sorted(missing.items())[:8]]
    return "\n".join(lines)


# ---------------------------------------------------------------- the three modes


def _whole(case_run: CaseRun, job: Job) -> None:
    job.run([Leg(case_run.case.epoch_rows or WHOLE)])


def _crashed(case_run: CaseRun, job: Job) -> None:
    """Crash so that a new engine restores the checkpoint of the epoch in the middle."""
    leg = Leg(_half(case_run.case), parallelism=case_run.rng.choice((1, 2)))
    middle = (-(-case_run.case.rows // leg.rows) + 1) // 2
    point = case_run.rng.choice(POINTS)
    fault = f"{point}@{middle if point in SEALED else middle + 1}=raise"
    job.settings = {"faults": fault}
    with pytest.raises(Exception) as raised:
        _drain(job.open(leg))
    assert isinstance(translate(raised.value), InjectedFault), raised.value
    engine = job.open(leg)
    assert engine.epoch == middle, f"{fault} fired, and epoch {engine.epoch} was restored"
    tables = engine._pipeline.live_files()
    stateless = [operator_id for operator_id, table in tables.items() if not table.files]
    assert not stateless, f"{stateless} had no state to restore at {fault}"
    _drain(engine)


def _drain(engine: Engine) -> None:
    while not engine.finished:
        assert engine.run_epoch() is not None


def _rescaled(case_run: CaseRun, job: Job) -> None:
    if case_run.case.epoch_rows is not None:
        legs = [Leg(case_run.case.epoch_rows, 1, epochs=2), Leg(case_run.case.epoch_rows, 3)]
    else:
        legs = random_legs(case_run.rng.randrange(1000), case_run.case.rows, 2, (1, 3))
    job.run(legs)


def _half(case: Case) -> int:
    """Return the number of rows for which the input takes two epochs, unless the case fixes it."""
    return case.epoch_rows or max(1, -(-case.rows // 2))


MODES: dict[str, Callable[[CaseRun, Job], None]] = {
    "whole": _whole,
    "crashed": _crashed,
    "rescaled": _rescaled,
}
