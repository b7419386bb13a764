"""Small values by epoch, many in one object: what would else be an object per epoch.

Nothing is overwritten. A run of epochs grows by an object that holds all of the one before, which is
then deleted; whoever reads takes all that are there together. A value of an epoch never changes its
meaning, so they never contradict each other.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from resurgence.errors import ObjectMissing
from resurgence.ids import NO_EPOCH, Epoch
from resurgence.storage.object_store import ObjectStore

T = TypeVar("T")

RUN = 1000
"""Epochs in one object, at most: those with the same quotient."""
_NAME = re.compile(r"/(\d{10})-(\d{10})-[0-9a-f]{12}\.json$")


class EpochRuns(Generic[T]):
    """Values by epoch, in a folder of `{first}-{last}-{digest}.json`."""

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        encode: Callable[[dict[Epoch, T]], bytes],
        decode: Callable[[str, bytes], dict[Epoch, T]],
    ) -> None:
        """`decode` is given path and content; it may return nothing for what cannot be read."""
        self._store = store
        self._folder = folder
        self._encode = encode
        self._decode = decode

    def between(self, after: Epoch, up_to: Epoch | None = None) -> dict[Epoch, T]:
        """The values of the epochs after one, up to another."""
        while True:
            found: dict[Epoch, T] = {}
            try:
                for path, (first, last) in self._listed().items():
                    if after < last and (up_to is None or first <= up_to):
                        found |= self._decode(path, self._store.read(path))
            except ObjectMissing:
                # It was merged into another one meanwhile.
                continue
            break
        return {
            epoch: value
            for epoch, value in sorted(found.items())
            if after < epoch and (up_to is None or epoch <= up_to)
        }

    def add(self, values: Mapping[Epoch, T]) -> None:
        """Keep values; when it returns, they are durable."""
        listed = self._listed()
        runs: dict[int, dict[Epoch, T]] = defaultdict(dict)
        for epoch, value in values.items():
            runs[epoch // RUN][epoch] = value
        for number, added in runs.items():
            before = {
                path: self._read(path)
                for path, (first, _) in listed.items()
                if first // RUN == number
            }
            merged: dict[Epoch, T] = {}
            for each in (*before.values(), added):
                merged |= each
            data = self._encode(dict(sorted(merged.items())))
            digest = hashlib.sha256(data).hexdigest()[:12]
            path = f"{self._folder}/{min(merged):010}-{max(merged):010}-{digest}.json"
            self._store.create(path, data)
            # One that cannot be read may hold more than is known here: it stays.
            self._store.delete(each for each, held in before.items() if held and each != path)

    def newest(self) -> Epoch:
        """The highest epoch that has a value here; 0 if none has."""
        return max((last for _, last in self._listed().values()), default=NO_EPOCH)

    def prune(self, up_to: Epoch) -> bool:
        """Delete the objects that hold no epoch after one; whether any is left."""
        listed = self._listed()
        gone = [path for path, (_, last) in listed.items() if last <= up_to]
        self._store.delete(gone)
        return len(gone) < len(listed)

    def _listed(self) -> dict[str, tuple[Epoch, Epoch]]:
        found = {each.path: _NAME.search(each.path) for each in self._store.list(self._folder)}
        return {
            path: (Epoch(int(match[1])), Epoch(int(match[2])))
            for path, match in found.items()
            if match is not None
        }

    def _read(self, path: str) -> dict[Epoch, T]:
        """The values of an object that is merged here; nothing if someone else has merged it."""
        try:
            return self._decode(path, self._store.read(path))
        except ObjectMissing:
            return {}
