"""The tables of options in the docs, printed from the models that declare the options.

In a page, the comment `<!-- options of CONNECTOR as ROLE -->` precedes a table, which is replaced. So
does `<!-- options of format FORMAT as ROLE -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from resurgence.connectors.formats.contract import Format
from resurgence.graph.connector_spec import ConnectorSpec, Role, RoleSpec
from resurgence.graph.table_options import FORMAT, OptionSpec

_FORMAT = "format "
_TABLE = re.compile(
    r"(?P<mark><!-- options of (?P<name>(?:format )?\w+) as (?P<role>\w+) -->\n)(?P<table>(?:\|.*\n)*)"
)
_LINK = re.compile(r"\]\((?=[\w-]+\.md)")


def with_option_tables(
    page: str,
    connectors: Mapping[str, ConnectorSpec],
    formats: Mapping[str, Format],
    root: str = "",
) -> str:
    """Return a page with its tables of options brought up to date. `root` is the path from the page
    to the folder that links are relative to.
    """

    def printed(match: re.Match[str]) -> str:
        name, role = match["name"], Role(match["role"])
        if name.startswith(_FORMAT):
            declared = formats[name.removeprefix(_FORMAT)].spec.options(role).declared()
            return match["mark"] + _table({each: _description(declared[each]) for each in declared})
        return match["mark"] + option_table(connectors[name].roles[role])

    return _TABLE.sub(lambda match: _LINK.sub(f"]({root}", printed(match)), page)


def documented(page: str) -> list[tuple[str, Role]]:
    """Return the connectors, formats and roles whose options a page documents."""
    return [(each["name"], Role(each["role"])) for each in _TABLE.finditer(page)]


def option_table(role: RoleSpec) -> str:
    """Return the options of a connector in a role as a Markdown table."""
    return _table(
        {
            name: _formats(role) if name == FORMAT and role.formats else _description(each)
            for name, each in role.own_options.items()
        }
    )


def _table(texts: Mapping[str, str]) -> str:
    lines = ["| option | |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in texts.items()]
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
