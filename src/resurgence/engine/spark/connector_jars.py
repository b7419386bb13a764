"""The jars of connectors: downloaded once into the cache, or taken from a directory, and passed to
Spark as `spark.jars`, which the driver loads and executors get from it.

The cache has one folder per version of Spark and set. It exists only when it is complete; a manifest
beside the jars has their versions and digests. A set whose files do not match it is downloaded again.
The class path of the JVM stays as it is, because a class-data archive belongs to one class path.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from resurgence.cache_folder import cache_folder
from resurgence.engine.spark.jar_resolver import JarResolver, Report
from resurgence.engine.spark.jar_sets import JAR_SETS, JarSet, jar_set, jars_in_directory
from resurgence.engine.spark.java import jars
from resurgence.errors import ConfigError, JarsInvalid, JarsUnavailable

INSTALL_WITHIN = timedelta(minutes=5)
_MANIFEST = "manifest.json"
_INSTALLING = "installing-"
_POLL = timedelta(milliseconds=200)
_SPARK_JARS = "spark.jars"


class CachedJar(BaseModel):
    """A jar of the cache."""

    model_config = ConfigDict(frozen=True)

    coordinates: str
    version: str
    file: str
    sha256: str


class Manifest(BaseModel):
    """What a folder of the cache contains."""

    model_config = ConfigDict(frozen=True)

    name: str
    spark_version: str
    jars: tuple[CachedJar, ...]


def spark_version() -> str:
    """Return the version of the Spark in use, without loading it."""
    for each in jars():
        match = re.fullmatch(r"spark-core_[\d.]+-(\d.*)\.jar", each.name)
        if match:
            return match.group(1)
    raise ConfigError("PySpark has no Spark", hint="Install it again: `pip install pyspark`.")


def folder_of(name: str) -> Path:
    """Return the folder of the cache for a set and the Spark in use."""
    return cache_folder() / "jars" / f"spark-{spark_version()}" / name


def installed(name: str) -> Manifest | None:
    """Return what is installed of a set; None if it is missing or its files were changed."""
    folder = folder_of(name)
    try:
        manifest = Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
        if all(_digest(folder / each.file) == each.sha256 for each in manifest.jars):
            return manifest
    except (OSError, ValidationError):
        pass
    return None


def may_download(names: Iterable[str], directory: str) -> bool:
    """Return whether `provide` may have to download."""
    return not directory and any(not (folder_of(each) / _MANIFEST).exists() for each in names)


def provide(names: Iterable[str], directory: str, report: Report) -> tuple[Path, ...]:
    """Return the jars of some sets: from a directory, if one is given, else from the cache, where
    they are installed first if necessary.
    """
    found: dict[Path, None] = {}
    for each in names:
        wanted = jar_set(each)
        chosen = _in_directory(directory, wanted) if directory else _in_cache(wanted, report)
        found.update(dict.fromkeys(chosen))
    return tuple(found)


def with_jars(spark: Mapping[str, str], paths: Sequence[Path]) -> dict[str, str]:
    """Return Spark's settings with some jars after the user's own."""
    if not paths:
        return dict(spark)
    return {**spark, _SPARK_JARS: ",".join([*_jars_of(spark), *map(str, paths)])}


def serves(running: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether a Spark that runs with some settings can be used for others: they are the same,
    except that it may have more jars.
    """
    others = [{key: each[key] for key in each if key != _SPARK_JARS} for each in (running, wanted)]
    return others[0] == others[1] and set(_jars_of(wanted)) <= set(_jars_of(running))


def _jars_of(spark: Mapping[str, str]) -> list[str]:
    return [each for each in spark.get(_SPARK_JARS, "").split(",") if each]


def ready_jars(directory: str) -> tuple[Path, ...]:
    """Return the jars of all sets that need no download."""
    found: dict[Path, None] = {}
    for each in JAR_SETS.values():
        with suppress(JarsInvalid):
            chosen = _in_directory(directory, each) if directory else _files(installed(each.name))
            found.update(dict.fromkeys(chosen))
    return tuple(found)


def install(name: str, report: Report, deadline: timedelta = INSTALL_WITHIN) -> Manifest:
    """Download a set unless it is installed; raise JarsUnavailable if that fails."""
    wanted, folder = jar_set(name), folder_of(name)
    give_up_at = time.monotonic() + deadline.total_seconds()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, give_up_at):
            manifest = installed(name)
            if manifest is not None:
                return manifest
            # Their process was killed, or it would still hold the lock.
            for left in folder.parent.glob(f"{_INSTALLING}{name}-*"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                dir=folder.parent, prefix=f"{_INSTALLING}{name}-"
            ) as text:
                return _download(wanted, folder, Path(text), give_up_at, report)
    except OSError as error:
        raise JarsUnavailable(
            f"the jars for {name} cannot be stored in {folder}: {error.strerror or error}",
            hint="Set RESURGENCE_CACHE_DIR to a directory that can be written, or set connectors.jars"
            " to a directory with the jars.",
        ) from error


def _download(
    wanted: JarSet, folder: Path, fresh: Path, give_up_at: float, report: Report
) -> Manifest:
    version = spark_version()
    report(f"downloading the jars for {wanted.name} ({wanted.main.at(version)})")
    resolved = JarResolver(fresh, give_up_at, report).resolve(wanted, version)
    complete = fresh / "complete"
    complete.mkdir()
    for each in resolved:
        each.file.rename(complete / each.file.name)
    manifest = Manifest(
        name=wanted.name,
        spark_version=version,
        jars=tuple(
            CachedJar(
                coordinates=each.module.at(each.version),
                version=each.version,
                file=each.file.name,
                sha256=_digest(complete / each.file.name),
            )
            for each in resolved
        ),
    )
    (complete / _MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
    if folder.exists():
        folder.rename(fresh / "replaced")
    complete.rename(folder)
    report(f"installed the jars for {wanted.name} in {folder}")
    return manifest


def _in_cache(wanted: JarSet, report: Report) -> tuple[Path, ...]:
    return _files(installed(wanted.name) or install(wanted.name, report))


def _files(manifest: Manifest | None) -> tuple[Path, ...]:
    if manifest is None:
        return ()
    return tuple(folder_of(manifest.name) / each.file for each in manifest.jars)


def _in_directory(directory: str, wanted: JarSet) -> tuple[Path, ...]:
    folder = Path(directory).expanduser().absolute()
    try:
        names = [each.name for each in folder.iterdir()]
    except OSError as error:
        raise JarsInvalid(
            f"cannot read the directory of connectors.jars, {folder}: {error.strerror or error}",
            hint="Set connectors.jars to a directory of jars, or remove the setting.",
        ) from error
    return jars_in_directory(folder, names, wanted, spark_version())


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _locked(folder: Path, give_up_at: float) -> Iterator[None]:
    """Hold the lock of a folder, which the kernel releases if this process is killed."""
    with folder.with_name(f"{folder.name}.lock").open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > give_up_at:
                    raise JarsUnavailable(
                        f"another process has been installing the jars for {folder.name} for too long",
                        hint=f"End the process that holds {lock.name}.",
                    ) from error
                time.sleep(_POLL.total_seconds())
        yield
