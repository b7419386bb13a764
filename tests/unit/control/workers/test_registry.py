"""Schedulers are found by name, those of installed packages included."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from resurgence import plugins
from resurgence.config import Settings
from resurgence.control.workers import registry
from resurgence.control.workers.registry import make_scheduler
from resurgence.control.workers.scheduler import PROCESS, ProcessScheduler, Scheduler
from resurgence.errors import ConfigError
from resurgence.plugins import PluginRegistry


class ClusterScheduler(ProcessScheduler):
    """A scheduler of another package."""


def test_the_default_setting_starts_workers_as_child_processes() -> None:
    assert type(make_scheduler(Settings().controller.scheduler)) is ProcessScheduler


def test_each_controller_gets_a_scheduler_of_its_own() -> None:
    assert make_scheduler("process") is not make_scheduler("process")


def test_unknown_scheduler_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError) as caught:
        make_scheduler("proces")
    assert (
        caught.value.message == "setting 'controller.scheduler': scheduler 'proces' does not exist"
    )
    assert caught.value.hint == "Perhaps you meant 'process'."


def test_installed_package_adds_a_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_module")
    vars(module).update(CLUSTER=Scheduler("cluster", ClusterScheduler))
    monkeypatch.setitem(sys.modules, "their_module", module)
    entry = EntryPoint("cluster", "their_module:CLUSTER", "resurgence.schedulers")
    installed = {"resurgence.schedulers": [entry]}
    monkeypatch.setattr(plugins, "entry_points", lambda group: installed.get(group, []))
    found = PluginRegistry("resurgence.schedulers", Scheduler, (PROCESS,))
    monkeypatch.setattr(registry, "SCHEDULERS", found)
    assert isinstance(make_scheduler("cluster"), ClusterScheduler)
