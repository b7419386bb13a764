"""One real server with a played controller for all tests that need no key, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.unit.api.played_service import KeyBox, PlayedController, played, served

from resurgence.cli.commands.serve import BuildController


@pytest.fixture(scope="session")
def shared_controller() -> PlayedController:
    return PlayedController(Path())


@pytest.fixture(scope="session")
def build(shared_controller: PlayedController) -> BuildController:
    """What is served: another folder may put a real controller here."""
    return played(shared_controller)


@pytest.fixture(scope="session")
def url(build: BuildController) -> Iterator[str]:
    with served(build, KeyBox([])) as address:
        yield address


@pytest.fixture
def controller(shared_controller: PlayedController, tmp_path: Path) -> PlayedController:
    """Without jobs."""
    shared_controller.begin_anew(tmp_path)
    return shared_controller


@pytest.fixture
def http(url: str, controller: PlayedController) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        yield client
