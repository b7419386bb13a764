"""Messages as the records of a format, for connectors of message systems."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.connectors.formats.contract import TEXT, VALUE, Format


def records_of(messages: DataFrame, chosen: Format) -> DataFrame:
    """Return messages as the reader of a format expects them. The value of a message is in VALUE,
    BINARY, and null if it has none; all other columns are passed through.
    """
    if chosen.skips_tombstones:
        messages = messages.where(F.col(VALUE).isNotNull())
    if not chosen.is_text:
        return messages
    text = F.expr(f"try_validate_utf8(CAST({VALUE} AS STRING)) AS {TEXT}")
    return messages.select("*", text)
