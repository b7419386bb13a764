"""The commands and the output on a page of the docs.

A block of `sh` is executed; each line of a block of `text` right after it must be part of a line of
its output, where … stands for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "-- step"


@dataclass(frozen=True)
class Step:
    """Commands, and lines of their output."""

    commands: str
    expected: tuple[str, ...]


def steps_of(page: Path) -> list[Step]:
    """Return the steps of a page in order."""
    steps: list[Step] = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "sh":
            steps.append(Step(block["text"], ()))
        elif block["kind"] == "text":
            steps[-1] = Step(steps[-1].commands, tuple(block["text"].splitlines()))
    return steps


def has_line(output: str, line: str) -> bool:
    """Return whether a line, in which … stands for anything, is part of a line of the output."""
    pattern = ".*".join(re.escape(part.strip()) for part in line.split("…"))
    return re.search(pattern, output) is not None


def script(steps: list[Step]) -> str:
    """Return a shell script of all steps that ends at the first failure, with a mark before each."""
    marked = (f"echo '{_MARK} {number}'\n{each.commands}" for number, each in enumerate(steps))
    return "set -e\n" + "".join(marked)


def outputs(text: str) -> list[str]:
    """Return the output of each step."""
    return re.split(rf"^{_MARK} \d+\n", text, flags=re.MULTILINE)[1:]
