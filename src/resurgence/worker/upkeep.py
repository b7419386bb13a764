"""Maintenance of a running job: deletes old checkpoints, debris and staged leftovers, and
periodically reads and verifies the whole newest checkpoint.

It never delays an epoch: no epoch waits for a round that is still running.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from resurgence.config import CheckpointSettings
from resurgence.engine.epochs.engine import Engine
from resurgence.errors import ConnectionLost, SinkError, StorageError
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.verification import Verification, Verifier, condemn, condemnable
from resurgence.state.protocol.checkpoint_records import CheckpointRecords
from resurgence.state.protocol.decisions import dead_ranges, living
from resurgence.state.retention import Retention

log = logging.getLogger(__name__)

_FINISH_DEADLINE = timedelta(seconds=5)
_LOOK_EVERY = 60.0
"""Seconds between two rounds that list what is stored. The others cost no listing."""
_EXPIRE_EVERY = 50
"""Epochs between two expirations of the sinks' records: each one costs a listing."""


class Upkeep:
    """Maintenance rounds, at most one after each epoch, in a separate thread."""

    def __init__(
        self,
        backend: StateBackend,
        engine: Engine,
        settings: CheckpointSettings,
        generation: Generation,
        faults: FaultInjector,
        found_damage: Callable[[Verification], None],
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._settings = settings
        self._retention = Retention(backend, settings.keep, generation, settings.keep_for)
        self._faults = faults
        self._found_damage = found_damage
        self._expired_at = NO_EPOCH
        self._looked: float | None = None
        """When storage was last listed; None: the next round must do so."""
        self._sealed: list[CheckpointRecords] = []
        """Since the last round began."""
        self._verified = time.monotonic()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def after(self, epoch: Epoch, checkpoint: CheckpointRecords) -> None:
        """Start a round after a committed epoch. Raise the failure of an earlier round."""
        if self._failure is not None:
            raise self._failure
        self._sealed.append(checkpoint)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(epoch, self._sealed), name="upkeep", daemon=True
            )
            self._sealed = []
            self._thread.start()

    def finish(self) -> None:
        """Wait briefly for the current round. Raise its failure."""
        if self._thread is not None:
            self._thread.join(_FINISH_DEADLINE.total_seconds())
        if self._failure is not None:
            raise self._failure

    def _run(self, epoch: Epoch, sealed: list[CheckpointRecords]) -> None:
        look = self._looked is None or time.monotonic() - self._looked >= _LOOK_EVERY
        try:
            # A compaction that starts from now on has a later number than the committed epoch.
            in_flight = self._engine.compaction.in_flight or Epoch(epoch + 1)
            in_use = self._engine.compaction.files_in_use()
            deletions = self._retention.run(
                lambda: self._faults.hit(FaultPoint.RETENTION_MID, epoch),
                in_flight,
                in_use,
                sealed,
                look=look,
            )
            if look:
                self._engine.sweep(epoch)
                self._looked = time.monotonic()
            if epoch >= self._expired_at + _EXPIRE_EVERY:
                self._engine.forget(deletions.oldest)
                self._expired_at = epoch
            self._verify()
        except (StorageError, SinkError, ConnectionLost) as error:
            log.warning("upkeep failed: %s; retrying after the next epoch", error.message)
        except Exception as error:
            self._failure = error

    def _verify(self) -> None:
        """Verify the newest checkpoint if it is due; condemn a damaged one before it is needed."""
        interval = self._settings.verify_interval.total_seconds()
        if not interval or time.monotonic() - self._verified < interval:
            return
        self._verified = time.monotonic()
        dead = dead_ranges(self._backend.rollbacks())
        standing = {
            epoch: objects.manifests[objects.standing]
            for epoch, objects in living(self._backend.epochs(), dead).items()
            if objects.standing is not None
        }
        if not standing:
            return
        found = Verifier(self._backend).verify(standing[max(standing)])
        for each in condemnable([found], standing.keys()):
            condemn(self._backend, each)
            self._looked = None
        if found.faults:
            self._found_damage(found)
