"""Objects that installed packages add are found by name, and loaded on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from resurgence import plugins
from resurgence.connectors.connector import Connector
from resurgence.errors import ConfigError
from resurgence.plugins import PluginRegistry

GROUP = "resurgence.connectors"
OURS = Connector("ours")
THEIRS = Connector("theirs")
Registry = PluginRegistry[Connector]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Registry]:
    """A registry beside which packages add `name = "module:OBJECT"`."""
    module = ModuleType("their_module")
    vars(module).update(THEIRS=THEIRS, OTHER=Connector("theirs"), WORD="theirs")
    monkeypatch.setitem(sys.modules, "their_module", module)

    def make(*added: tuple[str, str]) -> Registry:
        entries = [EntryPoint(name, value, GROUP) for name, value in added]
        monkeypatch.setattr(plugins, "entry_points", lambda group: entries)
        return PluginRegistry(GROUP, Connector, [OURS])

    return make


def test_packages_add_to_the_built_in_objects(registry: Callable[..., Registry]) -> None:
    found = registry(("theirs", "their_module:THEIRS"))
    assert [*found] == ["ours", "theirs"]
    assert len(found) == 2
    assert found["ours"] is OURS
    assert found["theirs"] is THEIRS
    assert "unknown" not in found
    assert found.get("unknown") is None


def test_a_broken_package_affects_only_those_who_use_it(
    registry: Callable[..., Registry],
) -> None:
    found = registry(("broken", "no_such_module:IT"), ("theirs", "their_module:THEIRS"))
    assert found["theirs"] is THEIRS
    with pytest.raises(ConfigError) as caught:
        _ = found["broken"]
    message = "connector 'broken' of package no_such_module cannot be loaded"
    assert caught.value.message.startswith(f"{message}: ModuleNotFoundError")
    assert "no_such_module:IT" in caught.value.hint


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ([("theirs", "their_module:WORD")], "is a str, not a Connector"),
        ([("other", "their_module:THEIRS")], "declares the name 'theirs'"),
        ([("theirs", "their_module:MISSING")], "cannot be loaded: AttributeError"),
        (
            [("theirs", "their_module:THEIRS"), ("theirs", "their_module:OTHER")],
            "is provided by several packages: their_module, their_module",
        ),
        ([("ours", "their_module:THEIRS")], "by several packages: resurgence, their_module"),
    ],
)
def test_an_unusable_object_is_refused_by_name(
    registry: Callable[..., Registry], added: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _ = registry(*added)[added[0][0]]


def test_a_package_that_is_on_the_path_twice_counts_once(
    registry: Callable[..., Registry],
) -> None:
    entry = ("theirs", "their_module:THEIRS")
    assert registry(entry, entry)["theirs"] is THEIRS
