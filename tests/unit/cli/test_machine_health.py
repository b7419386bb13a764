"""What `doctor` makes of the facts about a machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from resurgence.cli.machine_health import (
    Archive,
    Condition,
    Finding,
    Machine,
    Ports,
    Space,
    Storage,
    judge,
    judge_archive,
    judge_clock,
    judge_jars,
    judge_memory,
    judge_ports,
    judge_space,
    judge_storage,
)

OK, SLOW, FAILED = Condition.OK, Condition.SLOW, Condition.FAILED
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)
GB = 1_000_000_000


def memory(available: int | None) -> Finding:
    return judge_memory(Machine(java="java", heap=2 * GB, memory=available))


CASES = [
    (judge_archive(Archive("a.jsa", size=1)), OK, "a.jsa"),
    (judge_archive(Archive("a.jsa", is_being_built=True)), SLOW, "is being built"),
    (judge_archive(Archive("a.jsa", failure_log="a.log")), SLOW, "see a.log"),
    (judge_archive(Archive("a.jsa")), SLOW, "missing"),
    (memory(8 * GB), OK, "8.0 GB available, heap of a worker 2.0 GB"),
    (memory(2 * GB + 1), SLOW, "2.0 GB available"),
    (memory(GB), FAILED, "1.0 GB available"),
    (memory(None), OK, "heap of a worker"),
    (judge_space(Space("/tmp", 5 * GB)), OK, "/tmp (5.0 GB free)"),
    (judge_space(Space("/tmp", 5)), SLOW, "5 B free"),
    (judge_space(Space("", 0, "Read-only file system")), FAILED, "Read-only"),
    (judge_storage(Storage("/s", is_new=True)), OK, "/s will be created"),
    (judge_storage(Storage("/s", round_trip=timedelta(milliseconds=3))), OK, "takes 0.003 s"),
    (judge_storage(Storage("/s", round_trip=timedelta(seconds=2))), SLOW, "takes 2.000 s"),
    (judge_storage(Storage("/s", error="denied", hint="Ask.")), FAILED, "denied"),
    (judge_clock(NOW, None), OK, "2025-06-01 12:00:00 UTC"),
    (judge_clock(NOW, timedelta(seconds=1)), OK, "agrees"),
    (judge_clock(NOW, timedelta(seconds=9)), SLOW, "9.000 s behind"),
    (judge_clock(NOW, timedelta(minutes=-6)), FAILED, "6 m 0 s ahead of"),
    (judge_clock(datetime(1970, 1, 1, tzinfo=UTC), None), FAILED, "not 1970-01-01"),
    (judge_ports(Ports()), OK, "7070 is free"),
    (judge_ports(Ports(is_free=False, is_service=True)), OK, "a service listens on 7070"),
    (judge_ports(Ports(is_free=False)), SLOW, "another process"),
    (judge_ports(Ports(loopback_error="Permission denied")), FAILED, "Permission denied"),
    (judge_jars({"kafka": "/k", "avro": None}, ""), OK, "installed: kafka; downloaded when needed"),
    (judge_jars({}, "/jars"), OK, "taken from /jars"),
]


@pytest.mark.parametrize(
    ("finding", "verdict", "detail"), CASES, ids=[f"{each[0].name}-{each[2]}" for each in CASES]
)
def test_a_fact_has_a_verdict_and_a_remedy_unless_it_is_ok(
    finding: Finding, verdict: Condition, detail: str
) -> None:
    assert finding.verdict is verdict
    assert detail in finding.detail
    assert bool(finding.remedy) == (verdict is not OK)


def test_every_check_is_made_once_also_without_java() -> None:
    with_java = Machine(java="java 21", archive=Archive("a.jsa", size=1), memory=8 * GB, now=NOW)
    names = [each.name for each in judge(with_java)]
    assert names == [
        *("java", "class-data archive", "memory", "temporary folder"),
        *("state dir", "clock", "ports", "jars"),
    ]
    without = list(judge(Machine(java=None, java_error="none", java_hint="Install one.")))
    assert (without[0].verdict, without[0].remedy) == (FAILED, "Install one.")
    assert [each.name for each in without] == [each for each in names if "archive" not in each]
