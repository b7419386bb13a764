"""Regenerate the option tables in the docs from the declarations of connectors and formats."""

from __future__ import annotations

from pathlib import Path

from resurgence.connectors.formats.registry import FORMATS
from resurgence.connectors.option_tables import with_option_tables
from resurgence.connectors.registry import CONNECTORS

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        root = "../" * (len(path.relative_to(ROOT / "docs").parts) - 1)
        path.write_text(with_option_tables(page, CONNECTORS, FORMATS, root), encoding="utf-8")


if __name__ == "__main__":
    main()
