"""The command line of Resurgence, with the scheduler `stand_in` as if a package had added it."""

from __future__ import annotations

from unittest import mock

from resurgence.cli.app import main
from resurgence.control.workers import registry
from tests.stand_ins.host_scheduler import HOST

if __name__ == "__main__":
    with mock.patch.object(registry, "SCHEDULERS", {**registry.SCHEDULERS, HOST.name: HOST}):
        main()
