"""How often a client may ask: a token bucket per client.

A bucket holds at most `burst` tokens and gains `per_second` of them; a request takes one. `take` is
pure; `Limiter` remembers the bucket of each client, and forgets whoever has not been seen for
longest, so that many clients cannot use up the memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rate:
    """So many in the long run, so many at once."""

    per_second: float
    burst: int


@dataclass(frozen=True)
class Bucket:
    """What a client had left, and when that was, in seconds of a clock that never goes back."""

    tokens: float
    at: float


@dataclass(frozen=True)
class Taken:
    """The bucket afterwards, and how many seconds to wait: 0 if a token was there."""

    bucket: Bucket
    wait: float


def take(bucket: Bucket | None, rate: Rate, now: float) -> Taken:
    """Take a token if there is one. A client that is new has a full bucket."""
    if bucket is None:
        bucket = Bucket(rate.burst, now)
    gained = max(0.0, now - bucket.at) * rate.per_second
    tokens = min(float(rate.burst), bucket.tokens + gained)
    if tokens >= 1:
        return Taken(Bucket(tokens - 1, now), 0.0)
    return Taken(Bucket(tokens, now), (1 - tokens) / rate.per_second)


@dataclass
class Limiter:
    """The buckets of all clients."""

    rate: Rate
    remembered: int = 10_000
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def wait(self, client: str, now: float) -> float:
        """0 if the client may go ahead, else the seconds until it may."""
        taken = take(self._buckets.get(client), self.rate, now)
        self._buckets[client] = taken.bucket
        self._buckets.move_to_end(client)
        if len(self._buckets) > self.remembered:
            self._buckets.popitem(last=False)
        return taken.wait
