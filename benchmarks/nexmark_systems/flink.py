"""Flink: its installation in a virtual environment of its own, and its runs.

It is tuned as its documentation recommends: object reuse, mini-batches, aggregates in two phases,
DISTINCT aggregates split. State is on the heap by default, which is recommended for state that fits
into memory and is faster; checkpoints are exactly-once. The time of a run is the one that Flink
reports for the job, without planning and without the start of its cluster.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.nexmark_systems.events import KINDS, flat_columns, view_sql
from benchmarks.nexmark_systems.queries import Query, System
from benchmarks.nexmark_systems.runs import CORES, MEMORY, Repetition, Run, RunFailed, execute
from benchmarks.nexmark_systems.spark_runs import WATERMARK_SECONDS

from resurgence.cache_folder import cache_folder
from resurgence.engine.spark.jar_resolver import JarResolver
from resurgence.engine.spark.jar_sets import JarSet, Module
from resurgence.engine.spark.java import find_java, jars
from resurgence.errors import ResurgenceError

VERSION = "2.3.0"
INSTALL_SECONDS = 1200
STATE_BACKENDS = ("hashmap", "rocksdb")
_PARQUET = JarSet("Flink", Module("org.apache.flink", "flink-sql-parquet"))
_TYPES = {"STRING": "STRING", "BIGINT": "BIGINT", "TIMESTAMP": "TIMESTAMP(6)"}


def installed() -> Path:
    """Return Flink's Python, after it was installed if need be. Raise RunFailed without network."""
    folder = cache_folder() / "benchmarks" / f"flink-{VERSION}"
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists():
        return python
    print(f"installing Flink {VERSION} into {folder}, once", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    give_up_at = time.monotonic() + INSTALL_SECONDS
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)], give_up_at)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, f"apache-flink=={VERSION}"], give_up_at)
        (found,) = JarResolver(folder / "jars", give_up_at, print).resolve(_PARQUET, VERSION)
        shutil.copy(found.file, _libraries(folder) / found.file.name)
    except (OSError, subprocess.SubprocessError, ResurgenceError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        reason = (detail.strip().splitlines() or ["no reason given"])[-1]
        raise RunFailed(f"Flink cannot be installed: {reason}") from error
    done.touch()
    return python


def _run(command: list[str], give_up_at: float) -> None:
    left = max(1.0, give_up_at - time.monotonic())
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=left)


def _libraries(folder: Path) -> Path:
    (found,) = folder.glob("lib/python*/site-packages/pyflink/lib")
    return found


def run_flink(
    python: Path, run: Run, query: Query, settings: dict[str, str], deadline: float
) -> list[Repetition]:
    """Run the query in a new process of Flink. The first repetition warms up."""
    run.folder.mkdir(parents=True)
    job = run.folder / "job.json"
    outputs = [run.folder / name for name in ("warm-up", *map(str, range(run.repetitions)))]
    described = {
        "settings": {**settings, "execution.checkpointing.dir": f"file://{run.folder}/checkpoints"},
        "tables": tables(run),
        "inserts": [insert(query, number, each) for number, each in enumerate(outputs)],
        "outputs": [str(each) for each in outputs],
    }
    job.write_text(json.dumps(described))
    # Flink's reader of Parquet needs classes of Hadoop, which PySpark has.
    hadoop = ":".join(str(each) for each in jars() if each.name.startswith("hadoop-client-"))
    environment = {
        "HADOOP_CLASSPATH": hadoop,
        "JAVA_HOME": str(Path(find_java().executable).resolve().parents[1]),
        "JAVA_TOOL_OPTIONS": f"-Xmx{MEMORY} -Duser.timezone=UTC",
        "FLINK_LOG_DIR": str(run.folder),
    }
    script = Path(__file__).with_name("flink_job.py")
    return execute([str(python), str(script), str(job)], deadline, environment)


def settings(state_backend: str, checkpoint_seconds: float) -> dict[str, str]:
    found = {
        "parallelism.default": str(CORES),
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": f"{round(checkpoint_seconds * 1000)} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "state.backend.type": state_backend,
        # A run that fails has no figure. By default, Flink would restart it for ever.
        "restart-strategy.type": "none",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.optimizer.distinct-agg.split.enabled": "true",
    }
    if state_backend == "rocksdb":
        found |= {
            "execution.checkpointing.incremental": "true",
            "taskmanager.memory.managed.size": "1 gb",
        }
    return found


def tables(run: Run) -> list[str]:
    """Return the statements that declare the input."""
    columns = {name: _TYPES[sql] for name, sql in flat_columns().items()}
    # Event time has milliseconds, in Flink and in the files.
    columns["timestamp"] = "TIMESTAMP(3)"
    listed = ", ".join(f"`{name}` {sql}" for name, sql in columns.items())
    return [
        f"""CREATE TABLE nexmark ({listed},
            WATERMARK FOR `timestamp` AS `timestamp` - INTERVAL '{WATERMARK_SECONDS}' SECOND)
        WITH ('connector' = 'filesystem', 'path' = 'file://{run.events.readers}', 'format' = 'parquet')""",
        f"""CREATE TABLE side (`key` BIGINT, `value` STRING, valid_from AS CAST('1970-01-01' AS TIMESTAMP(3)),
            WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (`key`) NOT ENFORCED)
        WITH ('connector' = 'filesystem', 'path' = 'file://{run.events.side}', 'format' = 'parquet')""",
        *(f"CREATE VIEW {each} AS {view_sql(each)}" for each in KINDS),
    ]


def insert(query: Query, number: int, folder: Path) -> str:
    output = "'format' = 'parquet', 'parquet.write.int64.timestamp' = 'true'"
    if System.FLINK in query.changelogs:
        output = (
            "'format' = 'debezium-json', 'debezium-json.timestamp-format.standard' = 'ISO-8601'"
        )
    return (
        f"CREATE TABLE out_{number} WITH ('connector' = 'filesystem', 'path' = 'file://{folder}',"
        f" {output}) AS {query.texts[System.FLINK]}"
    )
