"""A preview runs in a process of its own, whatever the user's code does there. None of these comes
as far as starting Spark.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.preview import PreviewRequest, preview
from resurgence.engine.preview.process import PreviewFailed, PreviewTimedOut, raised
from resurgence.engine.preview.request import PreviewFailure
from resurgence.errors import SqlError, UserError
from resurgence.sql import compile_pipeline

SQL = """
CREATE TABLE i WITH (connector = 'impulse', type = 'source', event_rate = '1');
SELECT counter FROM i
"""


def request_with(functions: str, folder: Path) -> PreviewRequest:
    path = folder / "functions.py"
    path.write_text(functions)
    return PreviewRequest(graph=compile_pipeline(SQL, CONNECTORS, {}), functions_file=str(path))


def test_an_error_of_the_users_functions_is_the_users(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"functions\.py") as error:
        preview(request_with("1 / 0", tmp_path))
    assert "ZeroDivisionError" in str(error.value) or "division" in str(error.value)


def test_a_process_that_ends_by_itself_is_reported_with_its_log(tmp_path: Path) -> None:
    functions = "import os\nprint('about to leave', flush=True)\nos._exit(3)"
    with pytest.raises(PreviewFailed, match="about to leave") as error:
        preview(request_with(functions, tmp_path))
    assert "doctor" in error.value.hint


def test_a_process_that_hangs_is_ended_at_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(PreviewTimedOut, match="did not end within 2 s") as error:
        preview(request_with("import time\ntime.sleep(600)", tmp_path), timedelta(seconds=2))
    assert "wait longer" in error.value.hint


def test_an_error_keeps_its_place_and_whose_it_is() -> None:
    placed = raised(PreviewFailure(message="m", hint="h", is_users=True, line=3, column=4))
    assert isinstance(placed, SqlError)
    assert (placed.message, placed.hint, placed.line, placed.column) == ("m", "h", 3, 4)
    assert isinstance(raised(PreviewFailure(message="m", is_users=True)), UserError)
    assert isinstance(raised(PreviewFailure(message="m", is_users=False)), PreviewFailed)
