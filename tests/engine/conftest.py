"""Fixtures of the engine tests, besides the harness."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from resurgence.udf import UserFunction, load_functions


@pytest.fixture
def functions(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, UserFunction]:
    """The functions in the text FUNCTIONS of the test's module."""
    path = tmp_path / "functions.py"
    path.write_text(dedent(request.module.FUNCTIONS))
    return load_functions(path)
