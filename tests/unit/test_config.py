"""Settings: one set of keys from three places, and clear errors about wrong ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.config import (
    KeepRule,
    Settings,
    known_keys,
    load_settings,
    settings_from,
)
from resurgence.durations import duration_text, parse_duration
from resurgence.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("15s", timedelta(seconds=15)),
        ("2m", timedelta(minutes=2)),
        ("1.5h", timedelta(hours=1, minutes=30)),
        ("1d", timedelta(days=1)),
        (" 3 s ", timedelta(seconds=3)),
        ("0s", timedelta(0)),
        ("10 seconds", timedelta(seconds=10)),
        ("1 hour 30 minutes", timedelta(hours=1, minutes=30)),
    ],
)
def test_durations_are_numbers_with_units(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "text", ["", "15", "s", "-1s", "1 week", "1s2", "1sm", "1e3s", "s15", "99999999999999d"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)
    with pytest.raises(ConfigError, match=r"setting 'pipeline\.epoch_timeout'"):
        settings_from({"pipeline.epoch_timeout": text})


@pytest.mark.parametrize(
    "span",
    [
        timedelta(0),
        timedelta(microseconds=1),
        timedelta(milliseconds=1.5),
        timedelta(minutes=20),
        timedelta(days=365, microseconds=7),
    ],
)
def test_a_duration_is_read_back_as_it_was_written(span: timedelta) -> None:
    assert parse_duration(duration_text(span // timedelta(microseconds=1))) == span


@pytest.mark.parametrize("epoch_timeout", ["500ms", "10m", "20m", "36h", "1234567ms"])
def test_settings_travel_to_the_worker_unchanged(epoch_timeout: str) -> None:
    settings = settings_from({"pipeline.epoch_timeout": epoch_timeout, "spark.master": "local[1]"})
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_the_defaults_are_those_of_the_manual() -> None:
    settings = load_settings(environment={})
    assert settings == Settings()
    pipeline = settings.pipeline
    assert pipeline.heartbeat_interval == timedelta(seconds=1)
    assert pipeline.heartbeat_timeout == timedelta(seconds=10)
    assert pipeline.epoch_timeout == timedelta(minutes=10)
    assert pipeline.allowed_restarts == 20
    assert pipeline.healthy_duration == timedelta(minutes=2)
    assert settings.checkpoint.keep == 10


# ---------------------------------------------------------------- where they come from


@pytest.fixture
def toml_file(tmp_path: Path) -> Path:
    path = tmp_path / "resurgence.toml"
    path.write_text(
        """
        faults = "state.written@3=kill"
        [pipeline]
        parallelism = 3
        epoch_timeout = "1m"
        epoch_rows = 5
        [spark]
        driver.memory = "3g"
        ui.enabled = false
        """
    )
    return path


def test_a_toml_file_is_read(toml_file: Path) -> None:
    settings = load_settings(environment={}, toml_file=toml_file)
    assert settings.pipeline.parallelism == 3
    assert settings.pipeline.epoch_timeout == timedelta(minutes=1)
    assert settings.spark == {"spark.driver.memory": "3g", "spark.ui.enabled": "false"}
    assert settings.faults == "state.written@3=kill"


def test_the_environment_wins_over_toml_and_an_assignment_over_both(toml_file: Path) -> None:
    environment = {
        "RESURGENCE_PIPELINE__PARALLELISM": "4",
        "RESURGENCE_PIPELINE__EPOCH_TIMEOUT": "2m",
    }
    settings = load_settings(
        ["pipeline.parallelism=5"], environment=environment, toml_file=toml_file
    )
    assert settings.pipeline.epoch_rows == 5
    assert settings.pipeline.epoch_timeout == timedelta(minutes=2)
    assert settings.pipeline.parallelism == 5


def test_the_last_of_several_assignments_wins() -> None:
    settings = load_settings(["checkpoint.keep=3", "checkpoint.keep = 4"], environment={})
    assert settings.checkpoint.keep == 4


def test_a_value_may_hold_an_equals_sign() -> None:
    settings = load_settings(["faults=state.written@3=kill"], environment={})
    assert settings.faults == "state.written@3=kill"


def test_keys_of_spark_in_the_environment_may_have_capitals() -> None:
    environment = {
        "RESURGENCE_SPARK__MASTER": "spark://127.0.0.1:7077",
        "RESURGENCE_SPARK__dynamicAllocation__enabled": "true",
    }
    assert load_settings(environment=environment).spark == {
        "spark.master": "spark://127.0.0.1:7077",
        "spark.dynamicAllocation.enabled": "true",
    }


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESURGENCE_CHECKPOINT__KEEP", "7")
    monkeypatch.setenv("RESURGENCE_SPARK__DRIVER__MEMORY", "1g")
    settings = load_settings()
    assert settings.checkpoint.keep == 7
    assert settings.spark == {"spark.driver.memory": "1g"}


def test_other_variables_of_ours_are_no_settings() -> None:
    environment = {"RESURGENCE_WORKER_TOKEN": "x", "PIPELINE__PARALLELISM": "9", "HOME": "/"}
    assert load_settings(environment=environment) == Settings()


# ---------------------------------------------------------------- wrong ones


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("pipeline.paralelism", "Perhaps you meant 'pipeline.parallelism'."),
        ("Pipeline.Parallelism", "Perhaps you meant 'pipeline.parallelism'."),
        ("checkpoint.keeps", "Perhaps you meant 'checkpoint.keep'."),
        ("fault", "Perhaps you meant 'faults'."),
        ("zzz", ""),
        ("spark", ""),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{key}'") as caught:
        load_settings([f"{key}=1"], environment={})
    assert caught.value.hint == hint


def test_an_unknown_key_of_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'pipeline\.nonsense'"):
        load_settings(environment={"RESURGENCE_PIPELINE__NONSENSE": "1"})


@pytest.mark.parametrize(
    "assignment",
    [
        "pipeline.parallelism=0",
        "pipeline.parallelism=65",
        "pipeline.parallelism=two",
        "pipeline.epoch_rows=0",
        "pipeline.epoch_rows=",
        "pipeline.allowed_restarts=-1",
        "pipeline.heartbeat_timeout=10",
        "checkpoint.keep=0",
        "checkpoint.compact_files=1",
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_key(assignment: str) -> None:
    with pytest.raises(ConfigError, match=f"setting '{assignment.partition('=')[0]}'") as caught:
        load_settings([assignment], environment={})
    assert "Input should" not in caught.value.message


def test_an_assignment_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'checkpoint\.keep' is not a setting"):
        load_settings(["checkpoint.keep"], environment={})


@pytest.mark.parametrize("content", [b"[pipeline", b"a = \xff", b"x = 1\nx = 2"])
def test_a_toml_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot read settings from"):
        load_settings(environment={}, toml_file=path)


def test_a_toml_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read settings from"):
        load_settings(environment={}, toml_file=tmp_path / "none.toml")


def test_every_known_key_is_accepted() -> None:
    defaults = Settings()
    for key in known_keys():
        section, _, name = key.partition(".")
        value = getattr(getattr(defaults, section), name) if name else defaults.faults
        text = (
            duration_text(value // timedelta(microseconds=1))
            if isinstance(value, timedelta)
            else ""
            if value == ()
            else str(value)
        )
        assert settings_from({key: text}) == defaults


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        ("1m for 1h", (KeepRule(timedelta(minutes=1), timedelta(hours=1)),)),
        (
            " 1m for 1h ,1h for 1d",
            (
                KeepRule(timedelta(minutes=1), timedelta(hours=1)),
                KeepRule(timedelta(hours=1), timedelta(days=1)),
            ),
        ),
    ],
)
def test_a_retention_rule_is_an_interval_and_a_span(text: str, rules: tuple[KeepRule, ...]) -> None:
    settings = settings_from({"checkpoint.keep_for": text})
    assert settings.checkpoint.keep_for == rules
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1h", "'1h' is not a rule such as 1m for 1h"),
        ("1m for soon", "'soon' is not a duration"),
        ("2h for 1h", "interval of '2h for 1h' is zero or longer than its span"),
        ("0s for 1h", "interval of '0s for 1h' is zero or longer than its span"),
        ("1s for 1h", "retains 3600 checkpoints, but the limit is 300"),
    ],
)
def test_invalid_retention_rules_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from({"checkpoint.keep_for": text})
    assert raised.value.message.startswith("setting 'checkpoint.keep_for': ")
    assert said in raised.value.message
