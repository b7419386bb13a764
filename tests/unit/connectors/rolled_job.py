"""A job in miniature with a rolling `filesystem` sink: it stages, seals and commits epochs as the
engine does, and its process can die before or after every write to the sink's folder.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from pydantic import JsonValue
from pyspark.sql import SparkSession

from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedFile, StagedOutput
from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.json.writer import JsonSinkOptions
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.graph.table_options import TableOptions
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.storage.object_store import ObjectStore

JOB = JobIdentity("a1b2c3d4e5f6")
IN_PROCESS = cast(SparkSession, None)
"""Without Spark, files are merged in the process."""
SECOND = 1_000_000
_UNIQUE = itertools.count()


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class CrashingStore(ObjectStore):
    """Dies before or after its n-th write."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.writes = 0
        self.crash_at: int | None = None
        self.after = False
        self.is_armed = False
        self.before_writes: Callable[[], None] = lambda: None
        self._preparing = threading.Lock()

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Writes may be made at the same time."""
        if self._preparing.acquire(blocking=False):
            try:
                self.before_writes()
            finally:
                self._preparing.release()
        self.writes += self.is_armed
        is_fatal = self.is_armed and self.writes == self.crash_at
        if is_fatal:
            self.crash_at = None
        if is_fatal and not self.after:
            raise Crash
        yield
        if is_fatal:
            raise Crash

    def create(self, path: str, data: bytes) -> bool:
        with self._write():
            return super().create(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        for each in [*paths]:
            with self._write():
                super().delete([each])

    def move(self, moves: Mapping[str, str]) -> tuple[str, ...]:
        copied: list[str] = []
        for each in moves.items():
            with self._write():
                copied += super().move(dict([each]))
        return tuple(copied)


def opened(store: ObjectStore, **options: str) -> FilesystemSink:
    """The sink as a new process would have it."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    model = FilesystemSinkOptions.read({"path": store.url, **named})
    return FilesystemSink(model, WriteSettings(JsonSinkOptions()), JSON)


def as_parquet(store: ObjectStore, **options: str) -> FilesystemSink:
    """The sink after its format was edited."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    model = FilesystemSinkOptions.read({"path": store.url, **named})
    return FilesystemSink(model, WriteSettings(TableOptions()), PARQUET)


def covering(epoch: int) -> CoveredInput:
    span = SourceSpan(start={"line": epoch - 1}, end={"line": epoch})
    return CoveredInput(sources={OperatorId("source-in"): span})


def stage(
    store: ObjectStore, epoch: int, *rows: str, folder: str = "", suffix: str = "json"
) -> StagedOutput:
    """One object per row. An epoch is planned at as many seconds as its number."""
    files = []
    for text in rows:
        path = f".resurgence/{JOB}/staged/{epoch:010}-1-{next(_UNIQUE):012x}"
        data = f"{text}\n".encode()
        assert ObjectStore.create(store, path, data)
        details: dict[str, JsonValue] = {"suffix": suffix}
        files.append(StagedFile(path=path, rows=1, bytes=len(data), folder=folder, details=details))
    return StagedOutput(rows=len(files), files=tuple(files), planned_at=epoch * SECOND)


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def commit(sink: FilesystemSink, epoch: int, staged: StagedOutput) -> None:
    sink.commit(IN_PROCESS, JOB, Epoch(epoch), staged, covering(epoch))


def flush(sink: FilesystemSink, next_epoch: int, now: datetime | None = None) -> None:
    sink.flush(IN_PROCESS, JOB, Epoch(next_epoch), lambda: None, now)


def files(store: ObjectStore) -> dict[str, list[str]]:
    """The rows of each visible file, by name."""
    return {
        each.path: store.read(each.path).decode().split()
        for each in store.list("")
        if not each.path.startswith(".")
    }


def visible(store: ObjectStore) -> list[str]:
    return sorted(row for rows in files(store).values() for row in rows)


@dataclass
class Job:
    """What the state of a job knows of its epochs. It survives every crash."""

    store: CrashingStore
    options: dict[str, str]
    keep: int = 4
    """How many epochs can be rolled back."""
    damages: bool = False
    """Every crash damages the newest checkpoint, so that its epoch is replayed."""
    sealed: dict[int, StagedOutput] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    dead: list[tuple[int, int]] = field(default_factory=list)
    newest: int = 0

    def rows(self, epoch: int) -> tuple[str, ...]:
        # Every fourth epoch has no output, and every other one a single part.
        every = (f"{epoch}a", f"{epoch}b")
        return () if epoch % 4 == 3 else every[: 2 - epoch % 2]

    def expected(self) -> list[str]:
        """The rows of all living epochs."""
        living = (
            epoch
            for epoch in self.sealed
            if not any(after < epoch <= up_to for after, up_to in self.dead)
        )
        return sorted(row for epoch in living for row in self.rows(epoch))

    def expected_up_to(self, epoch: int) -> list[str]:
        living = (each for each in self.sealed if each <= epoch)
        return sorted(row for each in living for row in self.rows(each))

    def process(self, up_to: int) -> FilesystemSink:
        """A process that restores the job, and runs it up to an epoch."""
        sink = opened(self.store, **self.options)
        if self.newest and self.newest not in self.committed:
            self._commit(sink)
        for after, last in self.dead:
            if self.newest < last:
                sink.retract(JOB, Epoch(after), Epoch(last))
                self._check()
        sink.sweep(JOB, Epoch(self.newest))
        while self._next() <= up_to:
            epoch = self._next()
            folder = "odd=1" if epoch % 2 else ""
            staged = stage(self.store, epoch, *self.rows(epoch), folder=folder)
            self.sealed[epoch], self.newest = staged, epoch
            if epoch in self.committed:
                sink.discard(staged)
            else:
                self._commit(sink)
            if epoch % 2:
                sink.sweep(JOB, Epoch(epoch))
                sink.forget(JOB, Epoch(max(1, epoch - self.keep)))
        return sink

    def _next(self) -> int:
        return max(self.newest, *(last for _, last in self.dead), 0) + 1

    def run(self, up_to: int) -> None:
        """Run to an epoch and stop there, in as many processes as it takes."""
        for _ in range(10):
            try:
                sink = self.process(up_to)
                flush(sink, self._next())
                self._check()
                sink.sweep(JOB, Epoch(self.newest))
                return
            except Crash:
                self._check()
                self.newest -= self.damages and self.newest > 0
        raise AssertionError("crashes without end")

    def roll_back(self, after: int) -> None:
        self.dead.append((after, self._next() - 1))
        self.newest = after
        for _ in range(10):
            try:
                after, last = self.dead[-1]
                opened(self.store, **self.options).retract(JOB, Epoch(after), Epoch(last))
                return
            except Crash:
                pass

    def _commit(self, sink: FilesystemSink) -> None:
        commit(sink, self.newest, self.sealed[self.newest])
        self.committed.add(self.newest)
        self._check()

    def _check(self) -> None:
        """No row is visible twice, in part, or before its epoch is sealed, in any moment."""
        found = visible(self.store)
        assert len({*found}) == len(found), found
        assert {*found} <= {row for epoch in self.sealed for row in self.rows(epoch)}, found

    def debris(self) -> list[str]:
        """What is staged for epochs that are over."""
        folder = f".resurgence/{JOB}/staged"
        names = (each.path.removeprefix(f"{folder}/") for each in self.store.list(folder))
        return [each for each in names if int(each[:10]) <= self.newest]
