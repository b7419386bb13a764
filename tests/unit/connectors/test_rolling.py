"""When files are complete, and what is held back: pure decisions."""

from __future__ import annotations

from datetime import timedelta

from resurgence.connectors.filesystem.rolling import MOST_FILE_BYTES, Part, RollingPolicy, roll
from resurgence.ids import Epoch

SECOND = 1_000_000


def part(
    epoch: int, size: int = 10, folder: str = "", suffix: str = "json", number: int = 0
) -> Part:
    """Planned at as many seconds as its epoch."""
    return Part(f"{epoch}-{number}", 1, size, folder, suffix, Epoch(epoch), epoch * SECOND)


def rolled(policy: RollingPolicy | None, held: list[Part], added: list[Part], at: int) -> list[str]:
    """The files as texts of their parts."""
    found = roll(policy, held, added, "json", at * SECOND)
    return [" ".join(each.path for each in file) for file in found.files]


def test_without_a_policy_each_part_is_a_file() -> None:
    assert rolled(None, [], [part(1), part(1, number=1)], 1) == ["1-0", "1-1"]


def test_parts_held_by_an_earlier_policy_are_one_file_without_it() -> None:
    found = roll(None, [part(1), part(2)], [part(3)], "json", 3 * SECOND)
    assert [len(each) for each in found.files] == [2, 1]
    assert found.held == ()


def test_a_file_is_complete_when_it_has_its_size() -> None:
    policy = RollingPolicy(file_size=30)
    assert rolled(policy, [part(1)], [part(2)], 2) == []
    assert rolled(policy, [part(1), part(2)], [part(3), part(3, number=1)], 3) == ["1-0 2-0 3-0"]


def test_a_file_is_complete_at_its_age_by_planning_time() -> None:
    policy = RollingPolicy(interval=timedelta(seconds=5))
    assert rolled(policy, [part(1)], [part(5)], 5) == []
    assert rolled(policy, [part(1)], [part(6)], 6) == ["1-0 6-0"]
    assert rolled(policy, [part(1)], [], 6) == ["1-0"]


def test_the_size_of_each_held_part_is_added_once() -> None:
    added: list[int] = []

    class Counted(int):
        """A size that notes when it is added."""

        def __radd__(self, other: int) -> int:
            added.append(int(self))
            return int(self) + other

    parts = [part(each, Counted(10)) for each in range(1, 201)]
    found = roll(RollingPolicy(file_size=500), parts, [], "json", 0)
    assert [len(each) for each in found.files] == [50] * 4
    assert len(added) == len(parts)


def test_folders_have_files_of_their_own() -> None:
    policy = RollingPolicy(file_size=20, interval=timedelta(seconds=9))
    held = [part(1, folder="a"), part(2, folder="b"), part(3, folder="c")]
    assert rolled(policy, held, [part(10, folder="b")], 10) == ["1-0", "2-0 10-0"]


def test_a_file_is_complete_at_the_size_that_a_task_can_hold() -> None:
    policy = RollingPolicy(interval=timedelta(days=1))
    assert rolled(policy, [part(1, MOST_FILE_BYTES)], [part(2)], 2) == ["1-0"]
    assert RollingPolicy(file_size=10**12).most_bytes == MOST_FILE_BYTES


def test_parts_of_another_format_are_not_merged() -> None:
    policy = RollingPolicy(file_size=1000)
    held = [part(1, suffix="json.gz"), part(2, suffix="json.gz"), part(3)]
    assert rolled(policy, held, [part(4)], 4) == ["1-0", "2-0"]


def test_a_flush_holds_nothing_back() -> None:
    policy = RollingPolicy(file_size=1000)
    held = [part(1, folder="a"), part(2), part(3)]
    found = roll(policy, held, (), "json", 0, everything=True)
    assert [[each.path for each in file] for file in found.files] == [["1-0"], ["2-0", "3-0"]]
    assert found.held == ()
