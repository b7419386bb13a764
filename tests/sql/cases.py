"""SQL cases: a pipeline as a user writes it, its input, and the batch queries that answer it.

A case is a file of SQL. Comments at its top say what it shows and on what it runs:

    -- input: rides 500          rows of tests/sql/inputs.py, declared as a table of that name,
                                 or `rides as NAME`
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
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tests.sql.inputs import INPUTS, Input, Record

FOLDER = Path(__file__).parent / "cases"
ROOT = Path(__file__).parents[2]
EVENTS = 3000
"""How many events an example is run with."""

_CREATED = re.compile(r"\bCREATE (?:TEMPORARY )?(?:TABLE|VIEW) (\w+)")
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
            what, _, name = text.partition(" as ")
            kind, *count = what.split()
            made.append(replace(INPUTS[kind](*map(int, count)), name=name or kind))
        delay = self.header.values.get("delay", "1 second")
        for name, columns, is_lookup, rows in self.header.literals:
            made.append(Input(name, columns, tuple(rows), delay, is_lookup))
        return tuple(made)

    @property
    def sql(self) -> str:
        """The whole pipeline, with $input and $output for the folders of a run."""
        return "".join(self.declarations.values()) + self.sink + self.pipeline

    @property
    def declarations(self) -> dict[str, str]:
        """CREATE TABLE by source, where the case leaves it out."""
        if "undeclared" in self.header.values:
            return {}
        return {each.name: each.declaration for each in self.inputs if not each.is_lookup}

    @property
    def rows(self) -> int:
        """How many rows the longest input has."""
        return EVENTS if self.is_example else max(len(each.rows) for each in self.inputs)

    @property
    def epoch_rows(self) -> int | None:
        """How many rows an epoch takes, if that is not left to rng."""
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
    def shared_names(self) -> set[str]:
        """Sources that it reads as others do."""
        if self.is_example:
            return {_CREATED.findall(self.pipeline)[0]}
        return set(self.header.inputs) & self.declarations.keys()

    @property
    def own_names(self) -> set[str]:
        """Tables and views that another case may have, too, and mean something else by."""
        inputs = {each.name for each in self.inputs}
        created = _CREATED.findall(self.sink + self.pipeline)
        return (inputs | set(created)) - self.shared_names

    @property
    def is_combinable(self) -> bool:
        """Its own names can be distinguished from its columns, and it sets nothing that others would share."""
        columns = {word for each in self.inputs for word in re.findall(r"\w+", each.columns)}
        return (
            not self.own_names & columns
            and not re.search(r"\bSET\b", self.pipeline)
            and "status" not in self.header.values
        )

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


def combined(name: str, cases: Sequence[Case]) -> Case:
    """Cases as one pipeline. What a case does not share gets a name that ends with the case's."""
    header, declarations, expected = Header(), dict[str, str](), dict[str, str]()
    header.values = {key: value for each in cases for key, value in each.header.values.items()}
    header.values["undeclared"] = ""
    pipeline = ""
    for case in cases:
        own, text = case.own_names, case.pipeline
        if case.is_example:
            declaration, _, text = text.partition(";")
            declarations[declaration.partition("CREATE")[2]] = f"{declaration};"
        for table, declaration in case.declarations.items():
            declarations[_renamed(table, own, case)] = _renamed(declaration, own, case)
        pipeline += _renamed(case.sink + text, own, case)
        expected |= {
            _renamed(sink, own, case): _renamed(query, own, case)
            for sink, query in case.expected.items()
        }
        for table in case.header.inputs:
            kind = table.split()[0]
            renamed = f"{table} as {kind}_{case.name}" if kind in own else table
            if renamed not in header.inputs:
                header.inputs.append(renamed)
        for table, columns, is_lookup, rows in case.header.literals:
            header.literals.append((_renamed(table, own, case), columns, is_lookup, rows))
    return Case(name, header, "\n".join(declarations.values()) + pipeline, expected)


def _renamed(text: str, names: set[str], case: Case) -> str:
    """SQL in which these names, also in paths, end with the name of a case."""
    words = re.compile(rf"(?<!\$)\b({'|'.join(names)})\b")

    def rename(match: re.Match[str]) -> str:
        part = match[0]
        if part.startswith("'") and "put/" not in part:
            return part
        return words.sub(rf"\1_{case.name}", part)

    return re.sub(r"'[^']*'|[^']+", rename, text) if names else text


def load_combined(cases: Iterable[Case], most: int = 13) -> list[Case]:
    """The same cases in fewer pipelines: up to `most` that are cut into epochs alike in each."""
    alone, sharing = list[Case](), dict[str, list[Case]]()
    for each in cases:
        if each.is_combinable:
            kind = "events" if each.is_example else "functions" if each.has_functions else "rows"
            cut = f"_by_{each.epoch_rows}" if each.epoch_rows else ""
            sharing.setdefault(f"{each.rows}_{kind}{cut}", []).append(each)
        else:
            alone.append(each)
    shared = []
    for name, members in sharing.items():
        parts = -(-len(members) // most)
        for number in range(parts):
            part = members[number::parts]
            shared.append(combined(f"{name}-{number + 1}", part) if len(part) > 1 else part[0])
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
    if "pipeline" in header.values:
        pipeline = _example(ROOT / header.values["pipeline"])
    return Case(
        name=path.stem,
        header=header,
        pipeline=pipeline,
        expected={sink: sql.strip().rstrip(";") for sink, sql in expected.items()},
    )


def _example(path: Path) -> str:
    text = re.sub(r"--.*", "", path.read_text(encoding="utf-8"))
    text = text.replace("'in/", "'$input/").replace("'out/", "'$output/")
    return re.sub(r"message_count = \d+", f"message_count = {EVENTS}", text)
