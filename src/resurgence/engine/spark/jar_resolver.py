"""Downloads artifacts with the Ivy that PySpark ships, which knows the public Maven repository.

Each artifact is resolved by itself, because the versions that belong together are not always all
published: if one is not, the newest older release of the same major version is taken, and reported.
An error of the network is never taken for an answer that a version does not exist.
"""

from __future__ import annotations

import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from resurgence.engine.spark.jar_sets import JarSet, Module, is_pre_release, major
from resurgence.engine.spark.java import find_java, jars
from resurgence.errors import ConfigError, JarsUnavailable

_FAILED = re.compile(r"^\s*(Server access error.*|.*Exception: .*|\[FAILED.*)$", re.MULTILINE)
_NOT_FOUND = "UNRESOLVED DEPENDENCIES"
_LONGEST_REASON = 500
_PRE_RELEASES = 10
"""Versions that are skipped because they are pre-releases, at most."""

_PAUSES = (timedelta(seconds=1), timedelta(seconds=3))
"""Before each retry."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class Resolved:
    """A downloaded jar."""

    module: Module
    version: str
    file: Path


class _NoAnswer(Exception):
    """The repository could not be asked."""


class JarResolver:
    """Resolves the artifacts of one set into a folder of its own."""

    def __init__(self, folder: Path, give_up_at: float, report: Report) -> None:
        """`give_up_at`: by `time.monotonic`."""
        self._folder = folder
        self._give_up_at = give_up_at
        self._report = report
        self._wanted: tuple[str, ...] = ()

    def resolve(self, wanted: JarSet, spark_version: str) -> list[Resolved]:
        """Download all jars of a set, or raise JarsUnavailable."""
        self._wanted = tuple(
            each.at(spark_version) if each.is_of_spark else f"{each.group}:{each.name}"
            for each in wanted.modules
        )
        main = self._resolve(wanted, wanted.main, spark_version)
        required = required_versions(self._description(main).read_text(encoding="utf-8"))
        versions = {each: required.get((each.group, each.name)) for each in wanted.others}
        unknown = [each.name for each, version in versions.items() if version is None]
        if unknown:
            raise self._unavailable(wanted, f"{main.file.name} does not require {unknown[0]}")
        return [main] + [
            self._resolve(wanted, module, version)
            for module, version in versions.items()
            if version
        ]

    def _resolve(self, wanted: JarSet, module: Module, version: str) -> Resolved:
        for revision in revisions(module, version):
            found = self._released(wanted, module, revision)
            if found is not None:
                if found.version != version:
                    self._report(f"{module.name} {version} is not published; using {found.version}")
                return found
        raise JarsUnavailable(
            f"the jars for {wanted.name} cannot be downloaded: neither {module.at(version)} nor"
            f" another {major(version)}.x of it is published",
            hint="Set connectors.jars to a directory with a jar of it that you built, and with the"
            f" others: {', '.join(self._wanted)}.",
        )

    def _released(self, wanted: JarSet, module: Module, revision: str) -> Resolved | None:
        """Return the newest release in a range of versions."""
        for _ in range(_PRE_RELEASES):
            found = self._retrieved(wanted, module, revision)
            if found is None or not is_pre_release(found.version) or "," not in revision:
                return found
            revision = f"{revision.split(',')[0]},{found.version}["
        return None

    def _retrieved(self, wanted: JarSet, module: Module, revision: str) -> Resolved | None:
        """Return what is there of a version or of a range; retry when the network fails."""
        for pause in _PAUSES:
            with suppress(_NoAnswer):
                return self._asked(wanted, module, revision)
            left = self._give_up_at - time.monotonic()
            time.sleep(max(0.0, min(pause.total_seconds(), left)))
        try:
            return self._asked(wanted, module, revision)
        except _NoAnswer as error:
            raise self._unavailable(wanted, str(error)) from error

    def _asked(self, wanted: JarSet, module: Module, revision: str) -> Resolved | None:
        before = set(self._jars_of(module))
        target = f"{self._folder}/[organisation]/[module]/[revision]"
        output = self._run_ivy(
            wanted,
            *("-dependency", module.group, module.name, revision),
            *("-notransitive", "-confs", "default", "-types", "jar"),
            *("-retrieve", f"{target}/[artifact]-[revision].[ext]"),
            *("-ivypattern", f"{target}/ivy.xml"),
        )
        new = set(self._jars_of(module)) - before
        if new:
            file = new.pop()
            return Resolved(module, file.parent.name, file)
        failed = _FAILED.search(output)
        if failed is None and _NOT_FOUND in output:
            return None
        reason = failed.group(1) if failed is not None else output[-_LONGEST_REASON:]
        raise _NoAnswer(reason.strip())

    def _jars_of(self, module: Module) -> Iterator[Path]:
        return (self._folder / module.group / module.name).glob("*/*.jar")

    def _description(self, found: Resolved) -> Path:
        return found.file.with_name("ivy.xml")

    def _run_ivy(self, wanted: JarSet, *arguments: str) -> str:
        own = self._folder / "ivy"
        command = [
            find_java().executable,
            f"-Divy.default.ivy.user.dir={own}",
            *("-jar", str(_ivy_jar()), "-warn", "-cache", str(own / "cache")),
            *arguments,
        ]
        left = self._give_up_at - time.monotonic()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=max(left, 0.0),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._unavailable(wanted, "the download took too long") from error
        return done.stdout.decode(errors="replace")

    def _unavailable(self, wanted: JarSet, reason: str) -> JarsUnavailable:
        return JarsUnavailable(
            f"the jars for {wanted.name} cannot be downloaded: {reason}",
            hint="Check the connection to Maven Central. Without one, set connectors.jars to a directory"
            f" with {', '.join(self._wanted)}, such as the one that"
            f" `resurgence connectors install {wanted.name}` prints on a machine that has one.",
        )


def revisions(module: Module, version: str) -> tuple[str, ...]:
    """Return what to ask Ivy for, in order: the version, then the newest older one of the same major
    version, then a newer one, unless it is a part of Spark.
    """
    first = major(version)
    older, newer = f"[{first}.0,{version}[", f"]{version},{first + 1}.0["
    return (version, older) if module.is_of_spark else (version, older, newer)


def required_versions(description: str) -> dict[tuple[str, str], str]:
    """Return the versions of what a module needs at run time, by group and name, from the XML that
    Ivy makes of its POM.
    """
    found = {}
    for each in ElementTree.fromstring(description).iter("dependency"):
        scopes = {part.split("->")[0].strip() for part in each.get("conf", "").split(";")}
        if scopes & {"compile", "runtime"}:
            found[(each.get("org", ""), each.get("name", ""))] = each.get("rev", "")
    return found


def _ivy_jar() -> Path:
    for each in jars():
        if re.fullmatch(r"ivy-\d.*\.jar", each.name):
            return each
    raise ConfigError(
        "PySpark was installed without Ivy, which downloads jars",
        hint="Set connectors.jars to a directory with the jars.",
    )
