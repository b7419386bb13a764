"""A user's module is loaded in a separate process: whatever it does, the controller continues."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.control.definitions import function_kinds as subject
from resurgence.control.definitions.function_kinds import function_kinds
from resurgence.errors import ConfigError
from resurgence.udf import FunctionKind

FINE = """
from resurgence import udaf, udf

@udf
def double(x: int) -> int:
    return 2 * x

@udaf
def longest(values: list[str]) -> str | None:
    return max(values, key=len, default=None)

def not_marked() -> None: ...
"""


def kinds_of(folder: Path, text: str) -> dict[str, FunctionKind]:
    module = folder / "functions.py"
    module.write_text(text)
    try:
        return function_kinds(module, folder / "answer")
    finally:
        assert not (folder / "answer").exists()


def test_the_marked_functions_are_found_with_their_kinds(tmp_path: Path) -> None:
    assert kinds_of(tmp_path, FINE) == {
        "double": FunctionKind.SCALAR,
        "longest": FunctionKind.AGGREGATE,
    }


def test_what_a_module_prints_is_not_taken_for_the_answer(tmp_path: Path) -> None:
    noisy = 'import sys\nprint(\'{"kinds": {"f": "scalar"}}\')\nsys.stderr.write("oops")\n'
    assert set(kinds_of(tmp_path, noisy + FINE)) == {"double", "longest"}


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("import os\nos._exit(7)", "status 7"),
        ("import os\nos._exit(0)", "status 0"),
        ("raise SystemExit(5)", "status 5"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
    ],
)
def test_a_module_that_ends_its_process_is_refused(
    tmp_path: Path, text: str, reported: str
) -> None:
    with pytest.raises(ConfigError, match=reported) as refused:
        kinds_of(tmp_path, text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError|invalid syntax"),
        ("import no_such_package_at_all", "no_such_package_at_all"),
    ],
)
def test_a_module_that_raises_is_refused_with_its_error(
    tmp_path: Path, text: str, reported: str
) -> None:
    with pytest.raises(ConfigError, match=reported):
        kinds_of(tmp_path, text)


def test_a_module_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_DEADLINE", timedelta(seconds=2))
    reported = tmp_path / "child"
    hangs = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(reported)!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    began = time.monotonic()
    with pytest.raises(ConfigError, match="did not load within 2 s"):
        kinds_of(tmp_path, hangs)
    assert time.monotonic() - began < 10
    # The load of a busy machine may have left no time for the child.
    if reported.exists():
        give_up_at = time.monotonic() + 5
        while _is_alive(int(reported.read_text())):
            assert time.monotonic() < give_up_at
            time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
