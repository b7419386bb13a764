"""The cache of jars: complete or absent, downloaded once, with a stand-in for the repository."""

from __future__ import annotations

import fcntl
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.stand_ins.ivy import CALLS, REPOSITORY, make_java_home

from resurgence.engine.spark import connector_jars, jar_resolver
from resurgence.engine.spark.connector_jars import (
    folder_of,
    install,
    installed,
    may_download,
    provide,
    ready_jars,
    serves,
    with_jars,
)
from resurgence.errors import JarsInvalid, JarsUnavailable, RetryHint

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
CLIENTS = "org.apache.kafka:kafka-clients"
POOL = "org.apache.commons:commons-pool2"


@dataclass
class Repository:
    """What is published, and how the repository behaves."""

    folder: Path
    published: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    def store(self, **behaviour: bool) -> None:
        content: dict[str, Any] = {"published": self.published, **behaviour}
        # At once: another process may be reading it.
        written = self.folder / "repository.new"
        written.write_text(json.dumps(content))
        written.replace(self.folder / "repository.json")

    def calls(self) -> list[str]:
        file = self.folder / CALLS
        return file.read_text().split() if file.exists() else []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(make_java_home(tmp_path)))
    monkeypatch.setenv(REPOSITORY, str(tmp_path / "repository.json"))
    monkeypatch.setattr(connector_jars, "spark_version", lambda: "4.3.0")
    requires = {TOKENS: "4.3.0", CLIENTS: "3.9.2", POOL: "2.13.1"}
    made = Repository(
        tmp_path,
        {
            CONNECTOR: {"4.3.0": requires, "4.4.0": requires},
            TOKENS: {"4.3.0": {}},
            CLIENTS: {"3.9.2": {}},
            POOL: {"2.13.1": {}},
        },
    )
    made.store()
    return made


def _names(paths: tuple[Path, ...]) -> list[str]:
    return [each.name for each in paths]


def test_a_set_is_downloaded_once(repository: Repository) -> None:
    lines: list[str] = []
    assert may_download(["kafka"], "")
    first = provide(["kafka"], "", lines.append)
    assert _names(first) == [
        "spark-sql-kafka-0-10_2.13-4.3.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.3.0.jar",
        "kafka-clients-3.9.2.jar",
        "commons-pool2-2.13.1.jar",
    ]
    assert all(each.is_file() for each in first)
    assert len(lines) == 2
    assert lines[0].startswith("downloading the jars for kafka")
    calls = repository.calls()
    assert provide(["kafka"], "", lines.append) == first
    assert not may_download(["kafka"], "")
    assert repository.calls() == calls
    assert len(lines) == 2


def test_a_version_that_is_not_published_is_replaced_by_an_older_release(
    repository: Repository,
) -> None:
    requires = {TOKENS: "4.2.0", CLIENTS: "3.9.2", POOL: "2.13.1"}
    repository.published |= {
        CONNECTOR: {"4.2.0": requires, "3.5.1": {}, "4.4.0": {}},
        TOKENS: {"4.1.0-preview2": {}, "4.1.0-preview1": {}, "4.0.0": {}, "4.3.1": {}},
        CLIENTS: {"3.9.3": {}, "4.0.0": {}},
    }
    repository.store()
    lines: list[str] = []
    manifest = install("kafka", lines.append)
    assert [each.version for each in manifest.jars] == ["4.2.0", "4.0.0", "3.9.3", "2.13.1"]
    assert lines[1:-1] == [
        "spark-sql-kafka-0-10_2.13 4.3.0 is not published; using 4.2.0",
        "spark-token-provider-kafka-0-10_2.13 4.2.0 is not published; using 4.0.0",
        "kafka-clients 3.9.2 is not published; using 3.9.3",
    ]


def test_a_set_of_which_nothing_fits_is_refused(repository: Repository) -> None:
    repository.published[CONNECTOR] = {"3.5.1": {}, "4.4.0": {}}
    repository.store()
    with pytest.raises(JarsUnavailable, match=f"neither {CONNECTOR}:4.3.0 nor") as refused:
        install("kafka", lambda _: None)
    assert refused.value.retry_hint is RetryHint.NO_RETRY
    assert "connectors.jars" in refused.value.hint


def test_a_server_that_does_not_answer_is_not_a_missing_version(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jar_resolver, "_PAUSES", (timedelta(0), timedelta(0)))
    repository.store(refuses=True)
    with pytest.raises(JarsUnavailable, match=r"java\.net\.ConnectException: refused") as refused:
        install("kafka", lambda _: None)
    assert len(repository.calls()) == 3
    assert refused.value.retry_hint is RetryHint.NO_RETRY
    assert f"{CONNECTOR}:4.3.0" in refused.value.hint
    assert "resurgence connectors install kafka" in refused.value.hint
    assert "connectors.jars" in refused.value.hint
    assert not folder_of("kafka").exists()


def test_a_server_that_answers_again_is_asked_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.store(refuses=True)
    # Of this module alone: `subprocess` sleeps too, and so do threads of other tests.
    pausing = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: repository.store())
    monkeypatch.setattr(jar_resolver, "time", pausing)
    assert install("kafka", lambda _: None).jars[0].version == "4.3.0"


def test_a_set_that_fails_half_way_leaves_nothing(repository: Repository) -> None:
    del repository.published[POOL]
    repository.store()
    with pytest.raises(JarsUnavailable, match=r"commons-pool2:2\.13\.1"):
        install("kafka", lambda _: None)
    assert [each.name for each in folder_of("kafka").parent.iterdir()] == ["kafka.lock"]
    assert installed("kafka") is None


def test_a_download_has_a_deadline(repository: Repository) -> None:
    repository.store(hangs=True)
    with pytest.raises(JarsUnavailable, match="took too long"):
        install("kafka", lambda _: None, timedelta(seconds=1))


def test_an_install_that_another_process_does_is_waited_for_until_the_deadline(
    repository: Repository,
) -> None:
    folder_of("kafka").parent.mkdir(parents=True)
    with folder_of("kafka").with_name("kafka.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(JarsUnavailable, match="another process"):
            install("kafka", lambda _: None, timedelta(milliseconds=300))
    assert repository.calls() == []


def test_concurrent_installs_download_once(repository: Repository) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: provide(["kafka"], "", lambda _: None), range(4)))
    assert len(set(found)) == 1
    assert len(repository.calls()) == 4


@pytest.mark.parametrize("damage", ["changed", "missing", "manifest"])
def test_a_damaged_set_is_downloaded_again(repository: Repository, damage: str) -> None:
    first = provide(["kafka"], "", lambda _: None)
    match damage:
        case "changed":
            first[0].write_text("changed")
        case "missing":
            first[0].unlink()
        case "manifest":
            (folder_of("kafka") / "manifest.json").write_text("{")
    assert installed("kafka") is None
    assert provide(["kafka"], "", lambda _: None) == first
    assert first[0].read_text() == "spark-sql-kafka-0-10_2.13 4.3.0"


def test_what_a_killed_install_left_is_removed(repository: Repository) -> None:
    left = folder_of("kafka").with_name("installing-kafka-1") / "ivy"
    left.mkdir(parents=True)
    install("kafka", lambda _: None)
    assert not left.parent.exists()


def test_a_cache_that_cannot_be_written_is_an_error(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(JarsUnavailable, match="cannot be stored") as refused:
        install("kafka", lambda _: None)
    assert "RESURGENCE_CACHE_DIR" in refused.value.hint


def test_with_a_directory_nothing_is_downloaded(repository: Repository, tmp_path: Path) -> None:
    directory = tmp_path / "given"
    directory.mkdir()
    for name in ("spark-avro_2.13-4.1.1.jar", "other.txt"):
        (directory / name).touch()
    assert not may_download(["avro"], str(directory))
    assert provide(["avro"], str(directory), pytest.fail) == (
        directory / "spark-avro_2.13-4.1.1.jar",
    )
    with pytest.raises(JarsInvalid, match=r"spark-sql-kafka-0-10_2\.13 is not in"):
        provide(["avro", "kafka"], str(directory), pytest.fail)
    assert repository.calls() == []


def test_a_directory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JarsInvalid, match=r"connectors\.jars"):
        provide(["kafka"], str(tmp_path / "missing"), pytest.fail)


def test_jars_are_passed_to_spark_after_the_users_own() -> None:
    spark = {"spark.master": "local[2]", "spark.jars": "/mine.jar"}
    assert with_jars(spark, ()) == spark
    added = with_jars(spark, (Path("/a.jar"), Path("/b.jar")))
    assert added == {"spark.master": "local[2]", "spark.jars": "/mine.jar,/a.jar,/b.jar"}


@pytest.mark.parametrize(
    ("running", "wanted", "is_served"),
    [
        ({}, {}, True),
        ({"spark.jars": "/a,/b"}, {"spark.jars": "/b"}, True),
        ({"spark.jars": "/a"}, {}, True),
        ({}, {"spark.jars": "/a"}, False),
        ({"spark.jars": "/a,/b"}, {"spark.jars": "/c"}, False),
        ({"spark.jars": "/a", "spark.master": "local[2]"}, {"spark.jars": "/a"}, False),
    ],
)
def test_a_running_spark_serves_the_same_settings_with_the_same_or_fewer_jars(
    running: dict[str, str], wanted: dict[str, str], is_served: bool
) -> None:
    assert serves(running, wanted) is is_served


def test_the_jars_that_need_no_download_are_those_installed_or_in_the_directory(
    repository: Repository, tmp_path: Path
) -> None:
    assert ready_jars("") == ()
    kafka = provide(["kafka"], "", lambda _: None)
    calls = repository.calls()
    assert ready_jars("") == kafka
    directory = tmp_path / "given"
    directory.mkdir()
    (directory / "spark-avro_2.13-4.1.1.jar").touch()
    assert ready_jars(str(directory)) == (directory / "spark-avro_2.13-4.1.1.jar",)
    assert repository.calls() == calls


def test_the_version_of_spark_is_that_of_its_jars() -> None:
    import pyspark

    assert connector_jars.spark_version() == pyspark.__version__
