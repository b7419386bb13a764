"""Whether a machine has what jobs need, from the facts that `doctor` collects. Pure.

A finding is `ok`, `slow` (jobs run, with a drawback) or `failed`. Each one that is not `ok` has a
remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from resurgence.cli.output.plain_table import bytes_text, span_text

LOW_SPACE = 1_000_000_000
MEMORY_BESIDE_HEAP = 1_000_000_000
"""What a worker needs beside the JVM's heap: Python, metaspace, buffers."""
SLOW_ROUND_TRIP = timedelta(seconds=1)
SKEW_NOTED = timedelta(seconds=2)
SKEW_REFUSED = timedelta(minutes=5)
"""Object stores refuse signed requests of a clock that is off by a few minutes more."""
EARLIEST = datetime(2024, 1, 1)


class Condition(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    SLOW = "slow"
    """Jobs run, with a drawback."""
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    verdict: Condition
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Archive:
    """The class-data archive of the Java in use."""

    path: str
    size: int | None = None
    is_being_built: bool = False
    failure_log: str | None = None


@dataclass(frozen=True)
class Space:
    """A folder for temporary files."""

    folder: str
    free: int
    error: str = ""


@dataclass(frozen=True)
class Storage:
    """The state directory, after an object was written, listed and deleted."""

    place: str
    is_new: bool = False
    """It does not exist, and can be created."""
    error: str = ""
    hint: str = ""
    round_trip: timedelta | None = None
    skew: timedelta | None = None
    """How far the storage's clock is ahead of this machine's."""


@dataclass(frozen=True)
class Ports:
    """Whether processes can connect on this machine, and who listens on the port of the service."""

    loopback_error: str = ""
    service_port: int = 7070
    is_free: bool = True
    is_service: bool = False
    """One of our services listens on it."""


@dataclass(frozen=True)
class Machine:
    """The facts."""

    java: str | None
    java_error: str = ""
    java_hint: str = ""
    archive: Archive | None = None
    heap: int = 0
    """The JVM's heap of a worker, in bytes."""
    memory: int | None = None
    """Available memory, in bytes; None if the system does not say."""
    cores: int = 1
    temporary: Space = Space("", 0)
    storage: Storage = Storage("")
    ports: Ports = Ports()
    now: datetime = EARLIEST
    jars: dict[str, str | None] = field(default_factory=dict)
    """Each set of jars with its folder; None if it is not installed."""
    jars_folder: str = ""
    """The setting `connectors.jars`."""


def judge(machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each check, in order."""
    if machine.java is None:
        yield Finding("java", Condition.FAILED, machine.java_error, machine.java_hint)
    else:
        yield Finding("java", Condition.OK, machine.java)
    if machine.archive is not None:
        yield judge_archive(machine.archive)
    yield judge_memory(machine)
    yield judge_space(machine.temporary)
    yield judge_storage(machine.storage)
    yield judge_clock(machine.now, machine.storage.skew)
    yield judge_ports(machine.ports)
    yield judge_jars(machine.jars, machine.jars_folder)


def judge_archive(archive: Archive) -> Finding:
    """Judge the archive, without which every start of a worker takes longer."""
    name = "class-data archive"
    if archive.size is not None:
        return Finding(name, Condition.OK, f"{archive.path} ({bytes_text(archive.size)})")
    if archive.is_being_built:
        detail = f"is being built: {archive.path}"
        return Finding(name, Condition.SLOW, detail, "Wait a minute; starts are slower until then.")
    if archive.failure_log is not None:
        detail = f"could not be built: see {archive.failure_log}"
        return Finding(name, Condition.SLOW, detail, "Fix what the log reports; delete the log.")
    detail = f"missing: the next start of a job builds {archive.path}"
    return Finding(name, Condition.SLOW, detail, "Nothing to do: the first job builds it.")


def judge_memory(machine: Machine) -> Finding:
    """Judge whether a worker fits into the memory."""
    detail = f"heap of a worker {bytes_text(machine.heap)}, {machine.cores} cores"
    if machine.memory is None:
        return Finding("memory", Condition.OK, detail)
    detail = f"{bytes_text(machine.memory)} available, {detail}"
    remedy = "Stop other processes, or set spark.driver.memory lower."
    if machine.memory < machine.heap:
        return Finding("memory", Condition.FAILED, detail, remedy)
    if machine.memory < machine.heap + MEMORY_BESIDE_HEAP:
        return Finding("memory", Condition.SLOW, detail, remedy)
    return Finding("memory", Condition.OK, detail)


def judge_space(space: Space) -> Finding:
    """Judge the folder to which Spark spills."""
    name, remedy = "temporary folder", "Free some space, or set TMPDIR to another folder."
    if space.error:
        return Finding(name, Condition.FAILED, f"not writable: {space.error}", remedy)
    detail = f"{space.folder} ({bytes_text(space.free)} free)"
    if space.free < LOW_SPACE:
        return Finding(name, Condition.SLOW, detail, remedy)
    return Finding(name, Condition.OK, detail)


def judge_storage(storage: Storage) -> Finding:
    """Judge whether checkpoints can be written, and how fast."""
    name = "state dir"
    if storage.error:
        return Finding(name, Condition.FAILED, storage.error, storage.hint)
    if storage.is_new:
        return Finding(name, Condition.OK, f"{storage.place} will be created")
    detail = f"{storage.place} is writable"
    if storage.round_trip is not None:
        detail = f"{detail} (a request takes {span_text(storage.round_trip)})"
        if storage.round_trip > SLOW_ROUND_TRIP:
            remedy = "Use a store in the region of this machine: an epoch makes several requests."
            return Finding(name, Condition.SLOW, detail, remedy)
    return Finding(name, Condition.OK, detail)


def judge_clock(now: datetime, skew: timedelta | None) -> Finding:
    """Judge this machine's clock, by the storage's if there is one."""
    remedy = "Let the system set its clock by NTP."
    if now.replace(tzinfo=None) < EARLIEST:
        return Finding("clock", Condition.FAILED, f"it is not {now:%Y-%m-%d}", remedy)
    if skew is None:
        return Finding("clock", Condition.OK, f"{now:%Y-%m-%d %H:%M:%S} UTC")
    off = abs(skew)
    detail = f"{span_text(off)} {'behind' if skew > timedelta(0) else 'ahead of'} the storage's"
    if off > SKEW_REFUSED:
        return Finding("clock", Condition.FAILED, detail, remedy)
    if off > SKEW_NOTED:
        return Finding("clock", Condition.SLOW, detail, remedy)
    return Finding("clock", Condition.OK, "agrees with the storage's")


def judge_ports(ports: Ports) -> Finding:
    """Judge whether processes can connect to each other, and the port of a service."""
    if ports.loopback_error:
        detail = f"processes cannot connect on 127.0.0.1: {ports.loopback_error}"
        return Finding("ports", Condition.FAILED, detail, "Allow connections on loopback.")
    if ports.is_service:
        return Finding("ports", Condition.OK, f"a service listens on {ports.service_port}")
    if not ports.is_free:
        detail = f"another process listens on {ports.service_port}"
        remedy = "Pass another --port to `resurgence serve`; `resurgence run` needs none."
        return Finding("ports", Condition.SLOW, detail, remedy)
    return Finding("ports", Condition.OK, f"{ports.service_port} is free")


def judge_jars(jars: dict[str, str | None], folder: str) -> Finding:
    """Judge the jars of connectors."""
    if folder:
        return Finding("jars", Condition.OK, f"taken from {folder} (connectors.jars)")
    installed = [name for name, each in jars.items() if each is not None]
    missing = [name for name, each in jars.items() if each is None]
    parts = [f"installed: {', '.join(installed)}"] if installed else []
    if missing:
        parts.append(f"downloaded when needed: {', '.join(missing)}")
    return Finding("jars", Condition.OK, "; ".join(parts))
