"""The cost of an epoch: seconds and calls, by kind of work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class EpochProfile:
    """Seconds and calls of one epoch. Kinds: planning, spark, storage, sinks."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Count a call and its duration, even if it fails."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began
            self.calls[kind] = self.calls.get(kind, 0) + 1
