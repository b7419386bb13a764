"""What pages show, as values and markup."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import combinations

import pytest
from pydantic import JsonValue
from tests.unit.api.simulated_service import SQL

from resurgence.connectors.registry import CONNECTORS
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import StoredEvent
from resurgence.engine.epochs.timeline import Work
from resurgence.errors import ConfigError
from resurgence.sql import compile_pipeline
from resurgence.sql.catalog.declared_names import declared_names
from resurgence.ui.job_history import MOST_EPOCHS, JobHistory
from resurgence.ui.views.charts import TITLES, chart
from resurgence.ui.views.dataflow import Dataflow, OperatorFacts, dataflow_svg
from resurgence.ui.views.editor import marked_range, settings_of, settings_text
from resurgence.ui.views.events import facts_text
from resurgence.ui.views.incidents import incident_view, incidents_panel
from resurgence.ui.views.jobs import JobRow, group_counts, jobs_table, matching
from resurgence.ui.views.lists import pager
from resurgence.ui.views.logs import log_view
from resurgence.ui.views.markup import html
from resurgence.ui.views.numbers import byte_size, short_count, span


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (950, "950"), (999.6, "1k"), (12_345, "12.3k"), (4_500_000, "4.5M")],
)
def test_counts_are_short(value: float | None, shown: str) -> None:
    assert short_count(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.32, "320 ms"),
        (4.2, "4.2 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (187_200, "2 d 4 h"),
        (-3, "−3 s"),
        (float("inf"), "–"),
    ],
)
def test_durations_have_one_or_two_units(seconds: float | None, shown: str) -> None:
    assert span(seconds) == shown


def test_bytes_have_a_unit() -> None:
    assert [byte_size(each) for each in (None, 0, 1023, 1024, 5_905_580)] == [
        "–",
        "0 B",
        "1023 B",
        "1 KiB",
        "5.6 MiB",
    ]


def test_markup_escapes_every_value() -> None:
    bad = '<script>"&'
    assert html("<b>{}</b>{x}", bad, x=html("<i>{}</i>", bad)) == (
        "<b>&lt;script&gt;&quot;&amp;</b><i>&lt;script&gt;&quot;&amp;</i>"
    )


def row(name: str, state: StateName = StateName.RUNNING, reason: str = "") -> JobRow:
    return JobRow(
        name=name,
        state=state,
        since="2030-01-01T00:00:00+00:00",
        wants_running=True,
        parallelism=2,
        rows_per_second=12.0,
        lag_rows=None,
        lag_seconds=None,
        watermark_delay=3,
        checkpoint_epoch=7,
        checkpoint_at="2030-01-01T00:00:00+00:00",
        incidents=0,
        in_incident=False,
        reason=reason,
    )


def test_the_filter_needs_all_words_in_name_state_or_reason() -> None:
    rows = [row("rides"), row("fares", StateName.FAILED, "no storage"), row("walks")]
    assert [each.name for each in matching(rows, "FAILED storage", "all")] == ["fares"]
    assert [each.name for each in matching(rows, "", "running")] == ["rides", "walks"]
    assert group_counts(rows) == {"all": 3, "running": 2, "changing": 0, "failed": 1, "ended": 0}


def test_the_reason_of_a_failed_job_is_shown_escaped() -> None:
    shown = jobs_table([row("fares", StateName.FAILED, "<img src=x>")], may_write=True)
    assert "&lt;img src=x&gt;" in shown
    assert "<img" not in shown


def test_a_list_of_one_page_has_no_pager() -> None:
    assert pager(0, 50, 50) == ""
    assert "51–51 of 51" in pager(1, 50, 51)


def test_the_failing_operator_is_marked_in_the_graph() -> None:
    graph = compile_pipeline(SQL, CONNECTORS, {})
    names = [str(each.id) for each in graph.operators]
    facts = {names[0]: OperatorFacts(rows_in=1200, is_failing=True)}
    picture = dataflow_svg(Dataflow(graph, facts))
    assert picture.count("failing") == 2
    assert "1.2k in" in picture
    for name in names:
        assert f'data-operator="{name}"' in picture


ALL_FACTS = OperatorFacts(
    rows_in=123_456_789,
    rows_out=98_765_432,
    late_rows=123_456,
    bad_rows=654_321,
    state_bytes=987_654_321_000,
    state_rows=123_456_789,
    watermark="2030-01-01 00:00:00",
    watermark_at="2030-01-01T00:00:00+00:00",
    share=0.375,
)


def test_every_fact_of_an_operator_is_drawn_in_full() -> None:
    graph = compile_pipeline(SQL, CONNECTORS, {})
    name = next(str(each.id) for each in graph.operators if each.has_state)
    picture = dataflow_svg(Dataflow(graph, {name: ALL_FACTS}))
    box = picture[picture.index(f'data-operator="{name}"') :].split("</g>")[0]
    drawn = re.findall(r'<text x="12" y="[\d.]+">(.*?)</text>', box)
    assert drawn == [
        "123M in · 98.8M out",
        "123k late · 654k bad",
        "state 920 GiB · 123M rows",
        'watermark <tspan data-since="2030-01-01T00:00:00+00:00"></tspan> behind',
        "38% of time",
    ]
    assert "watermark 2030-01-01 00:00:00" in box


def sixty_operators() -> str:
    """A pipeline of about sixty operators: sources, filters, windows, sinks."""
    parts = []
    for number in range(9):
        parts.append(
            f"CREATE TABLE in_{number} (at TIMESTAMP NOT NULL, k BIGINT, WATERMARK FOR at AS at) "
            f"WITH (connector = 'single_file', path = 'in{number}', format = 'json', "
            "type = 'source');"
            f"CREATE TABLE out_{number} (start TIMESTAMP, n BIGINT) "
            "WITH (connector = 'blackhole', type = 'sink');"
            f"INSERT INTO out_{number} SELECT window.start, n FROM ("
            "SELECT tumble(INTERVAL '1 hour') AS window, count(*) AS n "
            f"FROM in_{number} WHERE k > {number} GROUP BY window);"
        )
    return "\n".join(parts)


def test_the_boxes_of_sixty_operators_with_different_facts_do_not_overlap() -> None:
    graph = compile_pipeline(sixty_operators(), CONNECTORS, {})
    assert len(graph.operators) >= 60
    some = [OperatorFacts(), OperatorFacts(rows_in=1), OperatorFacts(share=0.5), ALL_FACTS]
    facts = {str(each.id): some[number % 4] for number, each in enumerate(graph.operators)}
    picture = dataflow_svg(Dataflow(graph, facts))
    boxes = [
        tuple(map(float, each))
        for each in re.findall(
            r'translate\(([\d.-]+) ([\d.-]+)\)".*?class="box" width="([\d.]+)" height="([\d.]+)"',
            picture,
            re.DOTALL,
        )
    ]
    assert len(boxes) == len(graph.operators)
    for (x, y, w, h), (x2, y2, w2, h2) in combinations(boxes, 2):
        assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 + 0.1 or y2 + h2 <= y + 0.1
    width, height = re.findall(r'<svg width="(\d+)" height="(\d+)"', picture)[0]
    assert max(x + w for x, _, w, _ in boxes) <= float(width)
    assert max(y + h for _, y, _, h in boxes) <= float(height)


INCIDENT = {
    "job": "rides",
    "kind": "worker_exited",
    "reason": "the worker was killed by <signal 9>",
    "hint": "Check the log.",
    "domain": "internal",
    "detected_at": "2030-01-01T00:00:00.000+00:00",
    "resumed_at": "2030-01-01T00:00:12.500+00:00",
    "restored_epoch": 41,
    "replayed_rows": 1200,
    "attempts": 2,
    "generations": [3, 4],
    "fallbacks": [{"epoch": 42, "reasons": ["a file is missing"]}],
    "phases": {"detect": 0.1, "tear_down": 0.2, "plan": 1, "restore": 3, "resume": 8.2},
}


def test_an_incident_is_a_timeline_of_its_phases() -> None:
    view = incident_view(INCIDENT)
    assert view.duration == 12.5
    names = ["Detect", "Decide", "Plan", "Restore", "First commit"]
    assert [each.name for each in view.phases] == names
    shown = incidents_panel([view], with_job=True)
    for text in ("recovered in 12.5 s", "3 → 4 → 5", "1,200", "Check the log.", "epoch 42"):
        assert text in shown
    assert "&lt;signal 9&gt;" in shown


def test_an_incident_of_an_older_release_is_shown_with_what_it_has() -> None:
    facts = {"kind": "task_failed", "reason": "boom", "detected_at": INCIDENT["detected_at"]}
    view = incident_view(facts, job="rides", is_open=True)
    assert view.duration is None
    assert "recovering" in incidents_panel([view], with_job=False)


def event(number: int, kind: str, **facts: object) -> StoredEvent:
    at = datetime(2030, 1, 1, 0, 0, number % 60, tzinfo=UTC).isoformat()
    return StoredEvent(number, {"event": kind, "at": at, **facts})  # type: ignore[dict-item]


def sealed(number: int, epoch: int) -> StoredEvent:
    facts = {"rows": 10, "rows_out": 4, "late": 0, "duration": 0.5, "state_bytes": 100}
    return event(number, "checkpoint", epoch=epoch, **facts)


def test_the_history_of_a_job_has_its_newest_epochs() -> None:
    events = [sealed(each, each) for each in range(1, MOST_EPOCHS + 11)]
    history = JobHistory().plus(events)
    assert len(history.points) == MOST_EPOCHS
    assert history.points[-1].epoch == MOST_EPOCHS + 10
    assert history.plus([]) is history


def test_a_rollback_takes_its_epochs_out_of_the_history() -> None:
    history = JobHistory().plus([sealed(1, 1), sealed(2, 2), event(3, "rollback", to_epoch=1)])
    assert [each.epoch for each in history.points] == [1]


def test_a_commit_and_a_profile_add_to_their_epoch() -> None:
    commit = event(2, "committed", epoch=1, lag={"rows": 7, "seconds": 1.5})
    work = [{"work": "compute", "operator": "window-1", "tasks": 0.4, "driver": 0.1}]
    history = JobHistory().plus([sealed(1, 1), commit, event(3, "profile", epoch=1, work=work)])
    point = history.points[0]
    assert (point.lag_rows, point.lag_seconds) == (7, 1.5)
    assert dict(point.phases) == pytest.approx({"compute": 0.5})
    assert dict(point.operators) == pytest.approx({"window-1": 0.5})
    for kind in TITLES:
        assert chart(kind, history.points)["series"]


def test_every_kind_of_work_has_a_colour_of_its_own_that_both_themes_show() -> None:
    phases: dict[str, JsonValue] = {each.value: 0.1 for each in Work}
    few: dict[str, JsonValue] = {Work.OTHER: 0.1, Work.SINKS: 0.1}
    colours = [
        {each["name"]: each["itemStyle"]["color"] for each in chart("duration", points)["series"]}
        for points in (
            JobHistory().plus([sealed(1, 1), event(2, "committed", epoch=1, phases=spent)]).points
            for spent in (phases, few)
        )
    ]
    assert len({*colours[0].values()}) == len(Work)
    assert colours[1].items() <= colours[0].items()
    for colour in colours[0].values():
        for panel in ("#ffffff", "#15181b"):
            assert contrast(colour, panel) >= 3, (colour, panel)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_completion_knows_the_tables_of_an_unfinished_text() -> None:
    text = SQL + "CREATE VIEW busy AS SELECT driver, at FROM rides; SELECT * FROM (((; SELECT 'x"
    found = declared_names(text, CONNECTORS)
    assert found["rides"] == ["at", "driver"]
    assert found["hourly"] == ["start", "n"]
    assert found["busy"] == ["driver", "at"]
    generated = "CREATE TABLE c WITH (connector = 'impulse', event_rate = '1');"
    assert "counter" in declared_names(generated, CONNECTORS)["c"]


def test_an_error_is_marked_at_the_word_of_its_place() -> None:
    text = "SELECT a\nFROM nowhere"
    assert marked_range(text, 2, 6) == (14, 21)
    assert marked_range(text, 99, 99) == (20, 21)
    assert marked_range("", 1, 1) is None


def test_settings_are_lines() -> None:
    settings = {"pipeline.parallelism": "4", "spark.x": "a = b"}
    assert settings_of(f"# comment\n\n{settings_text(settings)}") == settings
    with pytest.raises(ConfigError):
        settings_of("parallelism")


def test_the_facts_of_an_event_are_one_line() -> None:
    change = {"event": "state", "from": "Running", "to": "Failed", "reason": "boom"}
    assert facts_text(change) == "Running → Failed: boom"
    assert facts_text({"event": "x", "at": "y", "rows": 1200, "empty": ""}) == "rows: 1,200"


def test_the_lines_of_a_log_are_filtered_and_escaped() -> None:
    shown = log_view(["INFO <b>", "ERROR boom", "INFO other"], "o")
    assert "&lt;b&gt;" in shown
    assert "bad" in shown
    assert "other" not in log_view(["ERROR boom", "INFO other"], "error")
