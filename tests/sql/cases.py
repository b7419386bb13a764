"""SQL cases: a pipeline as a user writes it, its input, and the batch queries that answer it.

A case is a file of SQL. Comments at its top say what it shows and on what it runs:

    -- input: rides 500          rows of tests/sql/inputs.py, declared as a table of that name
    -- literal: t (a INT, …)     rows that follow, each a comment of JSON; declared likewise
    -- lookup: t (a INT, …)      likewise, but a folder of Parquet files at $input/NAME, not declared
    -- delay: 5 seconds          how far the watermark of literal rows lags behind `at`
    -- undeclared                the case declares its sources itself, at $input/NAME.json
    -- pipeline: FILE            the pipeline is an example; paths in in/ and out/ are moved
    -- sink: changelog           `output` takes updates; otherwise it takes rows
    -- epoch_rows: 1             every run is cut so, for rows that are to be late
    -- functions                 the pipeline calls functions of tests/sql/functions.py
    -- status: pending REASON    expected to fail, until someone makes it work

`-- expect NAME` begins the query in Spark's batch SQL that says what sink NAME holds at the end.
Inputs are views there. `output` need not be declared; other sinks write to $output/NAME (Parquet),
$output/NAME.json (rows) or $output/NAME.changes (Debezium).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.sql.inputs import INPUTS, Input, Record

FOLDER = Path(__file__).parent / "cases"
ROOT = Path(__file__).parents[2]
EVENTS = 3000
"""How many events an example is run with."""

_DIRECTIVE = re.compile(r"--\s*(\w+)(?::\s*(.*))?")
_LITERAL = re.compile(r"(\w+) \((.*)\)")
_LITERALS = frozenset({"literal", "lookup"})
_FLAGS = frozenset({"undeclared", "functions"})
_WORDS = frozenset({"delay", "pipeline", "sink", "epoch_rows", "status"})
_ROWS_SINK = (
    "CREATE TABLE output WITH (connector = 'filesystem', path = '$output/output',"
    " format = 'parquet', type = 'sink');\n"
)
_CHANGELOG_SINK = (
    "CREATE TABLE output WITH (connector = 'single_file', path = '$output/output.changes',"
    " format = 'debezium_json', type = 'sink');\n"
)


class BadCase(Exception):
    """The file is not a case."""


@dataclass
class Header:
    """The directives at the top of a file."""

    values: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    literals: list[tuple[str, str, bool, list[Record]]] = field(default_factory=list)

    def add(self, line: str) -> None:
        if line.startswith("-- {"):
            self.literals[-1][3].append(json.loads(line[3:]))
            return
        match = _DIRECTIVE.fullmatch(line)
        word, value = match.groups() if match else ("", None)
        if word in _FLAGS and value is None:
            self.values[word] = ""
        elif word == "input" and value:
            self.inputs.append(value)
        elif word in _LITERALS and value and (literal := _LITERAL.fullmatch(value)):
            self.literals.append((literal[1], literal[2], word == "lookup", []))
        elif word in _WORDS and value:
            self.values[word] = value
        # Any other line says what the case shows.


@dataclass(frozen=True)
class Case:
    """One case. Its input is made when it is asked for."""

    name: str
    header: Header
    pipeline: str
    expected: dict[str, str]
    """Batch query by sink."""

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        made = []
        for text in self.header.inputs:
            name, *count = text.split()
            made.append(INPUTS[name](*map(int, count)))
        delay = self.header.values.get("delay", "1 second")
        for name, columns, is_lookup, rows in self.header.literals:
            made.append(Input(name, columns, tuple(rows), delay, is_lookup))
        return tuple(made)

    @property
    def sql(self) -> str:
        """The whole pipeline, with $input and $output for the folders of a run."""
        declared = "".join(
            each.declaration
            for each in self.inputs
            if "undeclared" not in self.header.values and not each.is_lookup
        )
        return declared + self.sink + (self._example or self.pipeline)

    @property
    def rows(self) -> int:
        """How many rows the longest input has."""
        return EVENTS if self.is_example else max(len(each.rows) for each in self.inputs)

    @property
    def epoch_rows(self) -> int | None:
        """How many rows an epoch takes, if that is not left to chance."""
        text = self.header.values.get("epoch_rows")
        return int(text) if text else None

    @property
    def is_example(self) -> bool:
        """Its source is a generator, which its first statement declares."""
        return "pipeline" in self.header.values

    @property
    def has_functions(self) -> bool:
        return "functions" in self.header.values

    @property
    def is_combinable(self) -> bool:
        """It is nothing but one INSERT INTO output over declared inputs, cut at will."""
        return (
            list(self.expected) == ["output"]
            and self.pipeline.count("INSERT INTO output") == 1
            and not re.search(r"\b(CREATE|SET)\b", self.pipeline)
            and not self.header.values.keys() & {"pipeline", "epoch_rows", "undeclared", "status"}
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """What it reads: cases that read the same can share a pipeline."""
        literals = [f"{self.name}.{name}" for name, *_ in self.header.literals]
        return (*self.header.inputs, *literals)

    @property
    def pending(self) -> str | None:
        """Why it cannot work yet."""
        status = self.header.values.get("status")
        return status.removeprefix("pending ") if status else None

    @property
    def sink(self) -> str:
        """The declaration of `output`, where the case leaves it out."""
        if "output" not in self.expected or self.is_example:
            return ""
        is_changelog = self.header.values.get("sink") == "changelog"
        return _CHANGELOG_SINK if is_changelog else _ROWS_SINK

    @property
    def _example(self) -> str | None:
        if not self.is_example:
            return None
        text = (ROOT / self.header.values["pipeline"]).read_text(encoding="utf-8")
        text = text.replace("'in/", "'$input/").replace("'out/", "'$output/")
        return re.sub(r"message_count = \d+", f"message_count = {EVENTS}", text)


def combined(name: str, cases: Sequence[Case]) -> Case:
    """Cases over the same inputs as one pipeline with an INSERT for each; a case's sink has its
    name, behind `of_`.
    """
    pipeline = ""
    for each in cases:
        sink_name = f"of_{each.name}"
        sink = each.sink.replace("TABLE output", f"TABLE {sink_name}")
        pipeline += sink.replace("$output/output", f"$output/{sink_name}")
        pipeline += each.pipeline.replace("INSERT INTO output", f"INSERT INTO {sink_name}")
    return Case(
        name=name,
        header=Header(
            {key: value for each in cases for key, value in each.header.values.items()},
            cases[0].header.inputs,
            cases[0].header.literals,
        ),
        pipeline=pipeline,
        expected={f"of_{each.name}": each.expected["output"] for each in cases},
    )


def load_combined(cases: Iterable[Case], most: int = 13) -> list[Case]:
    """The same cases in fewer pipelines: as many as read the same, up to `most`, in each."""
    alone, sharing = list[Case](), dict[tuple[str, ...], list[Case]]()
    for each in cases:
        if each.is_combinable:
            sharing.setdefault(each.input_names, []).append(each)
        else:
            alone.append(each)
    shared = []
    for inputs, members in sharing.items():
        parts = -(-len(members) // most)
        for number in range(parts):
            name = f"{'_'.join(inputs).replace(' ', '_')}-{number + 1}"
            part = members[number::parts]
            shared.append(combined(name, part) if len(part) > 1 else part[0])
    return shared + alone


def load_cases(folder: Path = FOLDER) -> list[Case]:
    """All cases of a folder, by name."""
    return [read_case(path) for path in sorted(folder.glob("**/*.sql"))]


def read_case(path: Path) -> Case:
    """One case; raises BadCase."""
    header, pipeline, expected = Header(), "", dict[str, str]()
    current: str | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-- expect "):
            current = line.removeprefix("-- expect ").strip()
            expected[current] = ""
        elif current is not None:
            expected[current] += line + "\n"
        elif line.startswith("--") and not pipeline.strip():
            header.add(line)
        else:
            pipeline += line + "\n"
    status = header.values.get("status")
    if status is not None and not status.startswith("pending "):
        raise BadCase(f"{path}: status is 'pending REASON'")
    if not expected:
        raise BadCase(f"{path}: nothing is expected")
    return Case(
        name=path.stem,
        header=header,
        pipeline=pipeline,
        expected={sink: sql.strip().rstrip(";") for sink, sql in expected.items()},
    )
