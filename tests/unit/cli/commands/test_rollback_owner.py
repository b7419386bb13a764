"""A rollback over the state dir never fences out a live job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.state.real_state import NOW, RealJob

from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli


def test_a_rollback_is_refused_while_a_live_process_runs_the_job(real: RealJob, cli: Cli) -> None:
    real.backend.claim_generation(NOW, owner=owner_here(OwnerKind.SERVICE, "a service", NOW))
    before = real.backend.store.list("")
    refused = cli("rollback", "--to-epoch", "1")
    assert refused.status == 1
    assert "job 'rides' has been run by a service on" in refused.err
    assert real.backend.store.list("") == before
