"""Who owns which job: decisions over values, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from resurgence.control.fleet.assignment import (
    MAX_MOVES,
    Assignment,
    Dead,
    JobFact,
    Peer,
    RenewalStreak,
    assign,
    dead_peers,
    should_give_up,
)
from resurgence.ids import ControllerId, JobName
from resurgence.state.records import Owner, OwnerKind

A, B, C = (ControllerId(each) for each in "abc")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=15)


def peer(who: ControllerId, **changes: bool) -> Peer:
    process = Owner(
        id="service",
        kind=OwnerKind.SERVICE,
        host="here",
        pid=1,
        since=NOW,
        process_space="space",
        process_started=who,
    )
    return replace(Peer(who, process), **changes)  # type: ignore[arg-type]


def jobs(**owned: int) -> list[JobFact]:
    """So many running jobs per owner; `none` for unowned ones."""
    return [
        JobFact(JobName(f"{owner}{n}"), None if owner == "none" else ControllerId(owner))
        for owner, count in owned.items()
        for n in range(count)
    ]


def claims(facts: list[JobFact], *peers: Peer) -> dict[str, list[JobName]]:
    return {each.id: list(assign(each.id, peers, facts).claims) for each in peers}


# ---------------------------------------------------------------- claims


def test_unowned_jobs_are_dealt_to_all_each_to_one() -> None:
    found = claims(jobs(none=7), peer(A), peer(B), peer(C))
    assert [len(found[each]) for each in "abc"] == [3, 2, 2]
    assert sorted(name for each in found.values() for name in each) == [
        each.name for each in jobs(none=7)
    ]


def test_the_least_loaded_claims_first() -> None:
    assert claims(jobs(a=3, b=1, none=2), peer(A), peer(B)) == {"a": [], "b": ["none0", "none1"]}


def test_inactive_jobs_are_no_load() -> None:
    stopped = [replace(each, is_active=False, is_running=False) for each in jobs(a=5)]
    found = claims([*stopped, *jobs(b=1, none=1)], peer(A), peer(B))
    assert found == {"a": ["none0"], "b": []}


@pytest.mark.parametrize("trait", ["is_expired", "is_leaving"])
def test_one_that_is_gone_or_leaves_claims_nothing(trait: str) -> None:
    found = claims(jobs(none=2), peer(A, **{trait: True}), peer(B))
    assert found == {"a": [], "b": ["none0", "none1"]}


def test_nothing_is_left_for_one_that_did_not_renew_lately() -> None:
    """It may be frozen, and would not claim."""
    assert claims(jobs(none=2), peer(A, is_fresh=False), peer(B))["b"] == ["none0", "none1"]


# ---------------------------------------------------------------- releases


@pytest.mark.parametrize(
    ("owned", "released"),
    [
        ({"a": 2, "b": 1}, 0),
        ({"a": 3, "b": 1}, 1),
        ({"a": 6, "b": 0, "c": 0}, 4),
        ({"a": 3, "b": 3, "c": 1}, 0),
        ({"b": 3, "a": 4, "c": 1}, 1),
        ({"a": 0, "b": 9}, 0),
    ],
)
def test_a_controller_releases_what_exceeds_its_share(owned: dict[str, int], released: int) -> None:
    peers = [peer(ControllerId(each)) for each in sorted(owned)]
    assert len(assign(A, peers, jobs(**owned)).releases) == released


def test_one_of_two_equally_loaded_controllers_releases() -> None:
    facts = jobs(a=3, b=3, c=1)
    peers = [peer(A), peer(B), peer(C)]
    assert [len(assign(each, peers, facts).releases) for each in (A, B, C)] == [0, 1, 0]


def test_few_jobs_are_moved_at_a_time() -> None:
    facts, peers = jobs(a=100), [peer(A), peer(B)]
    first = assign(A, peers, facts).releases
    assert len(first) == MAX_MOVES
    assert assign(A, peers, facts, moving=first).releases == ()
    assert len(assign(A, peers, facts, moving=first[1:]).releases) == 1


def test_nothing_is_moved_before_the_set_of_controllers_is_settled() -> None:
    facts, peers = jobs(a=9), [peer(A), peer(B)]
    assert assign(A, peers, facts, is_settled=False) == Assignment()


def test_a_job_that_recovers_is_not_moved() -> None:
    facts = [replace(each, is_running=False) for each in jobs(a=4)]
    assert assign(A, [peer(A), peer(B)], facts).releases == ()


def test_one_that_leaves_is_no_reason_to_move_jobs_to_it() -> None:
    assert assign(A, [peer(A), peer(B, is_leaving=True)], jobs(a=4)).releases == ()


# ---------------------------------------------------------------- storage


def test_jobs_are_assigned_to_those_that_reach_the_storage_unless_none_does() -> None:
    cut_off = peer(A, reaches_storage=False)
    assert claims(jobs(none=2), cut_off, peer(B)) == {"a": [], "b": ["none0", "none1"]}
    assert assign(B, [cut_off, peer(B)], jobs(b=4)).releases == ()
    all_cut_off = [peer(each, reaches_storage=False) for each in (A, B)]
    assert claims(jobs(none=2), *all_cut_off) == {"a": ["none0"], "b": ["none1"]}


@pytest.mark.parametrize(
    ("seconds", "other", "expected"),
    [
        (8, {}, False),
        (9, {}, True),
        (9, {"reaches_storage": False}, False),
        (9, {"is_fresh": False}, False),
        (9, {"is_leaving": True}, False),
    ],
)
def test_a_controller_without_storage_gives_up_its_jobs_if_another_can_have_them(
    seconds: int, other: dict[str, bool], expected: bool
) -> None:
    peers = [peer(A, reaches_storage=False), peer(B, **other)]
    assert should_give_up(A, peers, timedelta(seconds=seconds), LEASE) is expected
    assert not should_give_up(A, peers[:1], timedelta(seconds=seconds), LEASE)


# ---------------------------------------------------------------- the dead


@pytest.mark.parametrize(
    ("runs", "is_expired", "may_expire", "found"),
    [
        (False, False, False, (Dead(B, is_proven=True),)),
        (False, True, True, (Dead(B, is_proven=True),)),
        (True, True, True, (Dead(B, is_proven=False),)),
        (None, True, True, (Dead(B, is_proven=False),)),
        (None, True, False, ()),
        (None, False, True, ()),
        (True, False, True, ()),
    ],
)
def test_a_controller_is_dead_if_its_process_or_its_lease_has_ended(
    runs: bool | None, is_expired: bool, may_expire: bool, found: tuple[Dead, ...]
) -> None:
    peers = [peer(A), peer(B, is_expired=is_expired)]
    assert dead_peers(A, peers, lambda _process: runs, may_expire=may_expire) == found


def test_a_controller_never_declares_itself_dead() -> None:
    peers = [peer(A, is_expired=True)]
    assert dead_peers(A, peers, lambda _process: False, may_expire=True) == ()


def test_only_who_renewed_for_a_whole_lease_may_judge_others() -> None:
    streak = RenewalStreak(LEASE)
    for second in range(0, 16, 3):
        assert not streak.covers_a_lease(second)
        streak.renewed(second)
    assert streak.covers_a_lease(15)


def test_a_gap_begins_a_new_streak() -> None:
    """The database was away, or this process was frozen."""
    streak = RenewalStreak(LEASE)
    for second in range(0, 30, 3):
        streak.renewed(second)
    assert streak.covers_a_lease(34)
    # The database is back, and the others are seen before the first renewal.
    assert not streak.covers_a_lease(35)
    for second in range(60, 76, 3):
        streak.renewed(second)
        assert streak.covers_a_lease(second) == (second == 75)


def test_a_renewal_holds_for_one_lease() -> None:
    streak = RenewalStreak(LEASE)
    assert not streak.is_current(0)
    streak.renewed(0)
    assert streak.is_current(14)
    assert not streak.is_current(15)
