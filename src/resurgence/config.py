"""All settings with their defaults.

A setting has a dotted key. The same key is read from a TOML file, from the environment
(`pipeline.epoch_rows` is `RESURGENCE_PIPELINE__EPOCH_ROWS`) and from `--set`; the last one wins.
Durations are written `500ms`, `15s`, `2m`. An unknown key is an error.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import ErrorDetails

from resurgence.durations import duration_text
from resurgence.durations import parse_duration as parse_duration
from resurgence.errors import ConfigError, did_you_mean

ENVIRONMENT_PREFIX = "RESURGENCE_"


def _duration_text(span: timedelta) -> str:
    return duration_text(span // timedelta(microseconds=1))


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(_duration_text, return_type=str),
]
Wait = Annotated[Duration, Field(gt=timedelta(0))]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class KeepRule:
    """Retain one checkpoint of every interval for a time span."""

    every: timedelta
    span: timedelta


_MAX_RETAINED = 300
"""Checkpoints retained by time, because each retention round lists the objects of all of them."""


def parse_keep_for(value: object) -> object:
    """Parse rules written as `1m for 1h, 1h for 1d`."""
    if not isinstance(value, str):
        return value
    rules = []
    for part in filter(None, (each.strip() for each in value.split(","))):
        every, separator, span = part.partition(" for ")
        if not separator:
            raise ValueError(f"'{part}' is not a rule such as 1m for 1h")
        rule = KeepRule(parse_duration(every), parse_duration(span))
        if not timedelta(0) < rule.every <= rule.span:
            raise ValueError(f"interval of '{part}' is zero or longer than its span")
        rules.append(rule)
    count = sum(rule.span // rule.every for rule in rules)
    if count > _MAX_RETAINED:
        raise ValueError(f"'{value}' retains {count} checkpoints, but the limit is {_MAX_RETAINED}")
    return tuple(rules)


def keep_for_text(rules: tuple[KeepRule, ...]) -> str:
    """Format rules so that `parse_keep_for` can read them."""
    return ", ".join(
        f"{_duration_text(rule.every)} for {_duration_text(rule.span)}" for rule in rules
    )


KeepFor = Annotated[
    tuple[KeepRule, ...],
    BeforeValidator(parse_keep_for),
    PlainSerializer(keep_for_text, return_type=str),
]


class OnError(StrEnum):
    """What happens to rows on which an epoch fails."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PipelineSettings(_Section):
    """How a job runs, and when it fails for good."""

    parallelism: Annotated[int, Field(ge=1, le=64)] = 2
    epoch_rows: Count = 1_000_000
    """Maximum rows that one epoch reads from one source."""
    epoch_interval: Duration = timedelta(seconds=1)
    """Minimum time between the starts of two epochs that are not full."""
    heartbeat_interval: Wait = timedelta(seconds=1)
    heartbeat_timeout: Wait = timedelta(seconds=10)
    epoch_timeout: Wait = timedelta(minutes=10)
    start_timeout: Wait = timedelta(minutes=2)
    """Maximum wait for a worker to start Spark and restore state."""
    stop_timeout: Wait = timedelta(minutes=2)
    """Maximum wait for the last checkpoint of a stop before it escalates."""
    allowed_restarts: Annotated[int, Field(ge=0)] = 20
    healthy_duration: Duration = timedelta(minutes=2)
    initial_backoff: Duration = timedelta(milliseconds=500)
    maximal_backoff: Duration = timedelta(seconds=60)
    on_error: OnError = OnError.FAIL
    """What happens to rows on which an epoch fails, unless the pipeline sets it."""
    max_dead_letters: Count = 1000
    """Maximum dead letters of one epoch; if there are more, the job fails."""
    search_timeout: Wait = timedelta(minutes=2)
    """Maximum duration of the search for the rows on which an epoch failed."""
    profile: bool = False
    """Measure where the time of each epoch goes, and emit it as an event."""


class CheckpointSettings(_Section):
    """Retention, compaction and verification of checkpoints."""

    keep: Annotated[int, Field(ge=1, le=100)] = 10
    keep_for: KeepFor = ()
    """Older checkpoints to retain as well: one of every interval, for a time span."""
    compact_files: Annotated[int, Field(ge=2)] = 8
    """A table is compacted when a subtask has more live files than this."""
    verify_interval: Duration = timedelta(minutes=10)
    """How often the newest checkpoint is read and verified in the background; 0s: never."""
    accept_state_loss: bool = False
    """Let an edited pipeline resume even if it drops some of the state."""


class ControllerSettings(_Section):
    """How a controller runs its jobs. The settings of a single job do not override these."""

    scheduler: str = "process"
    """How workers are started, by the name of a registered scheduler."""
    standby: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of warm workers that can take over from one that dies."""
    adopt_timeout: Wait = timedelta(seconds=30)
    """How long workers of a service run without their controller, and how long a new controller
    waits for them.
    """
    lease: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(seconds=15)
    """How long a controller that shares its database may be silent before the others take over its
    jobs.
    """
    url: str = ""
    """The address of this controller's API for the others that share its database."""
    webhook_url: str = ""
    """URL to which failures and recoveries are posted."""
    webhook_secret: str = ""
    """Key that signs the posts; a reference such as `${env:NAME}`."""


class StorageSettings(_Section):
    """Access to object stores, for all stores of a process. Each key but the deadlines overrides
    the environment variable of that name, and may be a reference.
    """

    timeout: Wait = timedelta(seconds=60)
    """Maximum duration of one request."""
    retry_timeout: Wait = timedelta(seconds=90)
    """A request that failed is not retried after this."""
    aws_profile: str = ""
    aws_region: str = ""
    aws_endpoint: str = ""
    aws_allow_http: str = ""
    aws_access_key_id: str = ""
    aws_secret_access_key: str = ""
    aws_session_token: str = ""
    google_service_account_key: str = ""
    azure_storage_account_name: str = ""
    azure_storage_account_key: str = ""
    azure_storage_sas_token: str = ""
    azure_endpoint: str = ""

    def variables(self) -> dict[str, str]:
        """Return the values that are set, by the names of the variables, references unresolved."""
        limits = {"timeout", "retry_timeout"}
        return {
            name.upper(): value
            for name, value in self.model_dump(exclude=limits).items()
            if value != ""
        }


class ConnectorSettings(_Section):
    """What connectors need on the machine of a job."""

    jars: str = ""
    """A directory with the jars that Spark needs for connectors and formats. Without it, they are
    downloaded into the cache when they are first needed.
    """


class Settings(_Section):
    """All settings of a job."""

    pipeline: PipelineSettings = PipelineSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    controller: ControllerSettings = ControllerSettings()
    storage: StorageSettings = StorageSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    spark: dict[str, str] = Field(default_factory=dict)
    """Spark's own configuration, passed on: `spark.master`, `spark.driver.memory` and so on."""
    faults: str = ""
    """Faults to inject, for drills and tests: `<point>@<epoch>=<action>`, separated by commas."""


def known_keys() -> tuple[str, ...]:
    """Return every valid key except those of Spark."""
    return (
        *(f"pipeline.{name}" for name in PipelineSettings.model_fields),
        *(f"checkpoint.{name}" for name in CheckpointSettings.model_fields),
        *(f"controller.{name}" for name in ControllerSettings.model_fields),
        *(f"storage.{name}" for name in StorageSettings.model_fields),
        *(f"connectors.{name}" for name in ConnectorSettings.model_fields),
        "faults",
    )


def load_settings(
    assignments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    toml_file: Path | None = None,
) -> Settings:
    """Load settings from a TOML file, the environment and `key=value` assignments; last wins."""
    return settings_from(setting_values(assignments, environment=environment, toml_file=toml_file))


def setting_values(
    assignments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    toml_file: Path | None = None,
) -> dict[str, str]:
    """Return the values that are set, as written, by dotted key."""
    values: dict[str, str] = {}
    if toml_file is not None:
        values.update(_toml_values(toml_file))
    values.update(_environment_values(os.environ if environment is None else environment))
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"'{assignment}' is not a setting", hint="Write --set key=value.")
        values[key.strip()] = value.strip()
    return values


def settings_from(values: Mapping[str, str]) -> Settings:
    """Validate settings by dotted key."""
    known = known_keys()
    sections = ("pipeline", "checkpoint", "controller", "storage", "connectors", "spark")
    tree: dict[str, Any] = {section: {} for section in sections}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if section == "spark" and name:
            tree["spark"][key] = value
        elif key not in known:
            raise ConfigError(f"unknown setting '{key}'", hint=did_you_mean(key, known))
        elif name:
            tree[section][name] = value
        else:
            tree[key] = value
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"setting '{key}': {_reason(first)}") from error


def _reason(mistake: ErrorDetails) -> str:
    """Describe an invalid value without Pydantic's wording."""
    value, limits = mistake["input"], mistake.get("ctx", {})
    match mistake["type"]:
        case "value_error":
            return mistake["msg"].removeprefix("Value error, ")
        case "greater_than_equal":
            return f"{value} is less than the minimum of {_limit_text(limits['ge'])}"
        case "greater_than":
            return f"{value} is not greater than {_limit_text(limits['gt'])}"
        case "less_than_equal":
            return f"{value} is greater than the maximum of {_limit_text(limits['le'])}"
        case "int_parsing" | "int_from_float" | "int_type":
            return f"'{value}' is not a whole number"
        case "bool_parsing":
            return f"'{value}' is neither true nor false"
        case _:
            return f"'{value}' is not a valid value"


def _limit_text(limit: object) -> str:
    return _duration_text(limit) if isinstance(limit, timedelta) else str(limit)


def _toml_values(path: Path) -> dict[str, str]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except IsADirectoryError as error:
        raise ConfigError(
            f"cannot read settings from {path}: it is a directory", hint="Name a TOML file."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read settings from {path}: {error}") from error
    return dict(_flatten(tree, ""))


def _flatten(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def _environment_values(environment: Mapping[str, str]) -> dict[str, str]:
    sections = (
        *("PIPELINE__", "CHECKPOINT__", "CONTROLLER__", "STORAGE__", "CONNECTORS__", "SPARK__"),
        "FAULTS",
    )
    values = {}
    for name, value in environment.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX)
        if name != key and key.startswith(sections):
            # Keys of Spark have capitals: one that is written with small letters is kept as it is.
            is_plain = key.isupper() or not key.startswith("SPARK__")
            key = key.lower() if is_plain else f"spark__{key.removeprefix('SPARK__')}"
            values[key.replace("__", ".")] = value
    return values
