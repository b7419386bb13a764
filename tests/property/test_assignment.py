"""Whatever happened before, controllers that see the same rows come to an even spread, and then move
nothing more.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from resurgence.control.fleet.assignment import MAX_MOVES, JobFact, Peer, assign
from resurgence.ids import ControllerId, JobName
from resurgence.state.records import Owner, OwnerKind

OWNER = Owner(
    id="service",
    kind=OwnerKind.SERVICE,
    host="here",
    pid=1,
    since=datetime(2030, 1, 1, tzinfo=UTC),
    process_space="",
    process_started="",
)
CONTROLLERS = st.integers(1, 5).map(lambda n: [ControllerId(f"c{each}") for each in range(n)])


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Peer], list[JobFact]]:
    """Owned and unowned jobs, running or not."""
    ids = draw(CONTROLLERS)
    owners = st.sampled_from([None, *ids])
    shapes = draw(st.lists(st.tuples(owners, st.booleans(), st.booleans()), max_size=40))
    jobs = [
        JobFact(JobName(f"job{n}"), owner, is_active, is_active and is_running)
        for n, (owner, is_active, is_running) in enumerate(shapes)
    ]
    return [Peer(each, OWNER) for each in ids], jobs


@given(fleets())
def test_each_unowned_job_is_claimed_by_exactly_one(
    fleet: tuple[list[Peer], list[JobFact]],
) -> None:
    peers, jobs = fleet
    claimed = [name for each in peers for name in assign(each.id, peers, jobs).claims]
    assert sorted(claimed) == sorted(each.name for each in jobs if each.owner is None)


@given(fleets())
def test_the_load_becomes_even_and_then_nothing_moves(
    fleet: tuple[list[Peer], list[JobFact]],
) -> None:
    peers, jobs = fleet
    jobs = [replace(each, is_running=each.is_active) for each in jobs]
    for _ in range(2 * len(jobs) + 2):
        plans = {each.id: assign(each.id, peers, jobs) for each in peers}
        assert all(len(each.releases) <= MAX_MOVES for each in plans.values())
        owner = {each.name: each.owner for each in jobs}
        for controller, plan in plans.items():
            owner |= dict.fromkeys(plan.claims, controller)
            owner |= dict.fromkeys(plan.releases)
        jobs = [replace(each, owner=owner[each.name]) for each in jobs]
    loads = [sum(job.is_active and job.owner == each.id for job in jobs) for each in peers]
    assert max(loads) - min(loads) <= 1
    assert all(assign(each.id, peers, jobs).releases == () for each in peers)
    assert all(each.owner is not None for each in jobs)
