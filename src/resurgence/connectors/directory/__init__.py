"""`filesystem` as a source: growing folders and prefixes of object stores."""

from __future__ import annotations

from resurgence.connectors.connector import FormatChoice, SourceRole
from resurgence.connectors.directory.content import METADATA
from resurgence.connectors.directory.options import DirectorySourceOptions
from resurgence.connectors.directory.selection import Selection
from resurgence.connectors.directory.source import DirectorySource
from resurgence.connectors.formats.json.lines import JSON

__all__ = ["DIRECTORY_SOURCE", "DirectorySource", "DirectorySourceOptions"]

DIRECTORY_SOURCE = SourceRole(
    make=DirectorySource,
    options=DirectorySourceOptions,
    formats=FormatChoice(
        JSON,
        # Changes of a key would have no order across files.
        lambda each: (each.reads_lines or each.is_columnar) and not each.spec.is_changelog,
    ),
    metadata=METADATA,
    listed_folder=lambda path: Selection.of(path, None).url,
)
