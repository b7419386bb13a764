"""Which small files are merged: enough of a size, in one partition, and no row too often."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurgence.connectors.lakehouse import merge_plan
from resurgence.connectors.lakehouse.merge_plan import MergePolicy, SmallFile, plan_merges

TENS = MergePolicy(10, target_bytes=1_000_000)


def files(*sizes: int, partition: str = "a", first: int = 0) -> list[SmallFile]:
    return [
        SmallFile(f"{partition}/{first + number:04}", size, partition)
        for number, size in enumerate(sizes)
    ]


def paths(merges: Sequence[Sequence[SmallFile]]) -> list[list[str]]:
    return [[each.path for each in merge] for merge in merges]


def test_too_few_files_of_a_partition_are_left_alone() -> None:
    assert plan_merges([*files(*[100] * 9), *files(*[100] * 9, partition="b")], TENS) == []


def test_enough_files_of_a_partition_are_merged_in_the_order_of_their_names() -> None:
    small = files(*[100] * 11)
    assert paths(plan_merges([*reversed(small), *files(100, partition="b")], TENS)) == [
        [each.path for each in small]
    ]


def test_files_of_half_the_target_size_are_not_small() -> None:
    assert plan_merges(files(*[500_000] * 20), TENS) == []


def test_a_merge_is_no_larger_than_the_target_size() -> None:
    merges = plan_merges(files(*[300_000] * 10), TENS)
    assert [len(each) for each in merges] == [3, 3, 3]


def test_what_does_not_fill_a_file_waits_for_more() -> None:
    merges = plan_merges(files(*[90_000] * 25), TENS)
    assert [len(each) for each in merges] == [11, 11]


def test_files_are_merged_with_others_of_their_size() -> None:
    large = files(200_000, first=50)
    assert paths(plan_merges([*files(*[100] * 10), *large], TENS)) == paths([files(*[100] * 10)])


def test_the_partition_with_the_most_files_comes_first_and_a_run_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = files(*[100] * 10), files(*[100] * 20, partition="b")
    assert [each[0].partition for each in plan_merges([*few, *many], TENS)] == ["b", "a"]
    monkeypatch.setattr(merge_plan, "RUN_BYTES", 2500)
    assert [each[0].partition for each in plan_merges([*few, *many], TENS)] == ["b"]
    monkeypatch.setattr(merge_plan, "RUN_BYTES", 10)
    assert [each[0].partition for each in plan_merges([*few, *many], TENS)] == ["b"]
    monkeypatch.undo()
    monkeypatch.setattr(merge_plan, "RUN_FILES", 8)
    assert [len(each) for each in plan_merges(many, TENS)] == [8]


@given(
    st.lists(
        st.tuples(st.integers(0, 3_000), st.sampled_from("ab")), max_size=60, unique_by=lambda x: x
    ),
    st.integers(2, 5),
)
def test_a_plan_takes_each_file_once_and_never_mixes_partitions(
    sizes: list[tuple[int, str]], min_files: int
) -> None:
    policy = MergePolicy(min_files, target_bytes=2_000)
    small = [SmallFile(f"{n:03}", size, part) for n, (size, part) in enumerate(sizes)]
    taken: Counter[str] = Counter()
    for merge in plan_merges(small, policy):
        assert len({each.partition for each in merge}) == 1
        assert len(merge) >= 2
        assert all(each.bytes < policy.small_bytes for each in merge)
        assert sum(each.bytes for each in merge) <= policy.target_bytes
        taken.update(each.path for each in merge)
    assert set(taken.values()) <= {1}


@pytest.mark.parametrize("min_files", [2, 4, 10])
def test_a_row_is_rewritten_as_often_as_there_are_tiers(min_files: int) -> None:
    """A file of 100 bytes is added again and again, and all is merged that can be."""
    policy = MergePolicy(min_files, target_bytes=100_000)
    stored = dict.fromkeys(["0"], 100)
    written = 0
    for number in range(1, 3000):
        stored[f"{number}"] = 100
        while merges := plan_merges([SmallFile(*each) for each in stored.items()], policy):
            for merge in merges:
                size = sum(stored.pop(each.path) for each in merge)
                written += size
                stored[f"{merge[0].path}+"] = size
    tiers = math.ceil(math.log(policy.small_bytes / 100, min_files))
    assert written <= 100 * 3000 * tiers
    assert len(stored) <= 3 + min_files * (tiers + 1) + 3000 * 100 / policy.small_bytes
