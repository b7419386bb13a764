"""Small values by epoch, many in one object instead of one object per epoch.

Nothing is overwritten. A run of epochs grows by writing an object that contains all of the previous
one, which is then deleted. A reader merges all existing objects. The value of an epoch never
changes its meaning, so the objects never contradict each other. Runs that do not grow any more are
merged once more, so that a million epochs are about a hundred objects.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from resurgence.errors import ObjectMissing
from resurgence.ids import NO_EPOCH, Epoch
from resurgence.storage.object_store import ObjectStore

T = TypeVar("T")

RUN = 1000
"""Maximum epochs in an object that grows: those with the same quotient."""
LONG_RUN = 10 * RUN
"""Maximum epochs in any object. It is read and written as a whole, so there is no third level."""
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
        """`decode` receives path and content; an unreadable object may decode to nothing."""
        self._store = store
        self._folder = folder
        self._encode = encode
        self._decode = decode

    def between(self, after: Epoch, up_to: Epoch | None = None) -> dict[Epoch, T]:
        """Return the values of the epochs after one, up to and including another."""
        while True:
            found: dict[Epoch, T] = {}
            try:
                for path, (first, last) in self._listed().items():
                    if after < last and (up_to is None or first <= up_to):
                        found |= self._decode(path, self._store.read(path))
            except ObjectMissing:
                # It was merged into another object meanwhile.
                continue
            break
        return {
            epoch: value
            for epoch, value in sorted(found.items())
            if after < epoch and (up_to is None or epoch <= up_to)
        }

    def add(self, values: Mapping[Epoch, T]) -> None:
        """Store values durably."""
        listed = self._listed()
        runs: dict[int, dict[Epoch, T]] = defaultdict(dict)
        for epoch, value in values.items():
            runs[epoch // RUN][epoch] = value
        for number, added in runs.items():
            self._merge([p for p, (first, _) in listed.items() if first // RUN == number], added)
        if values:
            self._merge_complete_runs(max(values) // LONG_RUN)

    def _merge_complete_runs(self, current: int) -> None:
        """Merge the runs of each long run that has ended before the current one."""
        ended: dict[int, list[str]] = defaultdict(list)
        for path, (first, _) in self._listed().items():
            ended[first // LONG_RUN].append(path)
        for number, paths in ended.items():
            if number < current and len(paths) > 1:
                self._merge(paths, {})

    def _merge(self, paths: Iterable[str], added: Mapping[Epoch, T]) -> None:
        """Replace objects by one that has their values, and some more."""
        before = {path: self._read(path) for path in paths}
        merged: dict[Epoch, T] = {}
        for each in (*before.values(), added):
            merged |= each
        if not merged:
            return
        data = self._encode(dict(sorted(merged.items())))
        digest = hashlib.sha256(data).hexdigest()[:12]
        path = f"{self._folder}/{min(merged):010}-{max(merged):010}-{digest}.json"
        self._store.create(path, data)
        # An unreadable object may contain other values, so it is not deleted.
        self._store.delete(each for each, held in before.items() if held and each != path)

    def newest(self) -> Epoch:
        """Return the highest epoch that has a value; 0 if none has."""
        return max((last for _, last in self._listed().values()), default=NO_EPOCH)

    def prune(self, up_to: Epoch) -> bool:
        """Delete the objects that contain no epoch after one. Return whether any object is left."""
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
        """Return the values of an object to merge; empty if another process has merged it."""
        try:
            return self._decode(path, self._store.read(path))
        except ObjectMissing:
            return {}
