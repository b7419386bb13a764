"""The queries of Nexmark in the dialect of each system.

`sql/` has a file for each: lines `-- in SYSTEM` begin the text for a system, `-- not SYSTEM: reason`
says why there is none. Without a text of its own, Resurgence runs the INSERT of the example of that
name, and Structured Streaming the text for Spark. `-- changelog:` lists the systems for which
the result is updating, `-- key:` the columns by which Structured Streaming updates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FOLDER = Path(__file__).with_name("sql")
EXAMPLES = Path(__file__).parents[2] / "examples" / "nexmark"
NAMES = tuple(f"q{number}" for number in range(23))
STATELESS = frozenset({"q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22"})


class System(StrEnum):
    RESURGENCE = "Resurgence"
    STREAMING = "Structured Streaming"
    FLINK = "Flink"
    BATCH = "batch"


@dataclass(frozen=True)
class Query:
    """One query. `texts` has the systems that can express it."""

    name: str
    texts: Mapping[System, str]
    reasons: Mapping[System, str]
    """Why a system cannot express it."""
    changelogs: frozenset[System]
    key: tuple[str, ...]

    @property
    def is_stateless(self) -> bool:
        return self.name in STATELESS


def read_query(name: str) -> Query:
    _, _, insert = (EXAMPLES / f"{name}.sql").read_text().partition(f"INSERT INTO {name}\n")
    return parse(name, (FOLDER / f"{name}.sql").read_text(), insert.strip().removesuffix(";"))


def parse(name: str, text: str, insert: str) -> Query:
    """Return a query from its file and the text of Resurgence."""
    sections: dict[str, list[str]] = {}
    facts: dict[str, str] = {}
    current = None
    for line in text.splitlines():
        if line.startswith("-- in "):
            current = sections.setdefault(line.removeprefix("-- in "), [])
        elif current is not None:
            current.append(line)
        else:
            label, _, value = line.removeprefix("-- ").partition(": ")
            facts[label] = value
    texts = {label: "\n".join(lines).strip() for label, lines in sections.items()}
    reasons = {each: facts[f"not {each}"] for each in System if f"not {each}" in facts}
    spark = texts["Spark"]
    known = {
        System.RESURGENCE: texts.get(System.RESURGENCE, insert),
        System.STREAMING: texts.get(System.STREAMING, spark),
        System.FLINK: texts.get(System.FLINK, ""),
        System.BATCH: spark,
    }
    return Query(
        name=name,
        texts={each: sql for each, sql in known.items() if each not in reasons},
        reasons=reasons,
        changelogs=frozenset(System(each) for each in _listed(facts.get("changelog"))),
        key=tuple(_listed(facts.get("key"))),
    )


def _listed(text: str | None) -> list[str]:
    return text.split(", ") if text else []
