"""Editors that are as dark as their page."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from nicegui.element import Element

_DARK, _LIGHT = "vscodeDark", "githubLight"


class EditorShade(Element, component="editor_shade.js"):
    """Chooses the theme of editors in the browser, which knows how dark the page is."""

    def __init__(self, editors: Sequence[ui.codemirror]) -> None:
        super().__init__()
        self._props["editors"] = [each.id for each in editors]
        self._props["dark"] = _DARK
        self._props["light"] = _LIGHT
