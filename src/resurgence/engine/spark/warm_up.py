"""Warms up a Spark session that has no job yet, by running a small pipeline in the real engine.

This moves the slow parts of a first epoch (class loading, compilation, Python worker start,
imports) before the job's start. The pipeline covers the paths of typical jobs: parsed and generated
rows, few and many groups, both file formats.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

_EPOCHS = 6
_EPOCH_ROWS = 12_000
"""Of each source; enough to give every core a task."""
_SQL = f"""
CREATE TABLE readings (
  at TIMESTAMP NOT NULL, sensor TEXT, value DOUBLE, WATERMARK FOR at AS at - INTERVAL '1 second'
) WITH (connector = 'single_file', path = '{{folder}}/readings.json', format = 'json', type = 'source');
CREATE TABLE sums (start TIMESTAMP, sensor TEXT, readings BIGINT, mean DOUBLE, highest DOUBLE)
WITH (connector = 'filesystem', path = '{{folder}}/sums', format = 'parquet', type = 'sink');
INSERT INTO sums SELECT window.start, sensor, n, mean, highest FROM (
  SELECT tumble(INTERVAL '1 minute') AS window, sensor, count(*) AS n, avg(value) AS mean,
    max(value) AS highest FROM readings GROUP BY window, sensor);

CREATE TABLE numbers (
  counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL,
  WATERMARK FOR timestamp AS timestamp - INTERVAL '1 second'
) WITH (connector = 'impulse', message_count = '{_EPOCHS * _EPOCH_ROWS}', event_time_interval = '1 ms',
  start_time = '2024-01-01T00:00:00', type = 'source');
CREATE TABLE totals (start TIMESTAMP, k INT, n BIGINT, total BIGINT)
WITH (connector = 'filesystem', path = '{{folder}}/totals', format = 'json', type = 'sink');
INSERT INTO totals SELECT window.start, k, n, total FROM (
  SELECT tumble(INTERVAL '10 seconds') AS window, pmod(hash(counter), {_EPOCH_ROWS}) AS k,
    count(*) AS n, sum(counter) AS total FROM numbers GROUP BY window, k);
"""


def warm_up(spark: SparkSession) -> None:
    """Run the pipeline in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="resurgence-warm-up-") as name:
        folder = Path(name)
        with (folder / "readings.json").open("w") as file:
            for second in range(_EPOCHS * _EPOCH_ROWS):
                at = f"2024-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
                reading = {"at": at, "sensor": f"s{second % 7}", "value": second / 7}
                file.write(json.dumps(reading) + "\n")
        (folder / "state").mkdir()
        settings = settings_from(
            {"pipeline.epoch_rows": str(_EPOCH_ROWS), "pipeline.epoch_interval": "0s"}
        )
        graph = compile_pipeline(_SQL.format(folder=folder), CONNECTORS)
        store = ObjectStore(str(folder / "state"))
        engine = open_engine(spark, graph, store, JobName("warm-up"), settings)
        while not engine.finished:
            engine.run_epoch()
