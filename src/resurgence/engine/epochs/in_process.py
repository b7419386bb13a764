"""An engine in this process, without controller or worker, for warm-up, benchmarks and tests.

It starts as in a recovery: claim a generation, plan the load, restore.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from resurgence.clock import Clock, SystemClock
from resurgence.config import Settings
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.faults import FaultInjector, parse_faults
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore


def open_engine(
    spark: SparkSession,
    graph: Graph,
    store: ObjectStore,
    job: JobName,
    settings: Settings,
    *,
    clock: Clock | None = None,
    damaged: frozenset[str] = frozenset(),
) -> Engine:
    """Return a new generation of the job, restored from its newest valid checkpoint."""
    clock = clock or SystemClock()
    backend = StateBackend(store, job)
    claim = backend.claim_generation(clock.now())
    plan = backend.prepare_checkpoint_load(claim, settings.pipeline.parallelism, damaged)
    engine = Engine(
        pipeline=Pipeline(spark, graph, store.url, backend.paths, plan.parallelism, plan.dead),
        backend=backend,
        plan=plan,
        settings=settings,
        faults=FaultInjector(parse_faults(settings.faults), store, job),
        clock=clock,
    )
    engine.restore()
    return engine
