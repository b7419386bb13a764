"""One real server with a simulated controller for all tests that need no key, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.unit.api.simulated_service import KeyBox, SimulatedController, served, simulated

from resurgence.cli.commands.serve import BuildController


@pytest.fixture(scope="session")
def shared_controller() -> SimulatedController:
    return SimulatedController(Path())


@pytest.fixture(scope="session")
def build(shared_controller: SimulatedController) -> BuildController:
    """What is served: another folder may put a real controller here."""
    return simulated(shared_controller)


@pytest.fixture(scope="session")
def url(build: BuildController) -> Iterator[str]:
    with served(build, KeyBox([])) as address:
        yield address


@pytest.fixture
def controller(shared_controller: SimulatedController, tmp_path: Path) -> SimulatedController:
    """Without jobs."""
    shared_controller.begin_anew(tmp_path)
    return shared_controller


@pytest.fixture
def http(url: str, controller: SimulatedController) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client
