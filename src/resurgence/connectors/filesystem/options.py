"""The options of a `filesystem` sink."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from resurgence.connectors.byte_size import SIZE_HINT, ByteSize
from resurgence.connectors.filesystem.partitions import time_folder_sql
from resurgence.connectors.formats.contract import Compression, Format
from resurgence.durations import parse_duration
from resurgence.errors import UserError
from resurgence.graph.table_options import TableOptions, option

TIME_PATTERN = "partitioning.time_pattern"
_DURATION_HINT = "Write it as in '10 minutes' or 30s."


def _positive(value: object) -> timedelta:
    duration = parse_duration(value)
    if duration <= timedelta(0):
        raise ValueError("not positive")
    return duration


def _columns(value: object) -> tuple[str, ...]:
    names = tuple(
        each.strip() for each in str(value).removeprefix("[").removesuffix("]").split(",")
    )
    if not all(names) or len({*names}) < len(names):
        raise ValueError("not a list of columns")
    return names


def _pattern(text: str) -> str:
    time_folder_sql(text)
    return text


def _file_name(text: str) -> str:
    # Readers ignore names that begin with these.
    if not text or "/" in text or text[0] in "._":
        raise ValueError("not a part of a file name")
    return text


class FilesystemSinkOptions(TableOptions):
    """The options of a `filesystem` sink."""

    path: str = option("a folder or URL")
    fields: Annotated[tuple[str, ...], BeforeValidator(_columns)] | None = option(
        "columns, as in `[country, kind]` or `'country, kind'`. Each combination of their values has"
        " its own folders, `country=de/kind=a`. The columns are also in the files",
        default=None,
        name="partitioning.fields",
        hint="Name columns, separated by commas, as in 'country, kind'.",
    )
    time_pattern: Annotated[str, AfterValidator(_pattern)] | None = option(
        "the folders of a row by its event time in UTC, as a pattern of `strftime`: `%Y/%m/%d/%H`,"
        " `day=%F`. They precede those of `'partitioning.fields'`",
        default=None,
        name=TIME_PATTERN,
        hint="Use %Y, %m, %d, %H, %M, %S, %F, %j, %y, %b, %B, %G, %V and text, as in"
        " 'year=%Y/month=%m'. No folder may be empty, or begin with a dot or an underscore.",
    )
    prefix: Annotated[str, AfterValidator(_file_name)] | None = option(
        "the beginning of the file names, followed by a hyphen",
        default=None,
        name="filename.prefix",
        hint="Use a text without slashes that begins with neither a dot nor an underscore.",
    )
    file_size: ByteSize | None = option(
        "a file is complete when it has this size, as in `128MB`; at 256 MiB at the latest",
        default=None,
        name="rolling_policy.file_size",
        hint=SIZE_HINT,
    )
    interval: Annotated[timedelta, BeforeValidator(_positive)] | None = option(
        "a file is complete this long after its first row was read, as in `'10 minutes'`",
        default=None,
        name="rolling_policy.interval",
        hint=_DURATION_HINT,
    )
    parquet_compression: Literal["uncompressed", "snappy", "gzip", "zstd", "lz4"] | None = option(
        "the codec of Parquet files: `lz4` (default), `zstd`, `snappy`, `gzip`, `uncompressed`",
        default=None,
        name="parquet.compression",
    )
    json_compression: Literal["uncompressed", "gzip"] | None = option(
        "of `json` and `debezium_json`: `uncompressed` (default) or `gzip`, in files `*.json.gz`",
        default=None,
        name="json.compression",
    )
    csv_compression: Literal["uncompressed", "gzip"] | None = option(
        "of `csv`: `uncompressed` (default) or `gzip`, in files `*.csv.gz`",
        default=None,
        name="csv.compression",
    )

    def compression(self, file_format: Format) -> Compression | None:
        """Return how files are compressed; None for the format's default. Raise UserError for the
        compression of another format.
        """
        chosen = {
            "parquet": self.parquet_compression,
            "json": self.json_compression,
            "csv": self.csv_compression,
        }
        own = chosen.pop(file_format.suffix, None)
        for family, name in chosen.items():
            if name is not None:
                raise UserError(
                    f"the option '{family}.compression' does not apply to format"
                    f" '{file_format.name}'",
                    hint="Remove it, or change the format.",
                )
        return None if own is None else file_format.compressions[own]
