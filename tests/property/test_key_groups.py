"""A restore at another parallelism is complete: every key group of every file is read by its one
owner.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resurgence.ids import Epoch
from resurgence.state.key_groups import KEY_GROUPS, deal, owned_groups
from resurgence.state.records import StateFile

parallelisms = st.integers(1, KEY_GROUPS)
group_sets = st.integers(1, 2**KEY_GROUPS - 1)


def file_of(name: str, key_groups: int) -> StateFile:
    return StateFile(
        path=name,
        subtask=0,
        epoch=Epoch(1),
        rows=1,
        bytes=1,
        key_groups=key_groups,
        time_start=0,
        time_end=0,
        digest="",
    )


def check_dealt(files: list[StateFile], parallelism: int) -> None:
    dealt = deal(files, parallelism)
    assert len(dealt) == parallelism
    owned = [owned_groups(subtask, parallelism) for subtask in range(parallelism)]
    for file in files:
        read = 0
        for groups, slices in zip(owned, dealt, strict=True):
            mine = [each for each in slices if each.file is file]
            assert len(mine) == bool(file.key_groups & groups), "only overlapping files are read"
            for each in mine:
                assert each.partial == (file.key_groups | groups != groups)
                assert not read & file.key_groups & groups, "no group is read twice"
                read |= file.key_groups & groups
        assert read == file.key_groups, "every group is read"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(before=parallelisms, after=parallelisms)
def test_files_are_redistributed_to_another_parallelism(before: int, after: int) -> None:
    files = [file_of(str(each), owned_groups(each, before)) for each in range(before)]
    check_dealt(files, after)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(groups=st.lists(group_sets, max_size=6), parallelism=parallelisms)
def test_any_files_are_distributed_completely(groups: list[int], parallelism: int) -> None:
    check_dealt([file_of(str(number), each) for number, each in enumerate(groups)], parallelism)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(parallelism=parallelisms)
def test_at_the_same_parallelism_every_file_is_read_completely_by_one_subtask(
    parallelism: int,
) -> None:
    files = [file_of(str(each), owned_groups(each, parallelism)) for each in range(parallelism)]
    for file, slices in zip(files, deal(files, parallelism), strict=True):
        assert [(each.file, each.partial) for each in slices] == [(file, False)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(groups=group_sets)
def test_a_set_of_key_groups_survives_a_round_trip(groups: int) -> None:
    file = file_of("x", groups)
    assert StateFile.model_validate_json(file.model_dump_json()) == file
