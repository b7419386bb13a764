"""The jars that Spark needs besides its own, by the names under which connectors and formats ask for
them: which artifacts a set has, which versions fit, and what a directory of jars lacks.

Everything here is pure. `jar_resolver` downloads artifacts, `connector_jars` caches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resurgence.errors import ConfigError, JarsInvalid, did_you_mean

_SPARK_GROUP = "org.apache.spark"
_SCALA = "2.13"


@dataclass(frozen=True)
class Module:
    """A Maven artifact of any version."""

    group: str
    name: str

    @property
    def is_of_spark(self) -> bool:
        return self.group == _SPARK_GROUP

    def at(self, version: str) -> str:
        """Return its Maven coordinates."""
        return f"{self.group}:{self.name}:{version}"

    def file_name(self, version: str) -> str:
        return f"{self.name}-{version}.jar"

    def version_of(self, file_name: str) -> str | None:
        """Return the version of a jar of this artifact; None for another file."""
        match = re.fullmatch(rf"{re.escape(self.name)}-(\d[\w.+-]*)\.jar", file_name)
        return match.group(1) if match else None


@dataclass(frozen=True)
class JarSet:
    """The jars for one purpose. What else they need is among Spark's own."""

    name: str
    main: Module
    """Has the version of Spark; its POM states the versions of the others."""
    others: tuple[Module, ...] = ()

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.main, *self.others)


def _of_spark(name: str) -> Module:
    return Module(_SPARK_GROUP, f"{name}_{_SCALA}")


JAR_SETS: Mapping[str, JarSet] = {
    each.name: each
    for each in (
        JarSet(
            "kafka",
            _of_spark("spark-sql-kafka-0-10"),
            (
                _of_spark("spark-token-provider-kafka-0-10"),
                Module("org.apache.kafka", "kafka-clients"),
                Module("org.apache.commons", "commons-pool2"),
            ),
        ),
        JarSet("avro", _of_spark("spark-avro")),
    )
}


def jar_set(name: str) -> JarSet:
    """Return the set of that name, or raise ConfigError."""
    if name not in JAR_SETS:
        raise ConfigError(f"there are no jars named '{name}'", hint=did_you_mean(name, JAR_SETS))
    return JAR_SETS[name]


def version_order(version: str) -> tuple[tuple[int, ...], bool]:
    """Sort versions by number; a pre-release comes before its release."""
    numbers, _, qualifier = version.partition("-")
    return tuple(int(part) for part in re.findall(r"\d+", numbers)), not qualifier


def is_pre_release(version: str) -> bool:
    return "-" in version


def major(version: str) -> int:
    return version_order(version)[0][0]


def fits(module: Module, version: str, spark_version: str) -> bool:
    """Return whether a jar works with a version of Spark: one of Spark's own must have the same
    major version and must not be newer. Others have version numbers of their own.
    """
    if not module.is_of_spark:
        return True
    is_newer = version_order(version) > version_order(spark_version)
    return major(version) == major(spark_version) and not is_newer


def jars_in_directory(
    directory: Path, file_names: Iterable[str], wanted: JarSet, spark_version: str
) -> tuple[Path, ...]:
    """Return the jars of a set among the files of a directory, the newest of each that fits; raise
    JarsInvalid for the first that is missing or does not fit.
    """
    files = list(file_names)
    chosen = []
    for module in wanted.modules:
        found = [version for each in files if (version := module.version_of(each)) is not None]
        fitting = [version for version in found if fits(module, version, spark_version)]
        if not fitting:
            raise _misfit(directory, module, found, wanted, spark_version)
        chosen.append(directory / module.file_name(max(fitting, key=version_order)))
    return tuple(chosen)


def _misfit(
    directory: Path, module: Module, found: list[str], wanted: JarSet, spark_version: str
) -> JarsInvalid:
    expected = (
        f"version {spark_version}, or an older one of {major(spark_version)}.x"
        if module.is_of_spark
        else f"the version that {wanted.main.name} requires"
    )
    if found:
        present = module.file_name(max(found, key=version_order))
        message = f"{present} in {directory} does not fit Spark {spark_version}"
    else:
        message = f"{module.name} is not in {directory}, the directory of connectors.jars"
    return JarsInvalid(
        message,
        hint=f"Copy the jar of {module.group}:{module.name} there ({expected}). Where Maven Central can"
        f" be reached, `resurgence connectors install {wanted.name}` downloads all that is needed.",
    )
