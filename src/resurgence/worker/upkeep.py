"""What a running job does beside its epochs: old checkpoints, debris and staged leftovers go, and now
and then the newest checkpoint is read whole and verified.

Never in the way of an epoch: a round that is still busy is not waited for.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from resurgence.config import CheckpointSettings
from resurgence.engine.epochs.engine import Engine
from resurgence.errors import StorageError
from resurgence.faults import FaultInjector, FaultPoint
from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.verification import Verification, Verifier, condemn, condemnable
from resurgence.state.protocol.decisions import dead_ranges, living
from resurgence.state.retention import Retention

log = logging.getLogger(__name__)

_LAST_ROUND = timedelta(seconds=5)
_FORGET_EVERY = 50
"""Epochs between two looks at the sinks' records: each look is a listing."""


class Upkeep:
    """One round after each epoch, in a thread of its own."""

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
        self._forgot_at = NO_EPOCH
        self._verified = time.monotonic()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def after(self, epoch: Epoch) -> None:
        """Begin a round, after an epoch that is committed. Raises what an earlier one failed with."""
        if self._failure is not None:
            raise self._failure
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._run, args=(epoch,), name="upkeep", daemon=True
            )
            self._thread.start()

    def finish(self) -> None:
        """Wait a little for the round under way."""
        if self._thread is not None:
            self._thread.join(_LAST_ROUND.total_seconds())
        if self._failure is not None:
            raise self._failure

    def _run(self, epoch: Epoch) -> None:
        try:
            # A compaction that begins from now on bears a later number than the epoch just
            # committed.
            in_flight = self._engine.compaction.in_flight or Epoch(epoch + 1)
            in_use = self._engine.compaction.files_in_use()
            deletions = self._retention.run(
                lambda: self._faults.hit(FaultPoint.RETENTION_MID, epoch), in_flight, in_use
            )
            self._engine.sweep(epoch)
            if epoch >= self._forgot_at + _FORGET_EVERY:
                self._engine.forget(deletions.oldest)
                self._forgot_at = epoch
            self._verify()
        except StorageError as error:
            log.warning("upkeep: %s; the next epoch tries again", error.message)
        except Exception as error:
            self._failure = error

    def _verify(self) -> None:
        """Read the newest checkpoint, if it is time; a damaged one is condemned before it is
        needed.
        """
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
        if found.faults:
            self._found_damage(found)
