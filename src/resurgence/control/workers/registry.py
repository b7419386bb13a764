"""Every scheduler by name: the built-in one, and those that installed packages add under the entry
point group `resurgence.schedulers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.control.workers.scheduler import PROCESS, Scheduler, WorkerScheduler
from resurgence.errors import ConfigError, did_you_mean
from resurgence.plugins import PluginRegistry

SCHEDULERS: Mapping[str, Scheduler] = PluginRegistry("resurgence.schedulers", Scheduler, (PROCESS,))


def make_scheduler(name: str) -> WorkerScheduler:
    """Return a new scheduler of this kind, or raise ConfigError."""
    if name not in SCHEDULERS:
        raise ConfigError(
            f"setting 'controller.scheduler': scheduler '{name}' does not exist",
            hint=did_you_mean(name, SCHEDULERS),
        )
    return SCHEDULERS[name].make()
