"""The decisions of the checkpoint protocol, over listings written by the test."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from resurgence.ids import Epoch, Generation, JobIdentity, JobName, OperatorId
from resurgence.state.paths import (
    JobPaths,
    epoch_object,
    generation_of,
    rollback_of,
    state_file_epoch,
)
from resurgence.state.protocol.decisions import (
    Claim,
    EpochObjects,
    Examine,
    FallBack,
    Fallback,
    Impossible,
    Observed,
    Orphaned,
    Outcome,
    Ready,
    ReplayCommit,
    Retire,
    dead_ranges,
    epoch_after,
    epochs_seen,
    highest_generation,
    living,
    lost_seal,
    next_step,
    prevailing_identity,
)
from resurgence.state.records import RollbackRecord

PATHS = JobPaths(JobName("my.job-1"))


def generations(*numbers: int) -> list[str]:
    return [PATHS.generation(Generation(number)) for number in numbers]


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("number", [1, 9, 10, 1_234_567_890])
def test_a_generation_is_read_back_from_its_path(number: int) -> None:
    assert generation_of(PATHS.generation(Generation(number))) == number


@pytest.mark.parametrize("number", [1, 10, 1_234_567_890])
def test_every_object_of_an_epoch_is_read_back_from_its_path(number: int) -> None:
    epoch = Epoch(number)
    window = OperatorId("window-1-with-dashes")
    assert epoch_object(PATHS.manifest(epoch, 12)) == (epoch, "manifest", "12")
    assert epoch_object(PATHS.condemned(epoch, 0)) == (epoch, "condemned", "0")
    assert epoch_object(PATHS.committed(epoch)) == (epoch, "committed", "")
    assert epoch_object(PATHS.operator(epoch, window, Generation(3))) == (
        epoch,
        "operator",
        "window-1-with-dashes-3",
    )


def test_names_sort_as_their_numbers_do() -> None:
    epochs = [PATHS.epoch(Epoch(number)) for number in (1, 2, 9, 10, 11, 100)]
    assert sorted(epochs) == epochs
    assert sorted(generations(2, 9, 10)) == generations(2, 9, 10)


def test_the_epoch_of_a_state_file_is_read_back_from_its_path() -> None:
    folder = PATHS.table(OperatorId("window-1"), "partials")
    assert state_file_epoch(f"{folder}/12-3-0-0123456789ab.parquet") == 12


@pytest.mark.parametrize(
    "path",
    [
        "my.job-1/epochs/1/manifest-0.json",
        "my.job-1/epochs/0000000001/manifest-0.json.tmp",
        "my.job-1/epochs/0000000001/nested/manifest-0.json",
        "my.job-1/generations/0000000001.json",
        "README.md",
        "",
    ],
)
def test_a_foreign_path_is_no_object_of_an_epoch(path: str) -> None:
    assert epoch_object(path) is None


@pytest.mark.parametrize(
    "path",
    ["j/generations/1.json", "j/generations/0000000001.json~", "j/epochs/0000000001", ""],
)
def test_a_foreign_path_is_no_generation(path: str) -> None:
    assert generation_of(path) is None


@pytest.mark.parametrize("number", [1, 10, 1_234_567])
def test_a_rollback_is_read_back_from_its_path(number: int) -> None:
    assert rollback_of(PATHS.rollback(number)) == number
    assert rollback_of(PATHS.rollback(number) + "~") is None


@pytest.mark.parametrize(
    "path",
    ["j/tables/w/t/notes.txt", "j/tables/w/1-2-3-ab.parquet", "j/tables/w/t/1-2-ab.parquet"],
)
def test_a_foreign_path_is_no_state_file(path: str) -> None:
    assert state_file_epoch(path) is None


# ---------------------------------------------------------------- the fence


@pytest.mark.parametrize(
    ("mine", "newest", "outcome"),
    [
        (1, 1, Ready(Epoch(0))),
        (3, 3, Ready(Epoch(0))),
        (2, 3, Retire(Generation(3))),
        (9, 10, Retire(Generation(10))),
        (None, 0, Claim(Generation(1))),
        (None, 7, Claim(Generation(8))),
    ],
)
def test_only_the_highest_generation_may_continue(
    mine: int | None, newest: int, outcome: Outcome
) -> None:
    seen = Observed(None if mine is None else Generation(mine), Generation(newest))
    assert next_step(seen) == outcome


def test_foreign_names_do_not_raise_the_fence() -> None:
    assert highest_generation([*generations(2), "my.job-1/generations/99.json", "x"]) == 2
    assert highest_generation([]) == 0


# ---------------------------------------------------------------- epochs


def test_a_listing_is_sorted_into_epochs_oldest_first() -> None:
    two, ten = Epoch(2), Epoch(10)
    metadata = PATHS.operator(two, OperatorId("source-1"), Generation(1))
    seen = epochs_seen(
        [
            PATHS.manifest(ten, 0),
            PATHS.committed(two),
            PATHS.manifest(two, 0),
            PATHS.manifest(two, 1),
            PATHS.condemned(two, 0),
            metadata,
            PATHS.epoch(two) + "/strange-1.json",
            PATHS.epoch(two) + "/manifest-x.json",
            PATHS.epoch(two) + "/manifest-².json",
            "elsewhere",
        ]
    )
    assert list(seen) == [2, 10]
    assert seen[two] == EpochObjects(
        two,
        operators=[metadata],
        manifests={0: PATHS.manifest(two, 0), 1: PATHS.manifest(two, 1)},
        condemned={0: PATHS.condemned(two, 0)},
        committed=PATHS.committed(two),
    )


@pytest.mark.parametrize(
    ("manifests", "condemned", "standing", "next_attempt"),
    [
        ([], [], None, 0),
        ([0], [], 0, 1),
        ([0], [0], None, 1),
        ([0, 1], [0], 1, 2),
        ([0, 1], [0, 1], None, 2),
        ([1], [0], 1, 2),
        ([], [0], None, 1),
        ([], [0, 1], None, 2),
    ],
)
def test_the_newest_manifest_that_is_not_condemned_counts(
    manifests: list[int], condemned: list[int], standing: int | None, next_attempt: int
) -> None:
    objects = EpochObjects(
        Epoch(1),
        manifests=dict.fromkeys(manifests, "manifest"),
        condemned=dict.fromkeys(condemned, "condemned"),
    )
    assert (objects.standing, objects.next_attempt) == (standing, next_attempt)


def test_the_manifest_is_listed_first_in_the_folder_of_an_epoch() -> None:
    objects = EpochObjects(Epoch(1), ["o"], {0: "m"}, {0: "x"}, "c")
    assert objects.paths() == ("m", "x", "o", "c")


@pytest.mark.parametrize(
    ("objects", "is_lost"),
    [
        (EpochObjects(Epoch(1), committed="c"), True),
        (EpochObjects(Epoch(1), committed="c", manifests={0: "m"}), False),
        (EpochObjects(Epoch(1), committed="c", condemned={0: "x"}), False),
        (EpochObjects(Epoch(1), operators=["o"]), False),
    ],
)
def test_a_committed_epoch_without_a_manifest_has_lost_it(
    objects: EpochObjects, is_lost: bool
) -> None:
    assert (lost_seal(objects) is not None) == is_lost


# ---------------------------------------------------------------- rollbacks


def rollbacks(*ranges: tuple[int, int]) -> list[RollbackRecord]:
    """Rollbacks to an epoch at a highest epoch."""
    return [
        RollbackRecord(
            job=JobIdentity("j"),
            number=number,
            to_epoch=Epoch(to_epoch),
            highest_epoch=Epoch(highest),
            generation=Generation(number),
            recorded_at=datetime(2030, 1, 1, tzinfo=UTC),
        )
        for number, (to_epoch, highest) in enumerate(ranges, 1)
    ]


@pytest.mark.parametrize(
    ("made", "dead"),
    [
        ([], ()),
        ([(5, 8)], ((6, 8),)),
        ([(5, 5)], ()),
        ([(0, 8)], ((1, 8),)),
        ([(5, 8), (10, 12)], ((6, 8), (11, 12))),
        ([(5, 8), (5, 10)], ((6, 10),)),
        ([(5, 8), (3, 10)], ((4, 10),)),
        ([(5, 8), (9, 12), (4, 12)], ((5, 12),)),
        ([(5, 8), (9, 12), (0, 13)], ((1, 13),)),
    ],
)
def test_the_dead_epochs_of_several_rollbacks_are_combined(
    made: list[tuple[int, int]], dead: tuple[tuple[int, int], ...]
) -> None:
    assert dead_ranges(rollbacks(*made)) == dead


def test_numbers_that_were_rolled_back_are_not_used_again() -> None:
    dead = dead_ranges(rollbacks((5, 8), (9, 12)))
    assert [epoch_after(Epoch(each), dead) for each in (0, 4, 5, 9, 13)] == [1, 5, 9, 13, 14]


def test_live_epochs_are_those_that_were_not_rolled_back() -> None:
    epochs = {Epoch(each): EpochObjects(Epoch(each)) for each in range(1, 8)}
    assert list(living(epochs, dead_ranges(rollbacks((2, 4), (5, 6))))) == [1, 2, 5, 7]


# ---------------------------------------------------------------- the decision


def objects(epoch: int, kinds: str) -> EpochObjects:
    """An epoch's folder: o(perator), m(anifest), x (condemned), c(ommitted)."""
    return EpochObjects(
        Epoch(epoch),
        ["o"] if "o" in kinds else [],
        {0: "m"} if "m" in kinds else {},
        {0: "x"} if "x" in kinds else {},
        "c" if "c" in kinds else None,
    )


def decided(
    folders: dict[int, str],
    faults: Mapping[int, tuple[str, ...]] | None = None,
    *dead: tuple[int, int],
) -> Outcome:
    return next_step(
        Observed(
            Generation(2),
            Generation(2),
            {Epoch(epoch): objects(epoch, kinds) for epoch, kinds in folders.items()},
            tuple((Epoch(first), Epoch(last)) for first, last in dead),
            {Epoch(epoch): reasons for epoch, reasons in (faults or {}).items()},
        )
    )


def passed(*epochs: int, reason: str = "torn") -> tuple[Fallback, ...]:
    return tuple(Fallback(epoch=Epoch(epoch), reasons=(reason,)) for epoch in epochs)


LOST = "its sinks are committed, but its manifest is missing"
WHOLE: tuple[str, ...] = ()


def test_the_newest_checkpoint_is_examined_first_and_older_ones_only_if_it_must_be() -> None:
    there = {1: "omc", 2: "omc", 3: "om", 4: "o"}
    assert decided(there) == Examine(Epoch(3))
    assert decided(there, {3: WHOLE}) == ReplayCommit(Epoch(3))
    assert decided(there, {3: ("torn",)}) == Examine(Epoch(2))


def test_a_checkpoint_whose_sinks_are_committed_is_ready() -> None:
    assert decided({1: "omc", 2: "omc"}, {2: WHOLE}) == Ready(Epoch(2))


def test_nothing_is_condemned_before_an_older_checkpoint_is_known_to_be_valid() -> None:
    there = {1: "omc", 2: "omc", 3: "omc"}
    torn = {3: ("torn",), 2: ("torn",)}
    assert decided(there, torn) == Examine(Epoch(1))
    assert decided(there, {**torn, 1: WHOLE}) == FallBack(Epoch(3), 0, ("torn",))
    assert decided(there, {**torn, 1: ("torn",)}) == Impossible(passed(3, 2, 1))


def test_what_is_condemned_is_not_condemned_again() -> None:
    there = {1: "omc", 2: "omxc", 3: "omxc"}
    assert decided(there) == Examine(Epoch(3))
    torn = {3: ("torn",), 2: ("torn",), 1: WHOLE}
    assert decided(there, torn) == Ready(Epoch(1), passed(3, 2))


def test_a_lost_manifest_is_skipped_without_reading_anything() -> None:
    there = {1: "omc", 2: "oc"}
    assert decided(there) == Examine(Epoch(1))
    assert decided(there, {1: WHOLE}) == Ready(Epoch(1), passed(2, reason=LOST))
    assert decided({1: "oc"}) == Impossible(passed(1, reason=LOST))


def test_epochs_that_were_begun_and_never_sealed_are_orphaned() -> None:
    assert decided({1: "o"}) == Orphaned((Epoch(1),))
    assert decided({1: "om", 2: "o"}, {1: WHOLE}) == ReplayCommit(Epoch(1))


def test_an_epoch_without_a_predecessor_reveals_a_lost_one() -> None:
    reason = "epoch 3 was started, but the manifests before it are missing"
    assert decided({1: "o", 3: "o"}) == Impossible(passed(2, reason=reason))


def test_dead_epochs_are_neither_restored_nor_reported_missing() -> None:
    there = {1: "omc", 2: "omc", 3: "oc", 4: "omx"}
    assert decided(there, None, (3, 4)) == Examine(Epoch(2))
    assert decided(there, {2: WHOLE}, (3, 4)) == Ready(Epoch(2))
    assert decided(there, None, (1, 4)) == Ready(Epoch(0))


def test_after_a_rollback_to_scratch_the_first_epoch_has_a_higher_number() -> None:
    assert decided({1: "omc", 2: "omc", 3: "o"}, None, (1, 2)) == Orphaned((Epoch(3),))
    reason = "epoch 4 was started, but the manifests before it are missing"
    assert decided({4: "o"}, None, (1, 2)) == Impossible(passed(3, reason=reason))


def test_the_epoch_before_a_gap_is_reported_missing() -> None:
    reason = "epoch 5 was started, but the manifests before it are missing"
    assert decided({5: "o"}, None, (3, 4)) == Impossible(passed(2, reason=reason))


def test_a_fenced_generation_retires_whatever_it_has_read() -> None:
    epochs = {Epoch(1): objects(1, "omc"), Epoch(2): objects(2, "omc")}
    faults = {Epoch(1): WHOLE, Epoch(2): ("torn",)}
    seen = Observed(Generation(2), Generation(3), epochs, faults=faults)
    assert next_step(seen) == Retire(Generation(3))


def test_decisions_do_not_change_their_input() -> None:
    epochs = {Epoch(1): objects(1, "omc"), Epoch(2): objects(2, "omc")}
    seen = Observed(
        Generation(2), Generation(2), epochs, faults={Epoch(1): (), Epoch(2): ("torn",)}
    )
    assert next_step(seen) == next_step(seen) == FallBack(Epoch(2), 0, ("torn",))


def test_the_identity_is_decided_by_the_majority_of_records() -> None:
    ours, other = JobIdentity("ours"), JobIdentity("other")
    assert prevailing_identity([other, ours, ours]) == ours
    assert prevailing_identity([ours, other, ours, other, other]) == other
    assert prevailing_identity([ours, other]) == ours, "the first, if they are even"


def test_the_number_of_a_generation_that_left_metadata_is_not_reused() -> None:
    epochs = epochs_seen(
        [
            "rides/epochs/0000000004/operator-window-1-7.json",
            "rides/epochs/0000000004/committed.json",
        ]
    )
    assert next_step(Observed(None, Generation(3), epochs)) == Claim(Generation(8))
    assert next_step(Observed(None, Generation(9), epochs)) == Claim(Generation(10))
