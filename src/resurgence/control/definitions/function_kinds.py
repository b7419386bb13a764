"""Inspects a user's Python module in a separate process: a module that hangs, exits or crashes on
import must not take down a controller of many jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from resurgence.errors import ConfigError
from resurgence.udf import FunctionKind

_DEADLINE = timedelta(seconds=30)
_INSPECT = """
import json, sys
from pathlib import Path
from resurgence.errors import ConfigError
from resurgence.udf import load_functions
try:
    answer = {"kinds": {name: each.kind for name, each in load_functions(Path(sys.argv[1])).items()}}
except ConfigError as error:
    answer = {"error": error.message, "hint": error.hint}
Path(sys.argv[2]).write_text(json.dumps(answer))
"""


def function_kinds(module: Path, answer_file: Path) -> dict[str, FunctionKind]:
    """Return the marked functions of a module, by name. Raise ConfigError if it does not load."""
    command = [sys.executable, "-c", _INSPECT, str(module), str(answer_file)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        status = process.wait(_DEADLINE.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the Python functions did not load within {_DEADLINE.total_seconds():.0f} s",
            hint="Remove blocking calls from the module: every process that uses it imports it.",
        ) from error
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    try:
        answer = json.loads(answer_file.read_text())
    except (OSError, ValueError) as error:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        raise ConfigError(
            f"loading the Python functions ended the process ({how})",
            hint="Remove everything but definitions from the module.",
        ) from error
    finally:
        answer_file.unlink(missing_ok=True)
    if "error" in answer:
        raise ConfigError(answer["error"], hint=answer["hint"])
    return {name: FunctionKind(kind) for name, kind in answer["kinds"].items()}
