"""How the output of dead epochs is retracted, by the log of the table."""

from __future__ import annotations

import pytest

from resurgence.connectors.delta.log import LoggedFile, Version, parse_version
from resurgence.connectors.delta.writing.rollback import (
    Refusal,
    RemoveFiles,
    RestoreVersion,
    plan_retraction,
    version_before,
)

APP = "resurgence-job-out"


def own(number: int, epoch: int, added: str = "", removed: str = "") -> Version:
    return Version(
        number,
        operation="WRITE",
        is_ours=True,
        added=tuple(LoggedFile(each) for each in added),
        removed=tuple(LoggedFile(each) for each in removed),
        transactions={APP: epoch},
    )


def other(number: int, added: str = "", removed: str = "", *, moves: bool = False) -> Version:
    return Version(
        number,
        operation="OPTIMIZE" if moves else "MERGE",
        added=tuple(LoggedFile(each, changes_data=not moves) for each in added),
        removed=tuple(LoggedFile(each, changes_data=not moves) for each in removed),
    )


@pytest.mark.parametrize(
    ("epochs", "after", "expected"),
    [
        ([0, 1, 2, 3], 1, 1),
        ([0, 1, 1, 3, 3], 2, 2),
        ([0, 1, 2], 5, 2),
        ([0, 4, 5], 2, 0),
        ([None, None, 2, 3], 2, 2),
        ([None, None, 3, 4], 2, None),
        ([None, None, None, 2, 2, 2, 9], 2, 5),
    ],
)
def test_the_version_before_is_the_newest_without_a_dead_epoch(
    epochs: list[int | None], after: int, expected: int | None
) -> None:
    assert version_before(len(epochs) - 1, after, epochs.__getitem__) == expected


def test_a_table_that_only_the_job_wrote_to_is_restored() -> None:
    since = [own(4, 2, "b"), own(5, 3, "c", "a")]
    assert plan_retraction(3, since, APP, "a", "bc") == RestoreVersion(3)


def test_compactions_and_columns_of_our_own_do_not_matter() -> None:
    column = Version(5, is_ours=True, metadata={"id": "x"})
    since = [own(4, 2, "b"), column, other(6, "x", "ab", moves=True)]
    assert plan_retraction(3, since, APP, "a", "x") == RestoreVersion(3)


def test_appended_files_are_removed_beside_rows_of_others() -> None:
    since = [own(4, 2, "b"), other(5, "o"), own(6, 3, "c")]
    assert plan_retraction(3, since, APP, "a", "aboc") == RemoveFiles(frozenset("bc"))


@pytest.mark.parametrize(
    ("since", "live"),
    [
        ([own(4, 2, "b"), other(5, "o"), other(6, "x", "bo", moves=True)], "ax"),
        ([own(4, 2, "b", "a"), other(5, "o")], "bo"),
        ([own(4, 2, "b"), other(5, "", "b")], "a"),
    ],
    ids=["compacted", "upserts", "deleted"],
)
def test_rows_that_are_mixed_with_those_of_others_stay(since: list[Version], live: str) -> None:
    found = plan_retraction(3, since, APP, "az", live)
    merged = ", and version 6 has merged files" if len(since) == 3 else ""
    reason = f"somebody else has written to the table since: version 5 (MERGE){merged}"
    assert found == Refusal(reason)


def test_changed_columns_of_others_are_not_taken_back() -> None:
    since = [own(4, 2, "b", "a"), Version(5, operation="ADD COLUMN", metadata={"id": "x"})]
    assert isinstance(plan_retraction(3, since, APP, "a", "b"), Refusal)


def test_a_table_that_was_restored_by_hand_needs_nothing() -> None:
    since = [own(4, 2, "b"), other(5, "o"), other(6, "", "bo")]
    assert plan_retraction(3, since, APP, "a", "a") == RemoveFiles()


def test_a_version_is_parsed_from_its_actions() -> None:
    lines = [
        '{"commitInfo":{"timestamp":17,"operation":"WRITE","resurgence":{"epoch":2}}}',
        '{"txn":{"appId":"resurgence-job-out","version":2}}',
        '{"add":{"path":"day=1/a%20b.parquet","size":5,"partitionValues":{"day":null},'
        '"dataChange":true,"stats":"{\\"numRecords\\":3}"}}',
        '{"remove":{"path":"c","dataChange":false,"deletionVector":{"storageType":"u"}}}',
        "",
    ]
    assert parse_version(7, "\n".join(lines).encode()) == Version(
        7,
        millis=17,
        operation="WRITE",
        is_ours=True,
        added=(LoggedFile("day=1/a b.parquet", 5, 3, {"day": None}),),
        removed=(LoggedFile("c", changes_data=False, has_deletion_vector=True),),
        transactions={APP: 2},
    )
