"""Folders by value: the SQL that computes the folder of each row of a `filesystem` sink.

Folders of columns are those of Hive, `column=value`, which Spark, DuckDB and others read back as
columns. The folder of a time is what `strftime` returns for the row's event time in UTC. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from resurgence.graph.values import EVENT_TIME

FOLDER = "__folder"
"""The column with the folder of a row."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder for null, and for the empty text, which cannot be the name of a folder."""
_DIRECTIVES = {
    "Y": "date_format({time}, 'yyyy')",
    "y": "date_format({time}, 'yy')",
    "m": "date_format({time}, 'MM')",
    "b": "date_format({time}, 'MMM')",
    "B": "date_format({time}, 'MMMM')",
    "d": "date_format({time}, 'dd')",
    "j": "date_format({time}, 'DDD')",
    "F": "date_format({time}, 'yyyy-MM-dd')",
    "H": "date_format({time}, 'HH')",
    "M": "date_format({time}, 'mm')",
    "S": "date_format({time}, 'ss')",
    "G": "CAST(extract(YEAROFWEEK FROM {time}) AS STRING)",
    "V": "lpad(CAST(extract(WEEK FROM {time}) AS STRING), 2, '0')",
}
"""What `strftime` returns, in Spark SQL, by directive."""
_PIECE = re.compile(r"%(.)|([^%]+)", re.DOTALL)
_LITERAL = re.compile(r"[\w =.,+@~/-]*")
_UNSAFE_CHARACTERS = "\"#%'*/:=?\\{[]^\x7f"
_UNSAFE = "[{}]".format(
    "".join(rf"\\x{ord(each):02x}" for each in _UNSAFE_CHARACTERS) + r"\\x00-\\x1f"
)
"""The characters that Hive escapes in a folder, as a regular expression in a literal of Spark."""


def time_folder_sql(pattern: str) -> str:
    """Return SQL for the folder of a row by its event time. Raise ValueError if the pattern is
    invalid.
    """
    pieces, example = [], ""
    position = 0
    for match in _PIECE.finditer(pattern):
        if match.start() != position:
            break
        position = match.end()
        directive, text = match[1], match[2]
        if directive == "%":
            raise ValueError("a folder with a percent sign would be read as an escape")
        if directive is not None:
            if directive not in _DIRECTIVES:
                raise ValueError(f"%{directive} is not supported")
            pieces.append(_DIRECTIVES[directive].format(time=f"`{EVENT_TIME}`"))
            example += "0"
        elif _LITERAL.fullmatch(text) is None:
            raise ValueError(f"'{text}' cannot be in a folder")
        else:
            pieces.append(f"'{text}'")
            example += text
    if position != len(pattern):
        raise ValueError("a percent sign at the end")
    if any(not each or each[0] in "._" for each in example.split("/")):
        raise ValueError("a folder is empty or hidden")
    return f"coalesce(concat({', '.join(pieces)}), '{NO_VALUE}')"


def column_folder_sql(column: str) -> str:
    """Return SQL for the folder of a row by the value of a column."""
    value = f"CAST(`{column}` AS STRING)"
    escaped = (
        f"array_join(transform(split({value}, ''),"
        f" c -> IF(c RLIKE '{_UNSAFE}', concat('%', hex(c)), c)), '')"
    )
    safe = f"IF({value} RLIKE '{_UNSAFE}', {escaped}, {value})"
    return f"concat('{_escaped(column)}=', coalesce(nullif({safe}, ''), '{NO_VALUE}'))"


def folder_sql(pattern: str | None, columns: Sequence[str]) -> str:
    """Return SQL for the folder of a row."""
    parts = [time_folder_sql(pattern)] if pattern is not None else []
    parts += (column_folder_sql(each) for each in columns)
    return f"concat_ws('/', {', '.join(parts)})"


def missing_columns(columns: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the columns that do not exist. Names are compared as SQL compares them."""
    found = {each.lower() for each in known}
    return [each for each in columns if each.lower() not in found]


def _escaped(name: str) -> str:
    """Return a name of a column as the name of a folder, in a literal of Spark."""
    return "".join(
        f"%{ord(each):02X}" if each in _UNSAFE_CHARACTERS or ord(each) < 32 else each
        for each in name
    )
