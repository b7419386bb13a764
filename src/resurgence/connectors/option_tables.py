"""The tables of options in the docs, printed from the models that declare the options.

In a page, the comment `<!-- options of CONNECTOR as ROLE -->` precedes a table, which is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from resurgence.graph.connector_spec import ConnectorSpec, Role, RoleSpec
from resurgence.graph.table_options import FORMAT, OptionSpec

_TABLE = re.compile(
    r"(?P<mark><!-- options of (?P<connector>\w+) as (?P<role>\w+) -->\n)(?P<table>(?:\|.*\n)*)"
)


def with_option_tables(page: str, connectors: Mapping[str, ConnectorSpec]) -> str:
    """Return a page with its tables of options brought up to date."""

    def printed(match: re.Match[str]) -> str:
        role = connectors[match["connector"]].roles[Role(match["role"])]
        return match["mark"] + option_table(role)

    return _TABLE.sub(printed, page)


def documented(page: str) -> list[tuple[str, Role]]:
    """Return the connectors and roles whose options a page documents."""
    return [(each["connector"], Role(each["role"])) for each in _TABLE.finditer(page)]


def option_table(role: RoleSpec) -> str:
    """Return the options of a connector in a role as a Markdown table."""
    lines = ["| option | |", "|---|---|"]
    for name, each in role.known_options.items():
        text = _formats(role) if name == FORMAT and role.formats else _description(each)
        lines.append(f"| `{name}` | {text} |")
    return "".join(f"{line}\n" for line in lines)


def _description(option: OptionSpec) -> str:
    parts = [
        *(["required"] if option.required else []),
        *(["secret"] if option.is_secret else []),
    ]
    return ": ".join(part for part in (", ".join(parts), option.description) if part)


def _formats(role: RoleSpec) -> str:
    default, *others = role.formats
    texts = [f"`{default.name}` (default)"]
    texts += [
        f"`{each.name}`" + (f" for {each.purpose}" if each.purpose else "") for each in others
    ]
    *first, last = texts
    return f"{', '.join(first)} or {last}" if first else last
