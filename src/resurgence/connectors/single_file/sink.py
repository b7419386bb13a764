"""The `single_file` sink: a file that grows by whole epochs, written exactly once.

Commit writes an epoch's bytes at the offset that the commit log fixed for that epoch, under a lock;
a repeated commit writes the same bytes at the same offset. A new job truncates the file.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from resurgence.connectors.contract import (
    CoveredInput,
    StagedOutput,
    require_same_input,
    whole_number,
)
from resurgence.connectors.file_sink import FileSink
from resurgence.connectors.formats.contract import Format, WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.errors import ObjectMissing, SinkError, UserError
from resurgence.graph.table_options import TableOptions, option
from resurgence.ids import Epoch, JobIdentity
from resurgence.state.records import Offset
from resurgence.storage.object_store import storage_url

_LOCK_DEADLINE_SECONDS = 30.0


def hidden_folder(path: Path) -> Path:
    """Return the folder of a sink's staged output and records, which is beside its file."""
    return path.parent / f".{path.name}.resurgence"


class SingleFileSinkOptions(TableOptions):
    """The options of a `single_file` sink."""

    path: str = option()


class SingleFileSink(FileSink):
    """One file of lines, which grows by whole epochs."""

    def __init__(
        self,
        options: SingleFileSinkOptions,
        settings: WriteSettings[Any],
        file_format: Format = JSON,
    ) -> None:
        self._path = Path(options.path).expanduser().absolute()
        url = storage_url(str(hidden_folder(self._path)))
        super().__init__(url, "commits", file_format, settings)

    def check(self) -> None:
        if self._path.is_dir():
            raise UserError(
                f"the sink file {self._path} is a folder", hint="Check the option 'path'."
            )
        _ = self._store

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        with self._locked():
            latest = self._log.latest(job)
            if latest is None or (latest[0] < epoch and staged.files):
                content: Offset = {
                    "offset": _end(latest),
                    "length": sum(each.bytes for each in staged.files),
                    "files": [each.path for each in staged.files],
                }
                latest = epoch, self._log.fix(job, epoch, content, covered)
            fixed = latest[1] if latest[0] == epoch else self._log.fixed(job, epoch)
            held = None if fixed is None else self._log.covered(fixed)
            require_same_input(str(self._path), epoch, held, covered)
            if latest[0] == epoch:
                files = [str(each) for each in _list(latest[1], "files")]
                self._write(
                    whole_number(latest[1], "offset"), whole_number(latest[1], "length"), files
                )
                self._store.delete(files)
        self.discard(staged)

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        if self._is_untouched():
            return
        with self._locked():
            if self._log.is_retracted(job, after, up_to):
                return
            # If everything is retracted, the first records may have been dropped, and the output
            # ends at 0. Otherwise the records are retained.
            dead = self._log.between(job, after, up_to)
            end = min(
                (whole_number(each, "offset") for each in dead), default=_end(self._log.latest(job))
            )
            end = end if after else 0
            if self._path.is_file() and self._path.stat().st_size > end:
                os.truncate(self._path, end)
            content: Offset = {"offset": end, "length": 0}
            self._log.close(job, after, up_to, content)
            self._log.mark_retracted(job, after, up_to, content)

    def _write(self, offset: int, length: int, files: Sequence[str]) -> None:
        """Write the staged pieces at their offset and truncate the file after them.

        The pieces are deleted only after all are written, so a missing piece means that they were
        written before: then the file extends to their end.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as target:
            target.seek(offset)
            for path in files:
                try:
                    target.write(self._store.read(path))
                except ObjectMissing as error:
                    if target.seek(0, os.SEEK_END) >= offset + length:
                        return
                    raise SinkError(
                        f"staged output {self._url}/{path} of {self._path} is missing",
                        hint="Restore it from a backup. Staged output was removed by hand.",
                    ) from error
            target.truncate()
            target.flush()
            os.fsync(target.fileno())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Allow one committer at a time on this machine. The lock is released when its holder
        dies.
        """
        folder = hidden_folder(self._path)
        folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_DEADLINE_SECONDS
        with (folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise SinkError(
                            f"another process holds the lock of {self._path}",
                            hint="Check whether another job writes this file. The job will retry.",
                        ) from error
                    time.sleep(0.02)
            yield


def _end(latest: tuple[Epoch, Mapping[str, object]] | None) -> int:
    """Return where the output of a job ends, by its newest record."""
    return whole_number(latest[1], "offset") + whole_number(latest[1], "length") if latest else 0


def _list(content: Mapping[str, object], name: str) -> Sequence[object]:
    value = content.get(name)
    return value if isinstance(value, list) else ()
