"""The Spark session of a worker: its settings, ours and the user's, and its start.

`jvm` starts and ends the JVM below it. PySpark is imported only after the JVM has been launched, so
that both load in parallel.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from resurgence.engine.spark.jvm import START_WITHIN, JvmProcess, start_jvm
from resurgence.engine.spark.master import is_local, is_on_loopback, require_reachable
from resurgence.errors import ClusterUnavailable, ConfigError, ResurgenceError, SparkGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql import SparkSession

_FIXED = {
    # It would change the number of subtasks of a stateful operator.
    "spark.sql.adaptive.enabled": "false",
    # Event time is compared, binned and stored in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Coalesce must merge adjacent shuffle partitions: a subtask is a range of key hashes.
    "spark.shuffle.reduceLocality.enabled": "false",
    # Over rows in the order of their groups, aggregate without a hash map: it would be spilled and
    # merged above some size, which adds floating-point numbers in another order.
    "spark.sql.execution.replaceHashWithSortAgg": "true",
}

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    # Faster than TCP for small mapInArrow jobs.
    "spark.python.unix.domain.socket.enabled": "true",
    # Bound batches to Python by rows alone: to bound bytes as well, Spark sums the sizes of all
    # columns after every single row.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # A closing window is a union of its subtasks, each of which must stay a task: Spark would merge
    # single partitions into one.
    "spark.sql.unionOutputPartitioning": "false",
    # Lists and sets of many groups: above this limit Spark sorts instead, and adds numbers in
    # another order than when it computed the row that it must retract.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    # Aggregates over many groups: use the generated hash map on both sides of the shuffle, for up
    # to a million groups before it falls back to the slower one.
    "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
    # Java interprets larger methods for every row instead of compiling them. For such a plan Spark
    # generates smaller ones, without whole-stage code.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A pipeline of many queries has more generated classes than Spark's default of a hundred, and
    # would recompile them in every epoch.
    "spark.sql.codegen.cache.maxEntries": "1000",
}

_FREQUENT_CLASSES = ("PythonUtils", "SimplePythonFunction", "functions", "PythonRDD", "SerDeUtil")
"""JVM classes that PySpark uses for nearly every column and table. Py4J resolves them anew each
time, and the JVM then searches all jars for a class of that name in each imported package.
"""

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""For masters on this machine, which must not depend on whether the machine's name resolves."""
_LOCAL = {"spark.python.daemon.module": "resurgence.engine.spark.python_daemon"}
"""For local masters, whose Python workers are children of this process."""
_CLUSTER = {
    # No executor is nearer to an object store than another one. Spark would let a task of a small
    # epoch wait for seconds until the executor that cached a block is free.
    "spark.locality.wait": "0s",
}
"""For other masters."""


def start_session(
    *,
    app_name: str,
    master: str,
    memory: str,
    shuffle_partitions: int,
    conf: Mapping[str, str],
    log_file: Path,
    class_data_archive: bool = True,
    java_options: Sequence[str] = (),
    deadline: timedelta = START_WITHIN,
) -> tuple[SparkSession, JvmProcess]:
    """Start Spark as a child of this process, which may have one session at a time.

    To end it, stop the session, then close the JVM. The output of Spark and its Python workers is
    appended to `log_file`. `conf` overrides our settings. Raise ConfigError for a setting that
    would make results wrong.
    """
    jvm = launch(
        app_name=app_name,
        master=master,
        memory=memory,
        conf=conf,
        log_file=log_file,
        shuffle_partitions=shuffle_partitions,
        class_data_archive=class_data_archive,
        java_options=java_options,
        deadline=deadline,
    )
    return attach(jvm), jvm


def launch(
    *,
    app_name: str,
    master: str,
    memory: str,
    conf: Mapping[str, str],
    log_file: Path,
    shuffle_partitions: int = 2,
    class_data_archive: bool = True,
    java_options: Sequence[str] = (),
    deadline: timedelta = START_WITHIN,
) -> JvmProcess:
    """Start the JVM with all settings of the session. This is the first half of a start. The
    number of shuffle partitions can be changed later.
    """
    settings = session_conf(
        app_name=app_name, master=master, shuffle_partitions=shuffle_partitions, conf=conf
    )
    _set_environment(master, settings.get("spark.pyspark.python"))
    return start_jvm(
        memory=memory,
        conf=settings,
        log_file=log_file,
        class_data_archive=class_data_archive,
        java_options=java_options,
        deadline=deadline,
    )


def attach(jvm: JvmProcess) -> SparkSession:
    """Open the session in a launched JVM. This is the second half of a start. On a cluster, the
    caller has a deadline for it.
    """
    try:
        require_reachable(jvm.master)
        spark = _connect(jvm)
        if not is_local(jvm.master):
            # Imported here, as it imports PySpark.
            from resurgence.engine.spark.shipped_packages import ship_packages

            ship_packages(spark, jvm.directory)
        return spark
    except BaseException as error:
        # The JVM holds the text of the error.
        refused = _refused(jvm, error)
        jvm.close(patience=timedelta(0))
        if refused is not None:
            raise refused from error
        raise


def _refused(jvm: JvmProcess, error: BaseException) -> ClusterUnavailable | None:
    """Return the error of a cluster on which Spark could not start; None if it is another one."""
    if not isinstance(error, Exception) or isinstance(error, ResurgenceError):
        return None
    if is_local(jvm.master) or not jvm.is_alive():
        return None
    from resurgence.engine.spark.errors import translate

    failure = translate(error)
    reason = "it ended the application" if isinstance(failure, SparkGone) else failure.message
    return ClusterUnavailable(
        f"Spark could not start on {jvm.master}: {reason}",
        hint="Check the logs of the Spark master, its workers and the executors. The job will"
        " retry.",
    )


def session_conf(
    *, app_name: str, master: str, shuffle_partitions: int, conf: Mapping[str, str]
) -> dict[str, str]:
    """Return all settings of a session: ours, overridden by the user's."""
    fixed = _FIXED | {"spark.sql.shuffle.partitions": str(shuffle_partitions)}
    for key, value in fixed.items():
        if conf.get(key, value).lower() != value.lower():
            raise ConfigError(
                f"{key} must be {value}, not {conf[key]}",
                hint="Remove the setting. It would make results wrong.",
            )
    named = {"spark.app.name": app_name, "spark.master": with_retries(master)}
    ours = _DEFAULTS | (_LOCAL if is_local(master) else _CLUSTER)
    if is_on_loopback(master):
        ours = ours | _LOOPBACK
    return ours | named | dict(conf) | fixed


def with_retries(master: str) -> str:
    """Let a local master retry a failed task once; by default it does not. A cluster retries it
    three times (`spark.task.maxFailures`).
    """
    return re.sub(r"^local\[(\d+|\*)\]$", r"local[\1,2]", master)


def _set_environment(master: str, executor_python: str | None) -> None:
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif executor_python:
        os.environ["PYSPARK_PYTHON"] = executor_python
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_on_loopback(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    for connect in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"):
        os.environ.pop(connect, None)


def _connect(jvm: JvmProcess) -> SparkSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:
            raise ResurgenceError("a Spark session is already running in this process")
        # PySpark caches the gateway of a stopped session, whose JVM has ended.
        SparkContext._gateway = None
        SparkContext._jvm = None
        os.environ["PYSPARK_GATEWAY_PORT"] = str(jvm.gateway.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = jvm.gateway.secret
        try:
            SparkContext._ensure_initialized()
            threading.Thread(target=_load_parser, daemon=True).start()
            spark = SparkSession.builder.getOrCreate()
        finally:
            # A child process must not be able to connect to this JVM.
            del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        gateway = SparkContext._jvm
        assert gateway is not None
        directory = gateway.java.io.File(str(jvm.directory))
        gateway.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(directory)
        for name in _FREQUENT_CLASSES:
            setattr(gateway, name, getattr(gateway, name))
        return spark


def _load_parser() -> None:
    """Load Spark's SQL parser, which is large and slow, while the context starts."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception):
        package = SparkContext._jvm.org.apache.spark.sql.catalyst.parser  # type: ignore[union-attr]
        parser = getattr(getattr(package, "CatalystSqlParser$"), "MODULE$")
        parser.parsePlan("SELECT a, count(*) AS n FROM t JOIN u ON a = b WHERE c > 1 GROUP BY a")


def run_typical_job(log_file: Path, java_options: Sequence[str], deadline: timedelta) -> None:
    """Load the classes that nearly every epoch needs, for the class archive. `deadline` bounds the
    start.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    spark, jvm = start_session(
        app_name="class-data archive",
        master="local[2]",
        memory="1g",
        shuffle_partitions=4,
        conf={},
        log_file=log_file,
        class_data_archive=False,
        java_options=java_options,
        deadline=deadline,
    )
    schema = "key string, amount double, at timestamp"
    text = F.to_json(
        F.struct(
            F.concat(F.lit("key"), F.col("id") % 7).alias("key"),
            (F.col("id") / 3).alias("amount"),
            F.timestamp_micros(F.col("id") * 1000).alias("at"),
        )
    )
    observation = Observation()
    rows = spark.range(0, 1000, 1, 2).select(F.from_json(text, schema).alias("row")).select("row.*")
    rows = rows.observe(observation, F.count(F.lit(1)).alias("rows"), F.max("at").alias("latest"))
    sums = (
        rows.where("amount > 1 and key is not null")
        .groupBy("key", F.window("at", "10 seconds").alias("window"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.sum("amount").alias("sum"),
            F.max("at").alias("latest"),
        )
    )
    joined = sums.join(
        sums.withColumnRenamed("count", "other"), ["key", "window"], "left"
    ).coalesce(2)
    joined.select("key", "count", "other").mapInArrow(
        _copy, "key string, count long, other long"
    ).collect()
    _ = observation.get
    spark.createDataFrame([("a", 1)], "key string, count long").unionByName(
        sums.select("key", "count")
    ).toArrow()
    spark.stop()
    jvm.close(patience=timedelta(minutes=1))


def _copy(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    yield from batches
