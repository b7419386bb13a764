"""Runs a preview in a process of its own, with a deadline: user code and Spark are at work there,
and must neither delay nor end the process that asks.

`python -m resurgence.engine.preview.process FOLDER` reads the request from a file in that folder,
and writes the answer and a log beside it. It ends when its standard input closes, so that it does
not outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

from resurgence.engine.preview.request import (
    Preview,
    PreviewAnswer,
    PreviewFailure,
    PreviewRequest,
)
from resurgence.errors import ErrorDomain, ResurgenceError, SqlError, UserError
from resurgence.secrets import concealer_for, open_options

DEADLINE = timedelta(minutes=2)
_REQUEST, _ANSWER, _LOG = "request.json", "answer.json", "log"
_DEFAULT_MEMORY = "1g"
_LOG_CHARACTERS = 2000


class PreviewTimedOut(ResurgenceError):
    """A preview took longer than allowed."""

    code = "preview.timeout"
    domain = ErrorDomain.USER


class PreviewFailed(ResurgenceError):
    """A preview failed because of something outside of the pipeline."""

    code = "preview"


def preview(request: PreviewRequest, deadline: timedelta = DEADLINE) -> Preview:
    """Return the first rows. Raise SqlError, UserError, PreviewFailed or PreviewTimedOut."""
    with tempfile.TemporaryDirectory(prefix="resurgence-preview-") as name:
        folder = Path(name)
        private = os.open(folder / _REQUEST, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(private, "w", encoding="utf-8") as file:
            file.write(request.model_dump_json())
        command = [sys.executable, "-m", __name__, str(folder)]
        with (folder / _LOG).open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(folder)},
            )
        try:
            process.wait(deadline.total_seconds())
        except subprocess.TimeoutExpired as error:
            raise PreviewTimedOut(
                f"the preview did not end within {deadline.total_seconds():g} s",
                hint="Read a smaller sample of each source, or wait longer.",
            ) from error
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        return _read(folder)


def _read(folder: Path) -> Preview:
    try:
        answer = PreviewAnswer.model_validate_json((folder / _ANSWER).read_bytes())
    except (OSError, ValueError) as error:
        log = (folder / _LOG).read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
        raise PreviewFailed(
            f"the process of the preview ended without an answer:\n{log.strip()}",
            hint="Run `resurgence doctor` to check this machine.",
        ) from error
    if answer.preview is not None:
        return answer.preview
    assert answer.failure is not None
    raise raised(answer.failure)


def raised(failure: PreviewFailure) -> ResurgenceError:
    """Return the error that a process reported."""
    if failure.line is not None and failure.column is not None:
        return SqlError(
            failure.message, line=failure.line, column=failure.column, hint=failure.hint
        )
    kind = UserError if failure.is_users else PreviewFailed
    return kind(failure.message, hint=failure.hint, position=failure.position)


# ---------------------------------------------------------------- in the process


def _answer(request: PreviewRequest, log_file: Path) -> PreviewAnswer:
    from resurgence.engine.spark.errors import translate

    graph = request.graph
    sources = [each.options for each in graph.sources()]
    sinks = [each.options for each in graph.sinks()]
    lookups = [each.options for each in graph.lookup_tables()]
    concealer = concealer_for([*sources, *sinks, *lookups])
    try:
        return PreviewAnswer(preview=_computed(request, log_file))
    except Exception as error:
        failure = translate(error)
        place = (failure.line, failure.column) if isinstance(failure, SqlError) else (None, None)
        return PreviewAnswer(
            failure=PreviewFailure(
                message=concealer.text(failure.message),
                hint=concealer.text(failure.hint),
                position=concealer.text(failure.position),
                is_users=failure.domain is ErrorDomain.USER,
                line=place[0],
                column=place[1],
            )
        )


def _computed(request: PreviewRequest, log_file: Path) -> Preview:
    from resurgence.engine.functions.user_functions import register_functions
    from resurgence.engine.preview.sample import preview_sample
    from resurgence.engine.spark.session import start_session
    from resurgence.store_settings import apply_storage_settings
    from resurgence.udf import load_functions

    apply_storage_settings(request.storage)
    path = Path(request.functions_file) if request.functions_file else None
    functions = load_functions(path)
    conf = dict(open_options("spark", request.spark).values)
    conf.pop("spark.master", None)
    spark, _ = start_session(
        app_name="resurgence preview",
        master=f"local[{max(2, os.cpu_count() or 2)}]",
        memory=conf.pop("spark.driver.memory", _DEFAULT_MEMORY),
        shuffle_partitions=2,
        conf=conf,
        log_file=log_file,
    )
    register_functions(spark, functions)
    return preview_sample(spark, request)


def _end_with_parent() -> None:
    """End this process, and with it the JVM, when standard input closes."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main() -> None:
    """Entry point of the process."""
    _end_with_parent()
    folder = Path(sys.argv[1])
    request = PreviewRequest.model_validate_json((folder / _REQUEST).read_bytes())
    answer = _answer(request, folder / _LOG)
    unfinished = folder / f"{_ANSWER}.unfinished"
    unfinished.write_text(answer.model_dump_json(), encoding="utf-8")
    unfinished.replace(folder / _ANSWER)
    # Threads may hang forever and must not delay the exit. The JVM exits when its standard input
    # closes.
    os._exit(0)


if __name__ == "__main__":
    main()
