"""A bucket gives what its rate allows, and never more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resurgence.api.access.token_bucket import Bucket, Limiter, Rate, take

RATE = Rate(per_second=2, burst=3)


def test_a_new_client_may_burst_and_then_waits_for_the_next_token() -> None:
    bucket, waits = None, []
    for _ in range(5):
        taken = take(bucket, RATE, now=10.0)
        bucket = taken.bucket
        waits.append(taken.wait)
    assert waits == [0, 0, 0, 0.5, 0.5]
    assert take(bucket, RATE, now=10.5).wait == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    assert take(Bucket(0, 0.0), RATE, now=1e9).bucket.tokens == RATE.burst - 1


def test_a_clock_that_goes_back_gives_nothing() -> None:
    assert take(Bucket(0, 100.0), RATE, now=50.0).wait == 0.5


@given(st.lists(st.floats(min_value=0, max_value=5), max_size=200))
def test_no_span_sees_more_than_burst_and_rate_allow(pauses: list[float]) -> None:
    now, let_in, bucket = 0.0, 0, None
    for pause in pauses:
        now += pause
        taken = take(bucket, RATE, now)
        bucket = taken.bucket
        let_in += taken.wait == 0
    assert let_in <= RATE.burst + RATE.per_second * now + 1e-6


def test_clients_do_not_share_a_bucket_and_the_oldest_is_forgotten() -> None:
    limiter = Limiter(Rate(per_second=0.1, burst=1), remembered=2)
    assert limiter.wait("one", 0.0) == 0
    assert limiter.wait("two", 0.0) == 0
    assert limiter.wait("one", 0.0) > 0
    assert limiter.wait("three", 0.0) == 0
    assert limiter.wait("one", 0.0) > 0, "seen lately, so remembered"
    assert limiter.wait("two", 0.0) == 0, "forgotten"
