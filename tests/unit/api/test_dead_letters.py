"""The routes of dead letters, over the state of a real job."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.unit.api.simulated_service import SQL
from tests.unit.state.dead_letter_files import letter, write_letters
from tests.unit.state.real_state import SOURCE, RealJob

from resurgence.state.inspection import query_process
from resurgence.state.replays import Replays

LETTERS = "/v1/jobs/rides/dead-letters"


@pytest.fixture
def rides(http: httpx.Client, tmp_path: Path) -> RealJob:
    """A job with dead letters of epochs 1 and 2."""
    made = RealJob.at(str(tmp_path / "state"))
    made.run(1, 2)
    write_letters(made, letter(1, 4), letter(2, 8, b"\xff"), letter(2, 9, operator="query-1"))
    body = {"name": "rides", "sql": SQL, "state_url": str(tmp_path / "state")}
    assert http.post("/v1/jobs", json=body).status_code == 201
    return made


def requested(job: RealJob) -> list[list[object]]:
    replays = Replays(job.backend.store, job.backend.paths)
    found = replays.listed(job.claim.job).get(SOURCE, [])
    return [replays.records(each).column("raw").to_pylist() for each in found]


def test_the_newest_dead_letters_are_returned(http: httpx.Client, rides: RealJob) -> None:
    answer = http.get(LETTERS, params={"limit": 2}).json()
    assert answer["omitted"] == 1
    assert [each["id"] for each in answer["dead_letters"]] == ["2-1", "2-2"]
    assert answer["dead_letters"][0]["raw_base64"] == base64.b64encode(b"\xff").decode()
    only = http.get(LETTERS, params={"epoch": 2, "operator": "query-1"}).json()
    assert [each["id"] for each in only["dead_letters"]] == ["2-2"]


def test_one_is_returned_by_its_id_with_what_it_has_of_a_message(
    http: httpx.Client, rides: RealJob
) -> None:
    write_letters(
        rides,
        letter(
            3, 1, key=b"k\xff", headers=[{"key": "h", "value": b"1"}, {"key": "g", "value": None}]
        ),
    )
    (found,) = http.get(LETTERS, params={"id": "3-1"}).json()["dead_letters"]
    assert (found["id"], found["key"]) == ("3-1", "k\\xff")
    assert found["headers"] == [{"key": "h", "value": "1"}, {"key": "g", "value": None}]
    for unknown in ("7-1", "../1"):
        assert http.get(LETTERS, params={"id": unknown}).status_code == 422


def test_a_query_returns_its_first_rows_as_json(http: httpx.Client, rides: RealJob) -> None:
    sql = """SELECT epoch, sum("offset") AS n, max(raw) AS raw, max("at") AS "at"
    FROM dead_letters GROUP BY epoch ORDER BY epoch"""
    body = {"sql": sql, "limit": 1}
    answer = http.post(f"{LETTERS}/query", json=body)
    assert answer.json() == {
        "columns": ["epoch", "n", "raw", "at"],
        "rows": [[1, 4, "7b", "2030-01-01T00:00:00+00:00"]],
        "has_more": True,
    }
    assert answer.status_code == 200
    assert http.post(f"{LETTERS}/query", json=body | {"limit": 2}).json()["has_more"] is False


@pytest.mark.parametrize(
    "body",
    [
        {"sql": "DROP TABLE dead_letters"},
        {"sql": "SELECT * FROM '/etc/passwd'"},
        {"sql": "SELECT * FROM nothing"},
        {"sql": "SELEC"},
        {"sql": ""},
        {"sql": "SELECT 1", "limit": 1001},
        {"sql": "SELECT 1", "epoch": 1},
    ],
    ids=["not a SELECT", "file", "no table", "no SQL", "empty", "limit", "field"],
)
def test_an_invalid_query_is_refused(
    http: httpx.Client, rides: RealJob, body: dict[str, object]
) -> None:
    answer = http.post(f"{LETTERS}/query", json=body)
    assert answer.status_code == 422, answer.text


def test_a_query_of_the_service_is_bounded(
    http: httpx.Client, rides: RealJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_process, "DEADLINE", timedelta(seconds=2))
    answer = http.post(
        f"{LETTERS}/query", json={"sql": "SELECT sum(range) FROM range(1000000000000)"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "state.query_stopped")


def test_a_replay_stores_a_request_once(http: httpx.Client, rides: RealJob) -> None:
    fixed = [{"id": "1-1", "raw_base64": base64.b64encode(b"{}").decode()}]
    body = {"ids": ["1-1", "2-2"], "corrected": fixed}
    answer = http.post(f"{LETTERS}/replay", json=body)
    assert answer.status_code == 202
    assert (answer.json()["rows"], answer.json()["skipped"]) == (2, 0)
    assert "as late" in answer.json()["warnings"][0]
    assert requested(rides) == [[b"{}", b"{"]]
    assert http.post(f"{LETTERS}/replay", json=body).json()["skipped"] == 2
    assert requested(rides) == [[b"{}", b"{"]]


def test_corrected_records_without_ids_replay_only_those(
    http: httpx.Client, rides: RealJob
) -> None:
    fixed = [
        {"id": "1-1", "raw_base64": base64.b64encode(b"{}").decode()},
        {"id": "2-2", "raw_base64": None, "position": "rides.json, line 10"},
    ]
    answer = http.post(f"{LETTERS}/replay", json={"corrected": fixed})
    assert (answer.status_code, answer.json()["rows"]) == (202, 2)
    assert requested(rides) == [[b"{}", None]]


@pytest.mark.parametrize(
    "body",
    [
        {"corrected": [{"id": "1-1", "raw_base64": "", "position": "rides.json, line 1"}]},
        {"ids": ["9-9"]},
        {"ids": ["../1"]},
        {"corrected": [{"id": "1-1", "raw_base64": "%"}]},
        {"where": "true"},
    ],
)
def test_an_invalid_replay_is_refused(
    http: httpx.Client, rides: RealJob, body: dict[str, object]
) -> None:
    answer = http.post(f"{LETTERS}/replay", json=body)
    assert answer.status_code in (400, 422), answer.text
    assert requested(rides) == []


def test_a_job_that_does_not_exist_has_no_dead_letters(http: httpx.Client) -> None:
    assert http.get(LETTERS).status_code == 404
