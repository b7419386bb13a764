"""`resurgence dead-letters`: list, show, query, replay."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.cli.conftest import Cli
from tests.unit.state.dead_letter_files import letter, write_letters
from tests.unit.state.real_state import NOW, SOURCE, RealJob

from resurgence.ids import Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.inspection import dead_letters as inspection
from resurgence.state.inspection.dead_letters import LetterFilter, dead_letters, request_replay
from resurgence.state.replays import Replays
from resurgence.storage.object_store import ObjectStore, StoredObject


@pytest.fixture
def dead(real: RealJob) -> RealJob:
    """A job with dead letters of epochs 1 and 3."""
    write_letters(
        real,
        letter(3, 12, b"\xff", error="not UTF-8"),
        letter(1, 4, b'{"a": 1}', operator="query-1", error="DIVIDE_BY_ZERO"),
        letter(3, 9, b"{"),
    )
    return real


def listed(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    done = cli("dead-letters", "list", "--json", *arguments)
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def requests(job: RealJob) -> list[list[Any]]:
    replays = Replays(job.backend.store, job.backend.paths)
    found = replays.listed(job.claim.job).get(SOURCE, [])
    return [replays.records(each).column("raw").to_pylist() for each in found]


def test_dead_letters_are_listed_oldest_first_one_object_per_line(cli: Cli, dead: RealJob) -> None:
    first, second, third = listed(cli)
    assert {"operator", "epoch", "position", "error", "raw"} <= first.keys()
    assert first == {
        "id": "1-1",
        "operator": "query-1",
        "epoch": 1,
        "position": "rides.json, line 5",
        "error": "DIVIDE_BY_ZERO",
        "raw": '{"a": 1}',
        "source": str(SOURCE),
        "at": "2030-01-01T00:00:00Z",
        "replayed": False,
    }
    assert (second["id"], second["raw"]) == ("3-1", "{")
    assert (third["raw"], base64.b64decode(third["raw_base64"])) == ("\\xff", b"\xff")


def test_filters_choose_dead_letters(cli: Cli, dead: RealJob) -> None:
    assert [each["id"] for each in listed(cli, "--epoch", "3")] == ["3-1", "3-2"]
    assert [each["id"] for each in listed(cli, "--operator", "query-1")] == ["1-1"]
    assert len(listed(cli, "--operator", str(SOURCE))) == 3
    assert [each["id"] for each in listed(cli, "--where", "error LIKE 'not%' AND epoch > 2")] == [
        "3-1",
        "3-2",
    ]
    assert [each["id"] for each in listed(cli, "--limit", "1")] == ["3-2"]


def test_the_table_is_plain_text(cli: Cli, dead: RealJob, real: RealJob) -> None:
    done = cli("dead-letters", "list", "--limit", "2")
    header, *lines = done.out.splitlines()
    assert header.split() == ["id", "epoch", "operator", "position", "error", "replayed"]
    assert [line.split()[0] for line in lines] == ["3-1", "3-2"]
    assert "1 older dead letter omitted" in done.err


def test_a_job_without_dead_letters_says_so(cli: Cli, real: RealJob) -> None:
    assert cli("dead-letters", "list").out == "there are no dead letters\n"
    assert listed(cli) == []


def test_one_is_shown_with_its_record_as_text_or_in_hexadecimal(cli: Cli, dead: RealJob) -> None:
    assert cli("dead-letters", "show", "1-1").out.endswith('raw\n  {"a": 1}\n')
    assert cli("dead-letters", "show", "3-2").out.endswith("raw\n  ff\n")
    wrong = cli("dead-letters", "show", "7-1")
    assert (wrong.status, "there is no dead letter 7-1" in wrong.err) == (2, True)


def test_the_table_can_be_queried_and_not_changed(cli: Cli, dead: RealJob) -> None:
    sql = "SELECT epoch, count(*) AS n FROM dead_letters GROUP BY ALL ORDER BY ALL"
    lines = cli("dead-letters", "query", sql, "--format", "json").out.splitlines()
    assert [json.loads(each) for each in lines] == [{"epoch": 1, "n": 1}, {"epoch": 3, "n": 2}]
    assert cli("dead-letters", "query", "DROP TABLE dead_letters").status == 2
    assert cli("dead-letters", "query", "SELECT * FROM '/etc/passwd'").status == 2


def test_letters_of_epochs_that_were_rolled_back_are_not_listed(cli: Cli, dead: RealJob) -> None:
    dead.backend.record_rollback(dead.claim, Epoch(1), NOW)
    assert [each["id"] for each in listed(cli)] == ["1-1"]


def test_a_replay_stores_a_request_once_and_warns_of_late_rows(cli: Cli, dead: RealJob) -> None:
    done = cli("dead-letters", "replay", "--epoch", "3")
    assert done.out == "2 dead letters to be read with later epochs\n"
    assert "drop replayed rows before 1970-01-01T00:03:00+00:00 as late" in done.err
    assert requests(dead) == [[b"{", b"\xff"]]
    assert [each["replayed"] for each in listed(cli)] == [False, True, True]
    done = cli("dead-letters", "replay", "--json")
    answer = json.loads(done.out)
    assert (answer["rows"], answer["skipped"]) == (1, 2)
    assert len(answer["warnings"]) == 1
    done = cli("dead-letters", "replay")
    assert done.out == "3 dead letters skipped: replayed before\nnothing to replay\n"
    assert len(requests(dead)) == 2
    assert cli("dead-letters", "replay", "--id", "1-1", "--again").status == 0
    assert requests(dead)[2] == [b'{"a": 1}']


def test_corrected_records_are_replayed_instead_of_the_stored_ones(
    cli: Cli, dead: RealJob, tmp_path: Path
) -> None:
    _, second, third = listed(cli)
    second["raw"] = '{"a": 2}'
    file = tmp_path / "letters.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in (second, third)))
    assert cli("dead-letters", "replay", "--file", str(file)).status == 0
    assert requests(dead) == [[b'{"a": 2}', b"\xff"]]
    assert [each["replayed"] for each in listed(cli)] == [False, True, True]


def test_a_file_that_is_not_of_dead_letters_is_refused_with_its_line(
    cli: Cli, dead: RealJob, tmp_path: Path
) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text('{"id": "1-1", "raw": "x"}\n{"raw": "x"}\n')
    done = cli("dead-letters", "replay", "--file", str(file))
    assert done.status == 2
    assert "letters.jsonl, line 2" in done.err
    assert requests(dead) == []


def test_the_newest_letter_of_a_record_is_replayed(cli: Cli, real: RealJob) -> None:
    write_letters(real, letter(1, 4, b"old"), letter(2, 4, b"new"))
    cli("dead-letters", "replay")
    assert requests(real) == [[b"new"]]


def test_a_truncated_list_in_json_says_so(cli: Cli, dead: RealJob) -> None:
    done = cli("dead-letters", "list", "--json", "--limit", "2")
    assert len(done.out.splitlines()) == 2
    assert "1 older dead letter omitted" in done.err


def test_a_record_without_a_value_is_replayed_without_one(
    cli: Cli, real: RealJob, tmp_path: Path
) -> None:
    write_letters(real, letter(1, 4, b"{"), letter(1, 5, raw=None))
    _, second = listed(cli)
    assert second["raw"] is None
    file = tmp_path / "letters.jsonl"
    file.write_text(json.dumps(second))
    assert cli("dead-letters", "replay", "--file", str(file)).status == 0
    assert requests(real) == [[None]]


@pytest.mark.parametrize("field", ["source", "position"])
def test_a_corrected_record_of_another_dead_letter_is_refused(
    cli: Cli, dead: RealJob, tmp_path: Path, field: str
) -> None:
    first, *_ = listed(cli)
    file = tmp_path / "letters.jsonl"
    file.write_text(json.dumps(first | {field: "another"}))
    done = cli("dead-letters", "replay", "--file", str(file))
    assert (done.status, f"its {field} is another" in done.err) == (2, True)
    assert requests(dead) == []


def test_many_dead_letters_are_several_requests(cli: Cli, real: RealJob) -> None:
    write_letters(real, *(letter(1, offset) for offset in range(501)))
    done = cli("dead-letters", "replay")
    assert done.out == "501 dead letters to be read with later epochs\n"
    assert [len(each) for each in requests(real)] == [500, 1]


def test_a_dead_letter_that_another_process_replays_at_the_same_time_is_replayed_once(
    cli: Cli, dead: RealJob
) -> None:
    before = dead_letters(dead.backend, LetterFilter(ids=frozenset({"3-1", "3-2"}))).rows
    assert cli("dead-letters", "replay", "--id", "3-1").status == 0
    outcome = request_replay(dead.backend, before, NOW)
    assert (outcome.rows, outcome.skipped) == (1, 1)
    assert requests(dead) == [[b"{"], [b"\xff"]]


def many(real: RealJob, epochs: int) -> None:
    write_letters(
        real, *(letter(epoch, offset) for epoch in range(1, epochs + 1) for offset in (1, 2))
    )


@pytest.mark.parametrize("operator", [None, str(SOURCE), "another"])
def test_no_more_raw_records_are_read_than_are_listed(
    real: RealJob, monkeypatch: pytest.MonkeyPatch, operator: str | None
) -> None:
    many(real, 9)
    monkeypatch.setattr(inspection, "_EPOCHS_AT_ONCE", 1)
    columns, read = [], inspection._read

    def noted(backend: StateBackend, file: StoredObject, names: list[str]) -> pa.Table:
        columns.append("raw" in names)
        return read(backend, file, names)

    monkeypatch.setattr(inspection, "_read", noted)
    found = dead_letters(real.backend, LetterFilter(operator=operator), newest=3)
    if operator == "another":
        assert (found.rows.num_rows, found.omitted) == (0, 0)
        return
    assert found.rows.column("id").to_pylist() == ["8-2", "9-1", "9-2"]
    assert found.omitted == 15
    assert sum(columns) == 2


def test_only_the_epoch_of_an_id_is_read(
    cli: Cli, real: RealJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(real, 9)
    opened: list[str] = []
    read = ObjectStore.read

    def noted(self: ObjectStore, path: str) -> bytes:
        opened.append(path)
        return read(self, path)

    monkeypatch.setattr(ObjectStore, "read", noted)
    assert cli("dead-letters", "show", "4-2").status == 0
    assert len([each for each in opened if "/dead-letters/" in each]) == 1
    assert dead_letters(real.backend, LetterFilter(ids=frozenset())).rows.num_rows == 0


def test_a_large_file_is_read_in_part(real: RealJob, monkeypatch: pytest.MonkeyPatch) -> None:
    raws = [os.urandom(700_000) for _ in range(3)]
    write_letters(real, *(letter(1, offset, raw) for offset, raw in enumerate(raws)))
    sizes: list[int] = []
    read = ObjectStore.read_range

    def noted(self: ObjectStore, path: str, start: int, end: int) -> bytes:
        sizes.append(end - start)
        return read(self, path, start, end)

    monkeypatch.setattr(ObjectStore, "read_range", noted)
    slim = dead_letters(real.backend, columns={"error"}).rows
    assert slim.column("error").to_pylist() == ["not JSON"] * 3
    assert sum(sizes) < 200_000
    assert "raw" not in slim.column_names
    assert dead_letters(real.backend, newest=2).rows.column("raw").to_pylist() == raws[1:]


def test_a_condition_and_a_limit_choose_the_newest_that_match(cli: Cli, real: RealJob) -> None:
    many(real, 5)
    done = cli("dead-letters", "list", "--json", "--where", '"offset" = 2', "--limit", "2")
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == ["4-2", "5-2"]
    assert "3 older dead letters omitted" in done.err
    assert listed(cli, "--where", "raw IS NULL") == []
