"""Key groups: every group has one owner, and a file is read where its groups are owned."""

from __future__ import annotations

import pytest

from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.key_groups import KEY_GROUPS, deal, owned_groups, shuffle_partitions
from resurgence.state.load_plan import LoadPlan, operator_load
from resurgence.state.records import (
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
)

PARALLELISMS = range(1, KEY_GROUPS + 1)


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


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_the_groups_of_all_subtasks_partition_all_groups(parallelism: int) -> None:
    owned = [owned_groups(subtask, parallelism) for subtask in range(parallelism)]
    assert all(owned)
    assert sum(owned) == 2**KEY_GROUPS - 1
    assert sum(each.bit_count() for each in owned) == KEY_GROUPS


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_groups_are_whole_shuffle_partitions(parallelism: int) -> None:
    partitions = shuffle_partitions(parallelism)
    assert partitions >= parallelism
    assert KEY_GROUPS % partitions == 0
    for subtask in range(parallelism):
        groups = [g for g in range(KEY_GROUPS) if owned_groups(subtask, parallelism) >> g & 1]
        whole = {g % partitions for g in groups}
        assert len(groups) == len(whole) * KEY_GROUPS // partitions


@pytest.mark.parametrize("parallelism", [1, 2, 4, 8, 16, 32, 64])
def test_a_power_of_two_shuffles_into_as_many_partitions_as_subtasks(parallelism: int) -> None:
    assert shuffle_partitions(parallelism) == parallelism


def test_a_file_is_read_completely_by_its_owner_and_partly_by_subtasks_that_share_it() -> None:
    own, shared = file_of("own", owned_groups(0, 2)), file_of("shared", 2**KEY_GROUPS - 1)
    zero, one = deal([own, shared], 2)
    assert [(each.file.path, each.partial) for each in zero] == [("own", False), ("shared", True)]
    assert [(each.file.path, each.partial) for each in one] == [("shared", True)]


def test_a_load_plan_distributes_every_table_that_has_files() -> None:
    metadata = OperatorCheckpointMetadata(
        job=JobIdentity("j"),
        operator=OperatorId("window-1"),
        epoch=Epoch(1),
        generation=Generation(1),
        parallelism=2,
        tables={
            "partials": TableCheckpoint(
                kind=TableKind.TIME,
                files=tuple(file_of(str(each), owned_groups(each, 2)) for each in range(2)),
            ),
            "offsets": TableCheckpoint(kind=TableKind.GLOBAL, values={"row": 1}),
        },
    )
    load = operator_load(metadata, 4)
    assert set(load.subtasks) == {"partials"}
    assert [[each.file.path for each in mine] for mine in load.subtasks["partials"]] == [
        ["0"],
        ["1"],
        ["0"],
        ["1"],
    ]
    plan = LoadPlan(
        job=JobIdentity("j"),
        generation=Generation(2),
        parallelism=4,
        operators={OperatorId("window-1"): load},
    )
    assert LoadPlan.model_validate_json(plan.model_dump_json()) == plan
    assert not plan.finished
