"""The pipelines in the pages of docs/connectors, for tests that run them as they are written there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGES = Path(__file__).parents[1] / "docs/connectors"


def pipeline(page: str, number: int, places: Mapping[str, str] | None = None) -> str:
    """The n-th pipeline of a page, with other values for options that name a place."""
    text = str(re.findall(r"```sql\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[number])
    for option, value in (places or {}).items():
        pattern = rf"(?<![\w.])('?){re.escape(option)}\1 = '[^']*'"
        replaced = f"'{option}' = '{value}'".replace("\\", r"\\")
        text, found = re.subn(pattern, replaced, text)
        assert found, f"{page} has no option '{option}'"
    return text
