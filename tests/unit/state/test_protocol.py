"""The checkpoint protocol's decisions, over listings written by hand."""

from __future__ import annotations

import pytest

from resurgence.ids import Epoch, Generation, JobName, OperatorId
from resurgence.state.paths import JobPaths, epoch_object, generation_of, state_file_epoch
from resurgence.state.protocol import (
    EpochObjects,
    MayPublish,
    RetireOvertaken,
    epochs_seen,
    highest_generation,
    lost_seal,
    may_publish,
)

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


@pytest.mark.parametrize(
    "path",
    ["j/tables/w/t/notes.txt", "j/tables/w/1-2-3-ab.parquet", "j/tables/w/t/1-2-ab.parquet"],
)
def test_a_foreign_path_is_no_state_file(path: str) -> None:
    assert state_file_epoch(path) is None


# ---------------------------------------------------------------- the fence


@pytest.mark.parametrize(
    ("mine", "there", "outcome"),
    [
        (1, [1], MayPublish()),
        (3, [1, 2, 3], MayPublish()),
        (2, [1, 2, 3], RetireOvertaken(Generation(3))),
        (9, [9, 10], RetireOvertaken(Generation(10))),
        (1, [], MayPublish()),
    ],
)
def test_only_the_highest_generation_may_publish(
    mine: int, there: list[int], outcome: MayPublish | RetireOvertaken
) -> None:
    assert may_publish(Generation(mine), generations(*there)) == outcome


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
def test_the_newest_manifest_that_is_not_condemned_stands(
    manifests: list[int], condemned: list[int], standing: int | None, next_attempt: int
) -> None:
    objects = EpochObjects(
        Epoch(1),
        manifests=dict.fromkeys(manifests, "manifest"),
        condemned=dict.fromkeys(condemned, "condemned"),
    )
    assert (objects.standing, objects.next_attempt) == (standing, next_attempt)


def test_the_manifest_comes_first_of_all_that_lies_in_an_epochs_folder() -> None:
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
