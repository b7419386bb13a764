"""Python packages for the executors of a cluster: this one, and those of installed connectors.

They go as one archive of source files, which Spark copies to every executor and puts first on the
path of its Python processes. So executors run the code of the driver, whatever their image has
installed. Compiled packages cannot travel this way and must be in the image.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import entry_points
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.plugins import CONNECTOR_GROUP, FORMAT_GROUP

_ARCHIVE = "resurgence-packages.zip"
_OWN = "resurgence"


def ship_packages(spark: SparkSession, directory: Path) -> None:
    """Write the archive to a directory, and let every executor load it."""
    archive = directory / _ARCHIVE
    write_archive(archive, [_OWN, *plugin_packages()])
    path = [*sys.path]
    spark.sparkContext.addPyFile(str(archive))
    # Spark also adds it to the path of the driver, which has the packages already.
    sys.path[:] = path


def plugin_packages() -> tuple[str, ...]:
    """Return the top-level packages of installed connectors and formats."""
    groups = (CONNECTOR_GROUP, FORMAT_GROUP)
    found = (entry for group in groups for entry in entry_points(group=group))
    return tuple(sorted({entry.module.partition(".")[0] for entry in found} - {_OWN}))


def write_archive(archive: Path, packages: Iterable[str]) -> None:
    """Write the source files of packages and single modules; skip those with compiled modules."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as writer:
        for name in packages:
            root = _root(name)
            files = [*_files(root)] if root is not None else []
            if root is None or any(each.name.endswith(tuple(EXTENSION_SUFFIXES)) for each in files):
                continue
            for file in files:
                writer.write(file, file.relative_to(root.parent))


def _root(name: str) -> Path | None:
    """Return the folder of a package, or the file of a module."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
    for each in sorted(root.rglob("*")):
        if each.is_file() and "__pycache__" not in each.parts:
            yield each
