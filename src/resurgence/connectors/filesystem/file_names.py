"""The names of the files of a `filesystem` sink. Each contains the job and the epoch that made the file
visible, so that no two writers choose the same one, and a rollback finds the files of an epoch. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from resurgence.connectors.filesystem.records import Record
from resurgence.connectors.filesystem.rolling import Part
from resurgence.ids import Epoch, JobIdentity


@dataclass(frozen=True)
class FileNames:
    """How one sink names its files."""

    suffix: str
    """The suffix of a format, without that of a compression."""
    prefix: str | None = None

    def committed(
        self, job: JobIdentity, epoch: Epoch, files: Sequence[Sequence[Part]]
    ) -> tuple[str, ...]:
        """Return the names of files that the commit of an epoch makes visible."""
        return self._named(f"{job}-{epoch:010}-", files)

    def flushed(
        self,
        job: JobIdentity,
        epoch: Epoch,
        after: Epoch | None,
        files: Sequence[Sequence[Part]],
    ) -> tuple[str, ...]:
        """Return the names of files that a flush makes visible, after an epoch was committed, or
        the epochs up to it and after another were retracted.
        """
        retraction = "" if after is None else f"r{after:010}"
        return self._named(f"{job}-{epoch:010}-{retraction}f", files)

    def _named(self, stem: str, files: Sequence[Sequence[Part]]) -> tuple[str, ...]:
        prefix = f"{self.prefix}-" if self.prefix else ""
        return tuple(
            f"{parts[0].folder}/{prefix}{stem}{number:05}.{parts[0].suffix}".removeprefix("/")
            for number, parts in enumerate(files)
        )

    def with_names(
        self, record: Record, job: JobIdentity, epoch: Epoch, files: Sequence[Sequence[Part]]
    ) -> Record:
        """Return the record of a commit with the names of its files."""
        return record.model_copy(update={"names": self.committed(job, epoch, files)})

    def recorded(self, job: JobIdentity, epoch: Epoch, record: Record) -> tuple[str, ...]:
        """Return the names of the files of a record. Those of older releases have none."""
        return record.names or tuple(
            f"{job}-{epoch:010}-{number:05}.{self.suffix}" for number in range(len(record.files))
        )


def epoch_in(name: str, job: JobIdentity) -> Epoch | None:
    """Return the epoch that made a file of a job visible; None if it is no such file."""
    written = rf"(?:^|-){re.escape(job)}-(\d{{10}})-(?:r\d{{10}})?f?\d{{5}}\.[^/]*$"
    found = re.search(written, name.rpartition("/")[2])
    return None if found is None else Epoch(int(found[1]))
