"""Every row of the table in docs/errors.md, provoked for real.

Failures that would end the shared session happen in separate processes: `python -m
tests.engine.spark.test_failure_table SCENE` starts Spark, makes it fail, and prints the report.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from resurgence import errors
from resurgence.config import settings_from
from resurgence.connectors.contract import CoveredInput, SourceSpan, StagedOutput
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.formats.json.writer import JsonSinkOptions
from resurgence.connectors.registry import CONNECTORS
from resurgence.connectors.single_file import (
    SingleFileSink,
    SingleFileSinkOptions,
    SingleFileSource,
    SingleFileSourceOptions,
)
from resurgence.engine.functions.user_functions import register_functions
from resurgence.engine.spark.errors import gone, translate
from resurgence.engine.spark.session import start_session
from resurgence.errors import MessageRefused, OutOfMemory, ResurgenceError, SourceError, SparkGone
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.spark_tasks import ArrowFunction
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import read_bins
from resurgence.udf import load_functions
from tests.engine.connectors.delta_tables import Target
from tests.engine.harness import Job, sink_table, source_table, write_lines

ROOT = Path(__file__).parents[3]
SCENE_SECONDS = 120.0
FUNCTIONS = """
import os
import signal
import sys

from resurgence import udf


@udf
def raises(number: int) -> int:
    return _raised(number)


def _raised(number: int) -> int:
    raise ValueError(f"cannot take {number}")


@udf
def exits(number: int) -> int:
    sys.exit(3)


@udf
def mistakes(number: int) -> int:
    return f"number {number}"


@udf
def swells(number: int) -> int:
    return len(bytearray(1 << 62))


@udf
def crashes(number: int) -> int:
    os.kill(os.getpid(), signal.SIGSEGV)
    return number


@udf
def is_killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


@udf(timeout="50 ms")
async def waits(number: int) -> int:
    import asyncio

    await asyncio.Event().wait()
"""
DROP_RIGHTS = 65534


@dataclass(frozen=True)
class Report:
    """What of an error is reported."""

    code: str
    domain: str
    retry_hint: str
    message: str
    hint: str
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Report:
        reported = translate(error)
        return cls(
            reported.code,
            reported.domain,
            reported.retry_hint,
            reported.message,
            reported.hint,
            reported.traceback,
        )


@dataclass
class Workspace:
    """Where things fail."""

    spark: SparkSession
    folder: Path
    scenes: dict[str, subprocess.Popen[str]]
    heard: dict[str, dict[str, Report]] = field(default_factory=dict)

    def function(self, name: str) -> None:
        """Call one of the functions with 7."""
        path = self.folder / "functions.py"
        path.write_text(FUNCTIONS)
        register_functions(self.spark, load_functions(path))
        self.spark.range(7, 8, 1, 1).selectExpr(f"resurgence_udf_{name}(id)").collect()

    def task(self, function: ArrowFunction) -> None:
        """Run it in a Spark task."""
        self.spark.range(0, 2, 1, 1).mapInArrow(function, "id LONG").collect()

    def expression(self, sql: str) -> None:
        self.spark.range(0, 2, 1, 1).selectExpr(sql).collect()

    def scene(self, name: str, what: str) -> Report:
        """What a process of its own reported."""
        if name not in self.heard:
            out, err = self.scenes[name].communicate(timeout=SCENE_SECONDS)
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            assert self.scenes[name].returncode == 0, err
            self.heard[name] = {each.pop("what"): Report(**each) for each in lines}
        return self.heard[name][what]


@dataclass(frozen=True)
class Case:
    """How a row of the table is made to happen, and what its message says."""

    happen: Callable[[Workspace], Report | None]
    """Raises the real exception, or brings what another process reported."""
    says: str


CASES: dict[str, Case] = {}


def case(what: str, says: str) -> Callable[[Callable[[Workspace], Report | None]], None]:
    def add(happen: Callable[[Workspace], Report | None]) -> None:
        CASES[what] = Case(happen, says)

    return add


# -------------------------------------------------------------------- the user's


@case("the SQL text is wrong", "SELEC")
def _(workspace: Workspace) -> None:
    compile_pipeline("SELEC 1", CONNECTORS, {})


@case("a setting is wrong", "pipeline.paralelism")
def _(workspace: Workspace) -> None:
    settings_from({"pipeline.paralelism": "2"})


@case("Spark refuses the query", "^Spark rejected the query: .*no_such_column")
def _(workspace: Workspace) -> None:
    workspace.expression("no_such_column + 1")


@case("an expression cannot take a value", "CAST_INVALID_INPUT.*No space left on device")
def _(workspace: Workspace) -> None:
    # A value may say anything; it is still the value that is wrong.
    workspace.expression("CAST(concat('No space left on device', id) AS INT)")


@case("the query calls raise_error", "USER_RAISED_EXCEPTION.*java.lang.OutOfMemoryError")
def _(workspace: Workspace) -> None:
    workspace.expression("raise_error(concat('java.lang.OutOfMemoryError', id))")


@case(
    "a Python function raises",
    r"^function raises\(7\) failed: ValueError: cannot take 7 \(functions.py, line 15: raise ",
)
def _(workspace: Workspace) -> None:
    workspace.function("raises")


@case("a Python function exits", r"^function exits\(7\) failed: SystemExit: 3 \(functions.py, line")
def _(workspace: Workspace) -> None:
    workspace.function("exits")


@case(
    "an async function gives no answer in time",
    r"^function waits\(7\) timed out after 0.05 s$",
)
def _(workspace: Workspace) -> None:
    workspace.function("waits")


@case(
    "a Python function returns a value of another type",
    r"^function mistakes\(7\) returned 'number 7' of type str, expected BIGINT$",
)
def _(workspace: Workspace) -> None:
    workspace.function("mistakes")


@case("a Python function runs out of memory", r"^function swells\(7\) failed: MemoryError \(func")
def _(workspace: Workspace) -> None:
    workspace.function("swells")


@case("a Python function crashes in native code", "crashed in function crashes: Segmentation fault")
def _(workspace: Workspace) -> None:
    workspace.function("crashes")


@case("a Python process of a task is killed", "was killed, most likely because memory ran out$")
def _(workspace: Workspace) -> None:
    workspace.function("is_killed")


# -------------------------------------------------------------------- connectors


@case("a record of the input cannot be read", "events.json, line 2, column .*: 'id' is not a INT")
def _(workspace: Workspace) -> None:
    path = write_lines(workspace.folder / "events.json", [{"id": 1}, {"id": "x"}])
    sql = source_table(path, "id INT", delay=None) + sink_table(
        workspace.folder / "out", name="out"
    )
    Job(workspace.spark, workspace.folder, sql + "INSERT INTO out SELECT id FROM events").run()


@case(
    "an epoch has too many dead letters",
    "more than 1 dead letters.*at least 2.*events.json, line 1",
)
def _(workspace: Workspace) -> None:
    path = write_lines(workspace.folder / "events.json", [{"id": "x"}, {"id": "y"}])
    sql = source_table(path, "id INT", delay=None, more=", bad_data = 'dead_letter'")
    sql += sink_table(workspace.folder / "out", name="out")
    sql += "INSERT INTO out SELECT id FROM events"
    settings = {"pipeline.max_dead_letters": "1"}
    Job(workspace.spark, workspace.folder, sql, settings=settings, name="dead").run()


def source_of(path: Path) -> SingleFileSource:
    return SingleFileSource(SingleFileSourceOptions.read({"path": str(path)}), JsonLineReader(()))


def sink_of(path: Path) -> SingleFileSink:
    return SingleFileSink(
        SingleFileSinkOptions.read({"path": str(path)}), WriteSettings(JsonSinkOptions())
    )


@case("a source file is not there", "nowhere.json does not exist")
def _(workspace: Workspace) -> None:
    source_of(workspace.folder / "nowhere.json").check()


@case("a source cannot be read", "^the broker is away\nas it seems$")
def _(workspace: Workspace) -> None:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from ()
            raise KeyError("broker")
        except KeyError as error:
            raise SourceError("the broker is away\nas it seems", hint="start it") from error

    workspace.task(read)


@case("a source lost input that an epoch has recorded", "but the job has read 400")
def _(workspace: Workspace) -> None:
    path = write_lines(workspace.folder / "short.json", [{"id": 1}])
    source = source_of(path)
    source.plan({"line": 9, "byte": 400}, 10, datetime.now(UTC))


@case("staged output was removed", "staged output .* of .*sink.json is missing")
def _(workspace: Workspace) -> None:
    sink = sink_of(workspace.folder / "sink.json")
    job, rows = JobIdentity("j" * 8), workspace.spark.range(1)
    staged = sink.stage(rows, job, Epoch(1), Generation(1))
    sink.discard(staged)
    sink.commit(workspace.spark, job, Epoch(1), staged, CoveredInput(sources={}))


@case(
    "a data file of an updated table is missing",
    r"parquet is part of the table that is updated, but does not exist",
)
def _(workspace: Workspace) -> None:
    target = Target(
        workspace.spark,
        f"file://{workspace.folder}/updated",
        f"file://{workspace.folder}/updating",
    )
    target.upsert(1, (1, "a", 1))
    for each in (workspace.folder / "updated").rglob("*.parquet"):
        each.unlink()
    target.upsert(2, (1, "a", -1))


@case("a sink refuses a row", "topic 'out' refuses a message of 12 bytes")
def _(workspace: Workspace) -> None:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise MessageRefused(
            "topic 'out' refuses a message of 12 bytes", hint="raise it", position="row 3"
        )

    workspace.task(write)


@case("a sink holds an epoch over other input", "sink.json holds epoch 1 over other input")
def _(workspace: Workspace) -> None:
    sink = sink_of(workspace.folder / "sink.json")
    for end in (1000, 1500):
        span = SourceSpan(start={"line": 0}, end={"line": end})
        covered = CoveredInput(sources={OperatorId("source-in"): span})
        sink.commit(workspace.spark, JobIdentity("k" * 8), Epoch(1), StagedOutput(), covered)


@case("a system around us does not answer", "^ConnectionRefusedError: .*Connection refused$")
def _(workspace: Workspace) -> None:
    def connect(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = free.getsockname()
        socket.create_connection(address, timeout=10)
        yield from batches

    workspace.task(connect)


# -------------------------------------------------------------------- storage


@case("an object is missing", "/nothing: it does not exist$")
def _(workspace: Workspace) -> None:
    ObjectStore(f"file://{workspace.folder}/store").read("nothing")


@case("an object store denies access", "^cannot read s3://bucket/state/x: .*privileges")
def _(workspace: Workspace) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    aws = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "word",
        "AWS_REGION": "here",
    }

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in aws.items():
                patch.setenv(name, value)
            ObjectStore("s3://bucket/state").read("x")
        yield from batches

    try:
        workspace.task(read)
    finally:
        server.shutdown()
        server.server_close()


class Forbidding(BaseHTTPRequestHandler):
    """An object store that denies access."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@case("a file may not be written", "^PermissionError: .*Permission denied: ")
def _(workspace: Workspace) -> None:
    path = workspace.folder / "locked"
    path.touch(mode=0o400)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = os.geteuid()
        if before == 0:
            os.seteuid(DROP_RIGHTS)
        try:
            path.write_text("x")
        finally:
            os.seteuid(before)
        yield from batches

    workspace.task(write)


@case("a task finds the disk full", r"^OSError: \[Errno 28\] No space left on device")
def _(workspace: Workspace) -> None:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Path("/dev/full").open("wb", buffering=0) as full:
            full.write(b"x")
        yield from batches

    workspace.task(write)


@case("Spark finds the disk full", "^No space left on device$")
def _(workspace: Workspace) -> None:
    assert workspace.spark._jvm is not None
    workspace.spark._jvm.java.io.FileOutputStream("/dev/full").write(1)


@case("storage fails in another way", "Not a directory")
def _(workspace: Workspace) -> None:
    (workspace.folder / "file").touch()
    ObjectStore(f"file://{workspace.folder}").create("file/object", b"x")


@case("a state file is damaged", "^state file table/a.parquet has 4 bytes instead of 5$")
def _(workspace: Workspace) -> None:
    url = f"file://{workspace.folder}/damaged"
    ObjectStore(url).create("table/a.parquet", b"PAR1")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from read_bins(ObjectStore(url), "table/a.parquet", 5, "", "bin", 0, 1)

    workspace.task(read)


# -------------------------------------------------------------------- Arrow, Python, the JVM


@case("Arrow refuses data", "^ArrowInvalid: Could not convert 'x' with type str")
def _(workspace: Workspace) -> None:
    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([1, "x"])], ["id"])

    workspace.task(convert)


@case("our part of a task runs out of memory", "^Python ran out of memory: ArrowMemoryError: mal")
def _(workspace: Workspace) -> None:
    def allocate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.allocate_buffer(1 << 62)
        yield from batches

    workspace.task(allocate)


@case("Spark cannot get the memory that an operator needs", "Unable to acquire 4294967296 bytes")
def _(workspace: Workspace) -> None:
    assert workspace.spark._jvm is not None
    spark = workspace.spark._jvm.org.apache.spark
    conf = workspace.spark.sparkContext._jsc.sc().conf()
    pool = spark.memory.TaskMemoryManager(spark.memory.UnifiedMemoryManager.apply(conf, 1), 0)
    spark.unsafe.map.BytesToBytesMap(pool, 1 << 28, 1 << 26)


@case("a Spark job is cancelled from outside", "SPARK_JOB_CANCELLED")
def _(workspace: Workspace) -> None:
    context = workspace.spark.sparkContext
    done = threading.Event()

    def cancel() -> None:
        while not done.wait(0.05):
            context.cancelAllJobs()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        workspace.spark.range(10**14).count()
    finally:
        done.set()
        canceller.join()


@case("our part of a task has a defect", "^LookupError: no such thing$")
def _(workspace: Workspace) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise LookupError("no such thing\nand more of it")
        yield

    workspace.task(fail)


# -------------------------------------------------------------------- in processes of their own


@case("a call of the driver runs out of heap", "^Spark ran out of memory: Java heap space$")
def _(workspace: Workspace) -> Report:
    return workspace.scene("heap", "driver")


@case("a task runs out of heap", "^the JVM that runs Spark ran out of memory$")
def _(workspace: Workspace) -> Report:
    # Spark may have shut down before it could say why.
    assert workspace.scene("heap", "at once").code in {SparkGone.code, OutOfMemory.code}
    return workspace.scene("heap", "by its exit status")


@case("an executor runs out of heap", "^Spark ran out of memory: .*(Java heap space|code 52)$")
def _(workspace: Workspace) -> Report:
    return workspace.scene("cluster", "heap")


@case("the JVM is killed", "^the JVM that runs Spark was killed by signal 9$")
def _(workspace: Workspace) -> Report:
    assert workspace.scene("cluster", "at once").code == SparkGone.code
    assert workspace.scene("cluster", "later").code == SparkGone.code
    return workspace.scene("cluster", "by its exit status")


@case("an executor is lost", "^ExecutorLostFailure .*Command exited with code 137$")
def _(workspace: Workspace) -> Report:
    return workspace.scene("cluster", "lost")


@case("tasks send too much to the driver", r"is bigger than spark\.driver\.maxResultSize")
def _(workspace: Workspace) -> Report:
    return workspace.scene("heap", "results")


# -------------------------------------------------------------------- the tests


@pytest.fixture(scope="module")
def scenes() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """They run beside the other tests of this module."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.engine.spark.test_failure_table", name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in SCENES
    }
    yield running
    for each in running.values():
        each.kill()
        each.communicate()


@pytest.fixture(scope="module")
def workspace(
    spark: SparkSession,
    scenes: dict[str, subprocess.Popen[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Workspace:
    return Workspace(spark, tmp_path_factory.mktemp("failures"), scenes)


def rows_under(heading: str) -> list[list[str]]:
    """The rows of the table under a heading of the docs."""
    text = (ROOT / "docs/errors.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in row] for row in rows[1:]]


TABLE = {row[0]: row[1:] for row in rows_under("What can happen")}


def test_every_row_of_the_table_is_tested_and_every_test_has_its_row() -> None:
    assert set(TABLE) == set(CASES)


@pytest.mark.parametrize("what", CASES)
def test_a_failure_is_reported_as_the_table_says(workspace: Workspace, what: str) -> None:
    code, domain, retry_hint, _advice = TABLE[what]
    reported = happened(workspace, what)
    assert (reported.code, reported.domain, reported.retry_hint) == (code, domain, retry_hint), (
        reported
    )
    assert re.search(CASES[what].says, reported.message, re.DOTALL), reported.message
    assert reported.hint or reported.code in {"sql", "storage.missing", "query", "state.damaged"}


def test_the_traceback_of_a_function_has_the_users_frames_only(workspace: Workspace) -> None:
    path = workspace.folder / "functions.py"
    assert happened(workspace, "a Python function raises").traceback == (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 11, in raises\n'
        "    return _raised(number)\n"
        f'  File "{path}", line 15, in _raised\n'
        '    raise ValueError(f"cannot take {number}")\n'
        "ValueError: cannot take 7"
    )
    assert happened(workspace, "a Python function crashes in native code").traceback == (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 35, in crashes\n'
        "Segmentation fault"
    )


def test_every_code_is_in_the_docs_with_its_domain_and_retry_hint() -> None:
    reported = {row[1]: row[2:4] for row in rows_under("What can happen")}
    reported |= {row[0]: row[1:3] for row in rows_under("Other codes")}
    kinds = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, ResurgenceError)
    ]
    assert reported == {each.code: [each.domain, each.retry_hint] for each in kinds}


def happened(workspace: Workspace, what: str) -> Report:
    try:
        reported = CASES[what].happen(workspace)
    except AssertionError:
        raise
    except Exception as error:
        return Report.of(error)
    assert reported is not None, f"nothing failed: {what}"
    return reported


# -------------------------------------------------------------------- those processes


def report(what: str, failing: Callable[[], object]) -> None:
    try:
        failing()
    except Exception as error:
        print(json.dumps({"what": what, **vars(Report.of(error))}), flush=True)
        return
    raise AssertionError(f"nothing failed: {what}")


def raise_gone(status: int) -> None:
    raise gone(status)


def begin(
    master: str, memory: str, conf: dict[str, str]
) -> tuple[SparkSession, subprocess.Popen[bytes]]:
    spark, jvm = start_session(
        app_name="failing",
        master=master,
        memory=memory,
        shuffle_partitions=2,
        conf=conf,
        log_file=Path(os.devnull),
    )
    return spark, jvm._process


def run_out_of_heap() -> None:
    spark, jvm = begin("local[1]", "512m", {"spark.driver.maxResultSize": "1m"})
    report("results", lambda: spark.range(0, 200_000, 1, 1).selectExpr("uuid()").collect())
    assert spark._jvm is not None
    copies = spark._jvm.java.util.Collections.nCopies(500_000_000, "x")
    report("driver", copies.toArray)
    too_long = spark.range(0, 1, 1, 1).selectExpr("length(repeat('x', 2000000000 + INT(id)))")
    report("at once", too_long.collect)
    status = jvm.wait(30)
    report("by its exit status", lambda: raise_gone(status))


def lose_processes() -> None:
    import pyspark

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_SCALA_VERSION"] = "2.13"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    conf = {
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.driver.host": "127.0.0.1",
    }
    spark, jvm = begin("local-cluster[1,1,512]", "512m", conf)

    def kill_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The parent of this process is Spark's daemon; the executor is the parent of that.
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
        time.sleep(60)
        yield from batches

    one = spark.range(0, 1, 1, 1)
    report("lost", one.mapInArrow(kill_executor, "id LONG").collect)
    report("heap", one.selectExpr("length(repeat('x', 2000000000 + INT(id)))").collect)
    threading.Timer(0.5, lambda: os.kill(jvm.pid, signal.SIGKILL)).start()
    report("at once", lambda: spark.range(10**14).count())
    report("later", lambda: spark.range(3).count())
    status = jvm.wait(30)
    report("by its exit status", lambda: raise_gone(status))


SCENES = {"heap": run_out_of_heap, "cluster": lose_processes}


if __name__ == "__main__":
    SCENES[sys.argv[1]]()
    sys.stdout.flush()
    os._exit(0)
