"""Every benchmark has a short form for `make bench`, with arguments that it accepts. Reports are right."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from pathlib import Path

import pytest
from benchmarks import keyed_rows, restore
from benchmarks.day import Samples, grows
from benchmarks.report import (
    Goal,
    Report,
    add_arguments,
    at_least,
    at_most,
    percentile,
    ratio,
    spread_of,
)
from benchmarks.short import SHORT, command

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_has_a_short_form() -> None:
    scripts = {each.stem for each in FOLDER.glob("*.py") if "def main(" in each.read_text()}
    assert scripts - {"short"} == set(SHORT)


def test_short_forms_use_arguments_that_exist() -> None:
    for name, arguments in SHORT.items():
        known = set(
            re.findall(r'add_argument\(\s*"(--[a-z-]+)"', (FOLDER / f"{name}.py").read_text())
        )
        assert {each for each in arguments if each.startswith("--")} <= known, name


def test_every_report_of_a_short_form_is_written_as_json() -> None:
    calls = re.compile(r"^\s+add_arguments\(|report\.save\(\)", re.MULTILINE)
    reporting = {name for name in SHORT if calls.search((FOLDER / f"{name}.py").read_text())}
    assert reporting == {name for name in SHORT if "--json" in command(name)}


def test_frequent_keys_are_those_of_the_skewed_epochs() -> None:
    plan = keyed_rows.Plan("join", 5_000_000, 2)
    spans = [*itertools.pairwise(plan.ends())]
    skewed = [each for each, load in zip(spans, keyed_rows.LOADS, strict=True) if load.skewed]
    assert [end - start for start, end in skewed] == [2_000]
    ((start, end),) = skewed
    assert f"(counter >= {start} AND counter < {end})" in plan.key(0)


def test_every_benchmark_is_in_the_readme() -> None:
    text = (FOLDER / "README.md").read_text()
    assert all(f"{name}.py" in text for name in SHORT)


def test_a_ratio_is_that_of_the_medians_and_its_spread_covers_both() -> None:
    found = ratio("time", [1.0, 2.0, 3.0, 4.0, 5.0], [10.0, 20.0, 10.0, 20.0, 15.0])
    assert found.spread.median == 3 / 15
    assert (found.spread.low, found.spread.high) == (2 / 20, 4 / 10)


@pytest.mark.parametrize(
    ("goal", "value", "is_met"),
    [(at_most(0.5), 0.5, True), (at_most(0.5), 0.51, False), (at_least(3.5), 3.4, False)],
)
def test_a_goal_has_a_direction(goal: Goal, value: float, is_met: bool) -> None:
    found = ratio("time", [value], [1.0], goal)
    assert found.is_met is is_met
    assert str(found).endswith("NOT MET") is not is_met


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([float(each) for each in range(1, 101)], 0.99) == 99
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3


def test_a_single_value_has_no_spread() -> None:
    found = spread_of([2.0])
    assert found.low == found.median == found.high == 2


def test_a_report_has_all_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = parser.parse_args(["--json", str(tmp_path / "report.json")])
    report = Report("example", options)
    report.add("seconds", "small", "Resurgence", [1.0, 2.0, 3.0])
    report.add_series("seconds by keys", "keys", "Resurgence", [(10, 1.0), (100, 1.5)])
    report.compare("small, time", [1.0], [4.0], at_most(0.5))
    report.save()
    assert "0.25  goal ≤ 0.5: met" in capsys.readouterr().out
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["benchmark"] == "example"
    assert stored["figures"][0]["values"] == [1.0, 2.0, 3.0]
    assert stored["figures"][0]["median"] == 2.0
    assert stored["series"][0]["points"] == [[10, 1.0], [100, 1.5]]
    assert stored["ratios"] == [
        {
            "name": "small, time",
            "median": 0.25,
            "low": 0.25,
            "high": 0.25,
            "goal": "≤ 0.5",
            "is_met": True,
        }
    ]


def test_a_report_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    report = Report("example", parser.parse_args(["--plot", str(tmp_path / "report.svg")]))
    for system in ("Resurgence", "Structured Streaming"):
        for case in ("small", "large"):
            report.add("seconds", case, system, [1.0, 2.0])
        report.add_series("memory", "minutes", system, [(0, 1.0), (1, 1.5)])
    report.add("seconds", "third", "Resurgence", [1.0])
    report.save()
    assert "</svg>" in (tmp_path / "report.svg").read_text()


@pytest.mark.parametrize(
    ("measure", "before", "after", "does"),
    [
        ("driver: threads", 20, 22, False),
        ("driver: threads", 20, 23, True),
        ("JVM: heap after GC, MiB", 100, 109, False),
        ("JVM: heap after GC, MiB", 100, 120, True),
    ],
)
def test_growth_beyond_its_tolerance_is_reported(
    measure: str, before: float, after: float, does: bool
) -> None:
    assert grows(measure, before, after) is does


def test_the_first_third_of_a_day_is_warm_up() -> None:
    samples = Samples(seconds=90, slices=9)
    samples.values["driver: threads"] = [(at, at // 30) for at in range(90)]
    assert samples.growth("driver: threads") == (1, 2)
    assert samples.by_slice("driver: threads") == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_keys_are_loaded_once_and_touched_at_random_afterwards() -> None:
    plan = restore.Plan((10, 30), repetitions=1)
    assert plan.loading_epochs(10) == [10]
    assert plan.loading_epochs(30) == [20]
    assert restore.Plan((2_500_000,), 1).loading_epochs(2_500_000) == [1_000_000] * 2 + [500_000]
    assert plan.key() == (
        "CASE WHEN counter < 10 THEN counter - 0 WHEN counter < 1010 THEN pmod(xxhash64(counter), 10)"
        " WHEN counter < 1030 THEN counter - 1000"
        " WHEN counter < 2030 THEN pmod(xxhash64(counter), 30) END"
    )
