"""Sessions that were logged out."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from tests.unit.api.simulated_service import KeyBox

from resurgence.api.access.guard import Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.control.store.metadata import KeyRole
from resurgence.ui.access.doorkeeper import Doorkeeper
from resurgence.ui.access.logouts import Logouts
from resurgence.ui.access.sessions import SessionSigner


def test_a_logout_outlives_the_process(tmp_path: Path) -> None:
    keys, signer = KeyBox([]), SessionSigner(b"secret")
    keys.add("ops", KeyRole.WRITE)
    one, other = (signer.cookie_for(keys.kept[0], datetime.now(UTC)) for _ in range(2))

    def doorkeeper() -> Doorkeeper:
        logouts = Logouts(tmp_path / "console.logouts")
        return Doorkeeper(Guard(), KeyRing(keys.read), signer, logouts)

    async def check() -> None:
        before, beside = doorkeeper(), doorkeeper()
        assert await before.visitor(one) is not None
        before.log_out(one)
        for each in (before, beside, doorkeeper()):
            assert await each.visitor(one) is None
            assert await each.visitor(other) is not None

    asyncio.run(check())


def test_logouts_of_sessions_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "console.logouts"
    Logouts(file).add("old", ends_at=100, now=0.0)
    Logouts(file).add("new", ends_at=300, now=200.0)
    found = Logouts(file)
    assert ["old" in found, "new" in found] == [False, True]


def test_two_processes_keep_the_logouts_of_each_other(tmp_path: Path) -> None:
    one, other = Logouts(tmp_path / "file"), Logouts(tmp_path / "file")
    one.add("a", ends_at=100, now=0.0)
    other.add("b", ends_at=100, now=0.0)
    assert "b" in one
    assert "a" in other
