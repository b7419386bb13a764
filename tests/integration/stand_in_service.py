"""The command line of Resurgence, with workers that need no Spark."""

from __future__ import annotations

from resurgence.cli.app import main
from resurgence.control.workers.scheduler import ProcessScheduler

if __name__ == "__main__":
    ProcessScheduler.module = "tests.integration.stand_in_worker"
    main()
