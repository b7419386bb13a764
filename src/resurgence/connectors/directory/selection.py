"""Which files of a folder a source reads, and the columns that are in their paths. Pure.

A `path` with patterns is split: the steps before the first pattern are the folder that is listed, and
the rest is matched against paths relative to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from resurgence.errors import UserError
from resurgence.storage.object_store import storage_url

_GLOB = re.compile(r"[*?\[]")
_ROOT = "file:///"
_HIDDEN = (".", "_")
_GREATEST = "\U0010ffff"
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[(?P<negated>[!^]?)(?P<set>\]?[^\]/]*)\]")


def shown_folder(url: str) -> str:
    """Return a folder as it is shown to users, without a slash at its end."""
    return url.removeprefix("file://").rstrip("/")


@dataclass(frozen=True)
class Selection:
    """The files of a source."""

    url: str
    """The folder that is listed."""
    pattern: str = ""
    """What paths relative to it must match; empty for all of them."""
    regex: str | None = None
    """What must be found in them."""

    @classmethod
    def of(cls, path: str, regex: str | None) -> Selection:
        """Return the selection that the options of a table define."""
        steps = path.split("/")
        first = 3 if urlsplit(path).scheme and "://" in path else 0
        place = next(
            (n for n, step in enumerate(steps) if n >= first and _GLOB.search(step)), len(steps)
        )
        folder = "/".join(steps[:place])
        if not folder:
            folder = "/" if path.startswith("/") else "."
        url = storage_url(folder)
        return cls(url if url == _ROOT else url.rstrip("/"), "/".join(steps[place:]), regex)

    @property
    def first(self) -> str:
        """The text that every path that matches begins with."""
        return _GLOB.split(self.pattern, maxsplit=1)[0]

    @property
    def before(self) -> str:
        """A text that precedes every path that matches, and few others: where a listing begins."""
        if not self.first:
            return ""
        return self.first[:-1] + chr(ord(self.first[-1]) - 1) + _GREATEST

    @property
    def shown(self) -> str:
        """The folder as it is shown to users, without a slash at its end."""
        return shown_folder(self.url)

    def place(self, path: str) -> str:
        """Return the whole path of a file."""
        return f"{self.shown}/{path}"

    def is_beyond(self, path: str) -> bool:
        """Return whether neither this path nor a greater one matches."""
        return path > self.first and not path.startswith(self.first)

    def matcher(self) -> Matcher:
        return Matcher(
            re.compile(_translated(self.pattern)) if self.pattern else None,
            re.compile(self.regex) if self.regex is not None else None,
        )


@dataclass(frozen=True)
class Matcher:
    """A compiled selection."""

    pattern: re.Pattern[str] | None
    regex: re.Pattern[str] | None

    def __call__(self, path: str) -> bool:
        """Return whether a file is read. Hidden ones are not, such as output that is not yet
        committed.
        """
        return (
            not any(step.startswith(_HIDDEN) for step in path.split("/"))
            and (self.pattern is None or self.pattern.fullmatch(path) is not None)
            and (self.regex is None or self.regex.search(path) is not None)
        )


def _translated(pattern: str) -> str:
    """Return a regular expression for a pattern: `*` and `?` do not match `/`, `**` does."""
    parts, at = [], 0
    for token in _TOKEN.finditer(pattern):
        parts.append(re.escape(pattern[at : token.start()]))
        at = token.end()
        match token[0]:
            case "**/":
                parts.append("(?:.*/)?")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _:
                members = token["set"].replace("\\", r"\\")
                parts.append(f"[{'^/' if token['negated'] else ''}{members}]")
    return "".join(parts) + re.escape(pattern[at:])


def require_partitions(place: str, path: str, fields: Sequence[str]) -> None:
    """Raise UserError if a path lacks the folder of a partition column."""
    keys = {step.partition("=")[0] for step in path.split("/")[:-1] if "=" in step}
    for each in fields:
        if each not in keys:
            raise UserError(
                f"{place} is in no folder '{each}=…', but '{each}' is one of 'partitioning.fields'",
                hint="Move the file, exclude it by 'source.regex_pattern', or remove the field.",
            )


def partition_sql(path: str, field: str, kind: str) -> str:
    """Return SQL for the value of a partition column, given SQL for the path of a file. A value that
    does not fit its type fails, and names the path.
    """
    expression = f"(?:^|/){re.escape(field)}=([^/]*)/".replace("\\", "\\\\").replace("'", "\\'")
    found = f"regexp_extract({path}, '{expression}', 1)"
    # A name that is not encoded may have a percent sign; a plus sign is one.
    text = f"coalesce(try_url_decode(replace({found}, '+', '%2B')), {found})"
    text = f"nullif({text}, '__HIVE_DEFAULT_PARTITION__')"
    if kind.upper() == "STRING":
        return text
    message = f"concat({path}, ': the folder of \\'{field}\\' is not a {kind}')"
    failure = f"CAST(raise_error({message}) AS {kind})"
    return f"IF({text} IS NULL, NULL, coalesce(try_cast({text} AS {kind}), {failure}))"
