"""A warm epoch compiles no code: whatever differs between epochs stays out of what Spark compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import Job, Leg

_QUERIES = {
    "tumbling window": "SELECT window.start, k, n FROM (SELECT tumble(INTERVAL '20 seconds') AS"
    " window, counter % 3 AS k, count(*) AS n FROM numbers GROUP BY window, k)",
    "hopping window": "SELECT window.start, n FROM (SELECT hop(INTERVAL '10 seconds', INTERVAL '20"
    " seconds') AS window, count(*) AS n FROM numbers GROUP BY window)",
    "session window": "SELECT window.start, k, n FROM (SELECT session(INTERVAL '30 seconds') AS"
    " window, counter DIV 60 AS k, count(*) AS n FROM numbers GROUP BY window, k)",
    "as-of join": "SELECT l.counter, r.counter AS newest FROM numbers AS l ASOF JOIN others AS r"
    " ON l.counter % 3 = r.counter % 3 AND l.timestamp >= r.timestamp",
    "updating aggregate": "SELECT counter % 3 AS k, count(*) AS n, avg(counter) AS mean"
    " FROM numbers GROUP BY counter % 3",
    "aggregate by rows": "SELECT counter % 3 AS k, count(DISTINCT counter % 7) AS n"
    " FROM numbers GROUP BY counter % 3",
    "first rows": "SELECT counter, k FROM (SELECT counter, counter % 3 AS k, row_number() OVER"
    " (PARTITION BY counter % 3 ORDER BY counter DESC) AS place FROM numbers) WHERE place <= 2",
}
_EPOCHS = 24
_SETTLED = 16
"""Until here, epochs are of another shape: nothing closes, or compaction has not begun."""


@pytest.mark.parametrize("query", _QUERIES.values(), ids=_QUERIES.keys())
def test_a_warm_epoch_compiles_no_code(spark: SparkSession, tmp_path: Path, query: str) -> None:
    updating = "GROUP BY counter" in query or "row_number" in query
    sql = f"""
        CREATE TABLE numbers (counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL,
            WATERMARK FOR timestamp AS timestamp
        ) WITH (connector = 'impulse', type = 'source', message_count = '1000',
            event_time_interval = '1 second', start_time = '2024-01-01T00:00:00');
        CREATE TABLE others (counter BIGINT NOT NULL, timestamp TIMESTAMP NOT NULL,
            WATERMARK FOR timestamp AS timestamp
        ) WITH (connector = 'impulse', type = 'source', message_count = '1000',
            event_time_interval = '1 second', start_time = '2024-01-01T00:00:00');
        CREATE TABLE out WITH (connector = 'blackhole',
            format = '{"debezium_json" if updating else "json"}', type = 'sink');
        INSERT INTO out {query}"""
    # No merges: the first of them compiles its own code.
    job = Job(spark, tmp_path, sql, settings={"checkpoint.compact_files": "1000"})
    assert spark._jvm is not None
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    compiled = []
    for size in (20, 30):
        engine = job.open(Leg(size))
        for _ in range(_EPOCHS // 2):
            engine.run_epoch()
            compiled.append(metrics.METRIC_COMPILATION_TIME().getCount())
    assert len({*compiled[_SETTLED:]}) == 1, compiled
