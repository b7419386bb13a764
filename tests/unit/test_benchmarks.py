"""Every benchmark has a short form for `make bench`, with arguments that it accepts."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.short import SHORT

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_has_a_short_form() -> None:
    scripts = {each.stem for each in FOLDER.glob("*.py")} - {"short", "__init__"}
    assert scripts == set(SHORT)


def test_short_forms_use_arguments_that_exist() -> None:
    for name, arguments in SHORT.items():
        known = set(
            re.findall(r'add_argument\(\s*"(--[a-z-]+)"', (FOLDER / f"{name}.py").read_text())
        )
        assert {each for each in arguments if each.startswith("--")} <= known, name


def test_every_benchmark_is_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text()
    assert all(f"{name}.py" in text for name in SHORT)
