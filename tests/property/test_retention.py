"""For random histories, retention never deletes objects that a restore or an epoch in flight needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from resurgence.config import KeepRule
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobName, OperatorId
from resurgence.state.paths import JobPaths, epoch_object, state_file_epoch
from resurgence.state.protocol.decisions import EpochObjects, epochs_seen
from resurgence.state.retention import classify, kept_by_time, kept_epochs, thinnable

PATHS = JobPaths(JobName("rides"))
WINDOW = OperatorId("window-1")


@dataclass
class History:
    """What a store may hold after any number of epochs, crashes, fallbacks and compactions."""

    records: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    names: dict[Epoch, frozenset[str]] = field(default_factory=dict)
    """Which files the standing manifest of an epoch names."""

    @property
    def epochs(self) -> dict[Epoch, EpochObjects]:
        return epochs_seen(self.records)


@st.composite
def histories(draw: st.DrawFn) -> History:
    history, live = History(), set[str]()
    first = draw(st.integers(1, 95))
    last = first + draw(st.integers(0, 9))
    for epoch in map(Epoch, range(first, last + 1)):
        generation = 0
        for _ in range(draw(st.integers(0, 1))):
            generation += 1
            history.files.append(state_file(epoch, generation))
        attempts = draw(st.sampled_from([1, 1, 1, 2]))
        generation += 1
        new = state_file(epoch, generation)
        history.files.append(new)
        forgotten = draw(st.sets(st.sampled_from(sorted(live)))) if live else set()
        live = (live - forgotten) | {new}
        history.records.append(PATHS.operator(epoch, WINDOW, Generation(generation)))
        history.records += [PATHS.manifest(epoch, attempt) for attempt in range(attempts)]
        history.records += [PATHS.condemned(epoch, attempt) for attempt in range(attempts - 1)]
        if draw(st.integers(0, 6)) == 0:
            history.records.append(PATHS.condemned(epoch, attempts - 1))
        else:
            history.names[epoch] = frozenset(live)
        history.records.append(PATHS.committed(epoch))
    in_flight = Epoch(last + 1)
    if draw(st.booleans()):
        history.files.append(state_file(in_flight, 1))
    return history


def state_file(epoch: int, generation: int) -> str:
    return f"{PATHS.table(WINDOW, 'partials')}/{epoch}-{generation}-0-{generation:012x}.parquet"


def clean(history: History, keep: int, unreadable: Epoch = NO_EPOCH) -> tuple[set[str], set[Epoch]]:
    """(everything that is deleted, the checkpoints that are kept)."""
    kept = kept_epochs(history.epochs, keep)
    named = frozenset().union(*(history.names[each] for each in kept if each != unreadable))
    deletions = classify(history.epochs, kept, history.files, named, unreadable)
    return set(deletions.paths), set(kept)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 12))
def test_nothing_reachable_from_a_kept_checkpoint_is_deleted(history: History, keep: int) -> None:
    deleted, kept = clean(history, keep)
    assert len(kept) == min(keep, len(history.names))
    assert kept == set(sorted(history.names)[-keep:])
    for epoch in kept:
        assert not deleted & history.names[epoch]
        assert not deleted & set(history.epochs[epoch].paths())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 12))
def test_nothing_newer_than_the_newest_checkpoint_is_deleted(history: History, keep: int) -> None:
    deleted, kept = clean(history, keep)
    for path in deleted:
        parsed = epoch_object(path)
        epoch = parsed[0] if parsed else state_file_epoch(path)
        assert epoch is not None
        assert epoch <= max(kept)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 12), data=st.data())
def test_nothing_that_an_unreadable_kept_checkpoint_names_is_deleted(
    history: History, keep: int, data: st.DataObject
) -> None:
    kept = kept_epochs(history.epochs, keep)
    if not kept:
        return
    unreadable = data.draw(st.sampled_from(kept))
    deleted, _ = clean(history, keep, unreadable)
    assert not deleted & history.names[unreadable]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 12), data=st.data())
def test_an_interrupted_round_is_completed_by_the_next(
    history: History, keep: int, data: st.DataObject
) -> None:
    kept = kept_epochs(history.epochs, keep)
    named = frozenset().union(*(history.names[each] for each in kept))
    whole = classify(history.epochs, kept, history.files, named)
    steps = [whole.manifests, (*whole.records, *whole.files)]
    order = [path for step in steps for path in data.draw(st.permutations(step))]
    gone = set(order[: data.draw(st.integers(0, len(order)))])
    left = History(
        [each for each in history.records if each not in gone],
        [each for each in history.files if each not in gone],
        history.names,
    )
    assert kept_epochs(left.epochs, keep) == kept
    again = classify(left.epochs, kept, left.files, named)
    assert again.paths | gone == set(order)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 12))
def test_manifests_are_deleted_before_all_that_they_name(history: History, keep: int) -> None:
    kept = kept_epochs(history.epochs, keep)
    named = frozenset().union(*(history.names[each] for each in kept))
    deletions = classify(history.epochs, kept, history.files, named)
    kinds = [epoch_object(path) for path in deletions.manifests]
    assert {each[1] for each in kinds if each is not None} <= {"manifest"}
    others = [epoch_object(path) for path in (*deletions.records, *deletions.files)]
    assert "manifest" not in {each[1] for each in others if each is not None}


# ---------------------------------------------------------------- by time


START = datetime(2030, 1, 1, tzinfo=UTC)
RULES = st.lists(
    st.builds(
        lambda every, times: KeepRule(timedelta(seconds=every), timedelta(seconds=every * times)),
        st.integers(1, 60),
        st.integers(1, 10),
    ),
    max_size=3,
).map(tuple)


@st.composite
def timelines(draw: st.DrawFn) -> dict[Epoch, datetime]:
    """When epochs were sealed: mostly one after the other, and some twice at the same instant."""
    at, sealed = START, {}
    for epoch in range(1, draw(st.integers(1, 120))):
        at += timedelta(seconds=draw(st.sampled_from([0, 1, 1, 1, 7, 90])))
        sealed[Epoch(epoch)] = at
    return sealed


@settings(max_examples=150, deadline=None, derandomize=True)
@given(sealed=timelines(), rules=RULES, later=st.integers(0, 300))
def test_every_interval_that_had_a_checkpoint_has_one_for_as_long_as_its_rule_says(
    sealed: dict[Epoch, datetime], rules: tuple[KeepRule, ...], later: int
) -> None:
    now = max(sealed.values(), default=START) + timedelta(seconds=later)
    kept = kept_by_time(sealed, rules, now)
    assert len(kept) <= sum(rule.span // rule.every + 2 for rule in rules)
    for rule in rules:
        for at in sealed.values():
            if now - at <= rule.span:
                assert any(abs(sealed[each] - at) < rule.every for each in kept)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(sealed=timelines(), rules=RULES, keep=st.integers(1, 5))
def test_rounds_after_every_epoch_reach_as_far_as_one_round_at_the_end(
    sealed: dict[Epoch, datetime], rules: tuple[KeepRule, ...], keep: int
) -> None:
    """What a round keeps is there for the rounds to come: thinning early loses nothing."""
    left: dict[Epoch, datetime] = {}
    for epoch, at in sealed.items():
        left[epoch] = at
        by_time = kept_by_time(left, rules, at)
        newest = sorted(left)[-keep:]
        left = {each: when for each, when in left.items() if each in by_time or each in newest}
    if sealed:
        assert kept_by_time(sealed, rules, max(sealed.values())) <= left.keys()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(history=histories(), keep=st.integers(1, 4), data=st.data())
def test_only_committed_epochs_between_kept_checkpoints_are_thinned(
    history: History, keep: int, data: st.DataObject
) -> None:
    by_time = data.draw(st.sets(st.sampled_from(sorted(history.names)))) if history.names else set()
    kept = kept_epochs(history.epochs, keep, by_time)
    assert by_time <= set(kept)
    for epoch in thinnable(history.epochs, kept):
        assert min(kept) < epoch < max(kept)
        assert epoch not in kept
        assert history.epochs[epoch].committed
