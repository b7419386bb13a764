"""A REST catalog: Apache Iceberg's own reference server, from its Maven artifacts, over SQLite."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from resurgence.engine.spark.java import find_java
from tests.servers.builds import java_classes, maven_jars
from tests.servers.process import running

TOKEN = "not-a-secret-but-it-must-never-be-shown"
_SERVER = [
    "org.apache.iceberg:iceberg-core:1.11.0",
    "org.apache.iceberg:iceberg-core:1.11.0:tests",
    "org.apache.iceberg:iceberg-aws:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.14",
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
    "org.xerial:sqlite-jdbc:3.53.2.1",
    "org.slf4j:slf4j-simple:2.0.17",
]
_SOURCE = Path(__file__).with_name("IcebergCatalog.java")


@dataclass(frozen=True)
class IcebergServer:
    """A running catalog."""

    port: int
    warehouse: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_catalog(
    *,
    warehouse: str | None = None,
    properties: Mapping[str, str] | None = None,
    token: str = "",
) -> Iterator[IcebergServer]:
    """A catalog that accepts connections; NoServer with the reason if there is none.

    Its warehouse is a local folder unless one is given; `properties` are those of its file system.
    With a token, it refuses requests without it.
    """
    with tempfile.TemporaryDirectory(prefix="iceberg-") as text:
        folder = Path(text)
        place = warehouse or f"file://{folder}/warehouse"
        settings = {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "jdbc.schema-version": "V1",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "warehouse": place,
            **(properties or {}),
        }
        with running(_command(settings, token), folder, {}) as port:
            yield IcebergServer(port, place)


def build() -> tuple[Path, Path]:
    """Return the folders of jars and classes, installed if necessary."""
    jars = maven_jars("iceberg-rest", _SERVER)
    return jars, java_classes("iceberg-rest-classes", _SOURCE, jars)


def _command(settings: Mapping[str, str], token: str) -> Callable[[int], list[str]]:
    jars, classes = build()
    options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    start = [find_java().executable, *options, "-cp", f"{classes}:{jars}/*", "IcebergCatalog"]
    pairs = [f"{name}={value}" for name, value in settings.items()]
    return lambda port: [*start, str(port), token, *pairs]
