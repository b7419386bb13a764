"""Completion of tables and columns in an SQL editor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nicegui import ui
from nicegui.element import Element


class SqlCompletion(Element, component="sql_completion.js"):
    """Completes names in an editor: tables with their columns, and words."""

    def __init__(
        self, editor: ui.codemirror, tables: Mapping[str, Sequence[str]], words: Sequence[str]
    ) -> None:
        super().__init__()
        self._props["editor"] = editor.id
        self._props["tables"] = dict(tables)
        self._props["words"] = [*words]

    def show(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Replace the tables."""
        if tables != self._props["tables"]:
            self._props["tables"] = dict(tables)
            self.update()
