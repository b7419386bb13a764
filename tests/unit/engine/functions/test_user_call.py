"""The wrapper around a user's function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from resurgence.engine.functions.async_call import answers
from resurgence.engine.functions.user_call import for_spark
from resurgence.errors import ErrorDomain, FunctionFailed, RetryHint
from resurgence.udf import load_functions

FUNCTIONS = """
import os
from resurgence import udf

@udf
def ends(number: int) -> int:
    os._exit(number)

@udf(max_in_flight=2, timeout="5 seconds")
async def ends_later(number: int) -> int:
    os._exit(number)
"""


def test_a_function_that_ends_its_process_fails_like_one_that_raises(tmp_path: Path) -> None:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    functions = load_functions(path)
    with pytest.raises(FunctionFailed, match=r"ends\(3\) failed: SystemExit: os._exit\(3\)") as one:
        for_spark(functions["ends"])(3)
    assert one.value.domain is ErrorDomain.USER
    assert one.value.retry_hint is RetryHint.NO_RETRY
    with pytest.raises(FunctionFailed, match=r"ends_later\(3\) failed: SystemExit: os._exit\(3\)"):
        answers(functions["ends_later"], [(3,)])


def test_a_process_can_still_end_outside_of_a_function() -> None:
    program = "import os; from resurgence.engine.functions.user_call import watch_exits; watch_exits(); os._exit(7)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
