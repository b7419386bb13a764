"""The jars that Spark needs to read from Kafka and to read Avro: installed ahead, because that takes
longer than a test may.
"""

from __future__ import annotations

from pathlib import Path

from resurgence.engine.spark.connector_jars import folder_of, install, installed
from resurgence.errors import JarsUnavailable
from tests.servers.builds import NoServer

_SETS = ("kafka", "avro")


def build() -> None:
    """Install all that can be had; NoServer with the reason for what cannot."""
    reasons = []
    for name in _SETS:
        try:
            install(name, print)
        except JarsUnavailable as error:
            reasons.append(error.message)
    if reasons:
        raise NoServer("; ".join(reasons))


def installed_jars(name: str | None = None) -> tuple[Path, ...]:
    """The jars of a set, or of all sets, that are installed."""
    manifests = {each: installed(each) for each in ([name] if name else _SETS)}
    return tuple(
        folder_of(each) / jar.file
        for each, manifest in manifests.items()
        if manifest is not None
        for jar in manifest.jars
    )
