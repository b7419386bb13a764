"""What a user's Python module defines, found out in a process of its own: code of one job that
hangs, exits or crashes when it is loaded must not do so in a controller of many.
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
_LOOK = """
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
    """The marked functions of a module, by name; a ConfigError if it cannot be loaded."""
    command = [sys.executable, "-c", _LOOK, str(module), str(answer_file)]
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
            hint="Remove whatever the module waits for: it is loaded wherever its functions run.",
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
            f"the Python functions ended the process that loaded them ({how})",
            hint="Let the module define functions and do nothing else.",
        ) from error
    finally:
        answer_file.unlink(missing_ok=True)
    if "error" in answer:
        raise ConfigError(answer["error"], hint=answer["hint"])
    return {name: FunctionKind(kind) for name, kind in answer["kinds"].items()}
