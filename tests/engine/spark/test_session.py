"""The Spark session at its start, and the life cycle of its JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from resurgence.engine.spark import class_archive, java, jvm, temporary_files
from resurgence.engine.spark.session import session_conf, with_retries
from resurgence.engine.spark.temporary_files import sweep_temporary_directories
from resurgence.errors import ConfigError, ResurgenceError

JAVA_8 = 'java version "1.8.0_402"'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15'
JAVA_21 = 'openjdk version "21.0.8" 2025-07-15 LTS'


def _conf(**overrides: str) -> dict[str, str]:
    user = {key.replace("__", "."): value for key, value in overrides.items()}
    return session_conf(app_name="test", master="local[2]", shuffle_partitions=4, conf=user)


# --- settings


def test_our_settings_take_effect(spark: SparkSession) -> None:
    in_force = dict(spark.sparkContext.getConf().getAll())
    expected = session_conf(app_name="tests", master="local[2]", shuffle_partitions=4, conf={})
    assert {key: in_force.get(key) for key in expected} == expected
    assert spark.sparkContext.master == "local[2,2]"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.adaptive.enabled", "true"),
        ("spark.sql.session.timeZone", "Europe/Prague"),
        ("spark.shuffle.reduceLocality.enabled", "true"),
        ("spark.sql.execution.replaceHashWithSortAgg", "false"),
        ("spark.sql.shuffle.partitions", "8"),
    ],
)
def test_a_setting_that_would_cause_wrong_results_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        session_conf(app_name="test", master="local[2]", shuffle_partitions=4, conf={key: value})


def test_setting_a_fixed_value_explicitly_is_accepted() -> None:
    assert _conf(spark__sql__adaptive__enabled="FALSE")["spark.sql.adaptive.enabled"] == "false"


def test_settings_of_the_user_override_our_defaults() -> None:
    assert _conf()["spark.ui.enabled"] == "false"
    assert _conf(spark__ui__enabled="true")["spark.ui.enabled"] == "true"


def test_a_cluster_is_not_tied_to_the_loopback_address_and_does_not_wait_for_locality() -> None:
    cluster = session_conf(
        app_name="test", master="spark://host:7077", shuffle_partitions=4, conf={}
    )
    assert "spark.driver.host" not in cluster
    assert _conf()["spark.driver.host"] == "127.0.0.1"
    assert (_conf().get("spark.locality.wait"), cluster["spark.locality.wait"]) == (None, "0s")


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", "local[2,2]"),
        ("local[*]", "local[*,2]"),
        ("local[4,1]", "local[4,1]"),
        ("local", "local"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_gets_one_retry_unless_it_says_otherwise(master: str, expected: str) -> None:
    assert with_retries(master) == expected


# --- a running session


def test_python_workers_run_and_are_used_again(spark: SparkSession) -> None:
    def worker_pids(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "pid": [os.getpid()]})

    def job() -> tuple[int, set[int]]:
        answer = (
            spark.range(0, 100, 1, 2)
            .repartition(2)
            .mapInArrow(worker_pids, "rows long, pid long")
            .collect()
        )
        return sum(row.rows for row in answer), {row.pid for row in answer}

    answers = [job() for _ in range(8)]
    assert all(rows == 100 for rows, _ in answers)
    # Idle workers of earlier jobs are taken in any order; new ones for each task would be sixteen.
    assert len(set().union(*(pids for _, pids in answers))) < 16


def test_a_child_process_cannot_find_the_gateway(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ


# --- the JVM and the process above it

_PROGRAM = """
import json, os, sys, time
from pathlib import Path
from resurgence.engine.spark.session import attach, launch

jvm = launch(
    app_name="child", master="local[2]", memory="1g", shuffle_partitions=2, log_file=Path(sys.argv[1]),
    conf={"spark.note": " a=b: c\\\\d #e"},
)
# Others import it meanwhile: two threads amid its circular imports see half of it.
assert "pyspark" not in sys.modules
spark = attach(jvm)
spark.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
note = spark.conf.get("spark.note")
print(json.dumps({"jvm": jvm.pid, "directory": str(jvm.directory), "note": note}), flush=True)
if sys.argv[2] == "wait":
    time.sleep(300)
spark.stop()
jvm.close()
assert not jvm.is_alive()
"""


def _start_program(directory: Path, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(directory / "jvm.log"), then],
        cwd=directory,
        env=os.environ
        | {"PYTHONPATH": str(Path(jvm.__file__).parents[3]), "TMPDIR": tempfile.gettempdir()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_jvm_and_its_files_are_removed_when_its_parent_is_killed(tmp_path: Path) -> None:
    with _start_program(tmp_path, "wait") as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line, program.communicate()[1]
        started = json.loads(line)
        python_workers = _children(started["jvm"])
        assert python_workers
        assert _is_running(started["jvm"])
        program.send_signal(signal.SIGKILL)
    _wait_until(lambda: not _is_running(started["jvm"]))
    _wait_until(lambda: not any(_is_running(pid) for pid in python_workers))
    assert not Path(started["directory"]).exists()


def test_files_of_a_killed_jvm_are_deleted_by_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what another one still works in is not."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with _start_program(tmp_path, "wait") as program:
        assert program.stdout is not None
        started = json.loads(program.stdout.readline())
        directory = Path(started["directory"])
        assert directory.parent == tmp_path
        sweep_temporary_directories()
        assert any(directory.iterdir())
        program.send_signal(signal.SIGSTOP)
        os.kill(started["jvm"], signal.SIGKILL)
        program.send_signal(signal.SIGKILL)
    assert directory.exists()
    sweep_temporary_directories()
    assert not directory.exists()


def test_a_directory_that_is_being_created_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unlocked = Path(tempfile.mkdtemp(prefix=temporary_files._NOT_YET_LOCKED))
    sweep_temporary_directories()
    assert unlocked.exists()
    os.utime(unlocked, (0, 0))
    sweep_temporary_directories()
    assert not unlocked.exists()


def test_a_session_prints_nothing_and_leaves_no_files(tmp_path: Path) -> None:
    with _start_program(tmp_path, "stop") as program:
        out, err = program.communicate(timeout=120)
    assert program.returncode == 0, err
    assert err == ""
    assert json.loads(out)["note"] == "a=b: c\\d #e"
    assert not Path(json.loads(out)["directory"]).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["jvm.log"]


def test_a_jvm_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ResurgenceError, match="Invalid maximum heap size"):
        jvm.start_jvm(
            memory="plenty", conf={}, log_file=tmp_path / "jvm.log", class_data_archive=False
        )


def test_a_jvm_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    with pytest.raises(ResurgenceError, match=r"not ready within 0\.05 s"):
        jvm.start_jvm(
            memory="1g",
            conf={},
            log_file=tmp_path / "jvm.log",
            class_data_archive=False,
            deadline=timedelta(milliseconds=50),
        )
    _wait_until(lambda: not _children(os.getpid(), containing=str(tmp_path)))


# --- the archive of classes


@pytest.mark.parametrize("content", [b"", b"not an archive" * 1000])
def test_a_damaged_archive_does_not_prevent_the_start(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # Java says that it has read them.
    archive = class_archive.archive_path(java.find_java())
    archive.parent.mkdir()
    archive.write_bytes(content)
    process = jvm.start_jvm(
        memory="1g", conf={"spark.master": "local[1]"}, log_file=tmp_path / "jvm.log"
    )
    assert process.is_alive()
    process.close()
    assert not process.is_alive()
    assert (tmp_path / "jvm.log").read_text() == ""


def test_an_archive_that_kills_the_jvm_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    archive = class_archive.archive_path(java.find_java())
    archive.parent.mkdir()
    archive.write_bytes(b"x")
    start = jvm._start

    def start_unless_archived(
        found: java.Java, java_options: list[str], **arguments: object
    ) -> jvm.JvmProcess:
        if java_options:
            raise ResurgenceError("killed by the archive")
        return start(found, java_options, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(jvm, "_start", start_unless_archived)
    process = jvm.start_jvm(
        memory="1g", conf={"spark.master": "local[1]"}, log_file=tmp_path / "jvm.log"
    )
    process.close()
    assert not archive.exists()


@pytest.mark.parametrize("place", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "conf"])
def test_a_jvm_with_an_agent_does_without_the_archive(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path))
    archive = class_archive.archive_path(java.find_java())
    archive.parent.mkdir()
    archive.touch()
    used: list[list[str]] = []
    monkeypatch.setattr(jvm, "_start", lambda _java, options, **_: used.append([*options]))
    start = partial(jvm.start_jvm, memory="1g", log_file=tmp_path / "jvm.log")
    start(conf={})
    assert f"-XX:SharedArchiveFile={archive}" in used.pop()
    agent = "-javaagent:agent.jar"
    if place == "conf":
        start(conf={"spark.driver.extraJavaOptions": agent})
    else:
        monkeypatch.setenv(place, agent)
        start(conf={})
    assert used == [[]]


def test_a_failed_build_is_not_retried_within_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    archive = tmp_path / "resurgence" / "classes-0.jsa"
    class_archive.build_archive_in_background(archive)
    assert started[0][-2:] == ["--build-archive", str(archive)]
    class_archive.failure_log(archive).touch()
    class_archive.build_archive_in_background(archive)
    assert len(started) == 1
    os.utime(class_archive.failure_log(archive), (0, 0))
    class_archive.build_archive_in_background(archive)
    assert len(started) == 2


def test_a_failed_build_leaves_its_log_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_directory: Path, log_file: Path) -> Path:
        log_file.write_text("half a class\n")
        raise OSError("no room")

    monkeypatch.setattr(class_archive, "_archived_classes", fail)
    archive = tmp_path / "classes-0.jsa"
    (tmp_path / "building-by-one-that-was-killed").mkdir()
    assert not class_archive.build_archive(archive)
    (log_file,) = tmp_path.iterdir()
    assert log_file == class_archive.failure_log(archive)
    assert log_file.read_text().startswith("half a class")
    assert "no room" in log_file.read_text()


def test_only_one_process_builds_and_a_killed_one_releases_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes-0.jsa"
    program = (
        "import sys, time; from pathlib import Path; from resurgence.engine.spark import class_archive\n"
        "class_archive._build = lambda *_: (print('building', flush=True), time.sleep(60))\n"
        "class_archive.build_archive(Path(sys.argv[1]))"
    )
    monkeypatch.setattr(class_archive, "_PROBED_WITHIN", timedelta(0))
    built: list[Path] = []
    monkeypatch.setattr(class_archive, "_build", lambda archive, _: built.append(archive))
    with subprocess.Popen(
        [sys.executable, "-c", program, str(archive)],
        env=os.environ | {"PYTHONPATH": str(Path(jvm.__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
    ) as builder:
        assert builder.stdout is not None
        assert builder.stdout.readline() == "building\n"
        assert class_archive.is_being_built(archive)
        class_archive.build_archive(archive)
        assert not built
        builder.kill()
    assert not class_archive.is_being_built(archive)
    class_archive.build_archive(archive)
    assert built == [archive]
    assert not list(tmp_path.iterdir())


def test_the_process_that_builds_survives_the_group_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_BUILDERS", [])
    class_archive.build_archive_in_background(tmp_path / "classes-0.jsa")
    (builder,) = class_archive._BUILDERS
    assert os.getsid(builder.pid) == builder.pid
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait(10)


def test_an_unwritable_cache_does_not_prevent_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    class_archive.build_archive_in_background(tmp_path / "file" / "classes-0.jsa")


@pytest.mark.long
def test_a_built_archive_is_used(tmp_path: Path) -> None:
    archive = tmp_path / "classes-0.jsa"
    command = [sys.executable, "-m", class_archive.__name__, "--build-archive", str(archive)]
    subprocess.run(
        command, check=True, env=os.environ | {"PYTHONPATH": str(Path(jvm.__file__).parents[3])}
    )
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    options = [f"-XX:SharedArchiveFile={archive}", "-Xshare:on"]
    process = jvm._start(
        java.find_java(),
        options,
        memory="1g",
        conf={},
        log_file=tmp_path / "jvm.log",
        deadline=timedelta(minutes=1),
    )
    process.close()


# --- which Java


def test_java_is_searched_in_java_home_then_on_the_path_then_in_the_bundled_one() -> None:
    assert java.java_candidates("/home", "/path/java", "/bundled/java") == [
        "/home/bin/java",
        "/path/java",
        "/bundled/java",
    ]
    assert java.java_candidates(None, "/path/java", None) == ["/path/java"]
    assert java.java_candidates("", None, None) == []


def test_the_first_java_that_is_new_enough_is_chosen() -> None:
    versions = {"home": JAVA_8, "broken": None, "path": JAVA_17, "bundled": JAVA_21}
    assert java.choose_java(versions, versions.get) == java.Java("path", JAVA_17)
    assert java.choose_java(["bundled", "path"], versions.get) == java.Java("bundled", JAVA_21)


def test_without_java_the_error_names_what_was_found_and_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"1\.8\.0_402") as old:
        java.choose_java(["java"], lambda _: JAVA_8)
    assert "resurgence[java]" in old.value.hint
    with pytest.raises(ConfigError, match="found none"):
        java.choose_java([], lambda _: None)


@pytest.mark.parametrize(
    ("version", "major"), [(JAVA_8, 8), (JAVA_17, 17), (JAVA_21, 21), ("nonsense", 0)]
)
def test_the_major_version_is_read(version: str, major: int) -> None:
    assert java.major_version(version) == major


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(str(tmp_path / "java")) is None
    assert java.java_version("/bin/false") is None


def _wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    status = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout
    return bool(status) and not status.startswith("Z")


def _children(pid: int, containing: str = "") -> list[int]:
    lines = subprocess.run(
        ["ps", "-A", "-o", "ppid=,pid=,args="], capture_output=True, text=True
    ).stdout
    fields = [line.split(maxsplit=2) for line in lines.splitlines()]
    return [int(each[1]) for each in fields if int(each[0]) == pid and containing in each[2]]
