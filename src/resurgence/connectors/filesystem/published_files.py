"""How staged objects become the files of a `filesystem` sink, and the records that say which."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from resurgence.connectors.filesystem.records import Record
from resurgence.errors import ObjectMissing, SinkError
from resurgence.storage.object_store import ObjectStore


class PublishedFiles:
    """The files of one sink."""

    def __init__(self, store: ObjectStore, records: str) -> None:
        """`records` is where its records are, for messages."""
        self._store = store
        self._records = records

    def parsed(self, content: dict[str, JsonValue]) -> Record:
        """Return the record with this content. Raises SinkError if it is damaged."""
        return Record.parse(content, self._records)

    def publish(self, moves: Mapping[str, str], *, is_over: bool = False) -> tuple[str, ...]:
        """Move staged objects to their final names, unless another process has done so. Return the
        copied ones, which are to be deleted. `is_over`: it was done long ago, perhaps, and users
        may have removed files since.
        """
        try:
            return self._store.move(moves)
        except ObjectMissing:
            found = (self._publish_one(*each, is_over=is_over) for each in moves.items())
            return tuple(path for each in found for path in each)

    def _publish_one(self, staged: str, final: str, *, is_over: bool) -> tuple[str, ...]:
        try:
            return self._store.move({staged: final})
        except ObjectMissing as error:
            if not is_over and self._store.size(final) is None:
                raise SinkError(
                    f"staged output {self._store.url}/{staged} of {final} is missing",
                    hint="Roll the job back to an earlier checkpoint. Staged output was removed by"
                    " hand.",
                ) from error
            return ()
