"""Check that every file of this repository that a document names exists."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]

_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
_PATH = re.compile(r"`((?:src|tests|docs|examples|benchmarks|scripts|deploy|\.ci)/[\w./-]+)`")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def missing_files(document: Path) -> Iterator[str]:
    """Yield the missing targets of a document: links relative to it, and back-quoted paths relative
    to the root.
    """
    text = _CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if (
            "://" not in target
            and not target.startswith("mailto:")
            and not (document.parent / target).exists()
        ):
            yield target
    for path in _PATH.findall(text):
        if not (ROOT / path).exists():
            yield path


def main() -> int:
    problems = [
        f"{document.relative_to(ROOT)}: {target} does not exist"
        for document in DOCUMENTS
        if document.exists()
        for target in missing_files(document)
    ]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
