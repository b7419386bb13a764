"""Which jars fit, and what a directory of jars lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from resurgence.engine.spark.jar_resolver import required_versions, revisions
from resurgence.engine.spark.jar_sets import (
    JAR_SETS,
    Module,
    fits,
    jar_set,
    jars_in_directory,
    version_order,
)
from resurgence.errors import ConfigError, JarsInvalid

KAFKA = JAR_SETS["kafka"]
FILES = [
    "spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.1.jar",
    "commons-pool2-2.12.1.jar",
]
FOLDER = Path("/jars")


def test_versions_are_ordered_by_number_and_pre_releases_come_first() -> None:
    versions = ["4.10.0", "4.2.0", "4.2.0-preview1", "4.2.1"]
    assert sorted(versions, key=version_order) == ["4.2.0-preview1", "4.2.0", "4.2.1", "4.10.0"]


@pytest.mark.parametrize(
    ("version", "is_fit"),
    [("4.3.0", True), ("4.0.0", True), ("4.3.1", False), ("5.0.0", False), ("3.5.1", False)],
)
def test_a_jar_of_spark_must_have_its_major_version_and_not_be_newer(
    version: str, is_fit: bool
) -> None:
    assert fits(KAFKA.main, version, "4.3.0") is is_fit


def test_other_jars_have_versions_of_their_own() -> None:
    assert fits(Module("org.apache.kafka", "kafka-clients"), "3.9.1", "4.3.0")


def test_the_jars_of_a_set_are_found_among_other_files() -> None:
    others = ["spark-avro_2.13-4.1.1.jar", "kafka-clients-extra-1.jar", "notes.txt"]
    found = jars_in_directory(FOLDER, [*others, *FILES], KAFKA, "4.3.0")
    assert found == tuple(FOLDER / each for each in FILES)


def test_the_newest_of_several_versions_that_fit_is_chosen() -> None:
    more = [*FILES, *(f"spark-sql-kafka-0-10_2.13-{each}.jar" for each in ("4.3.0", "4.4.0"))]
    assert jars_in_directory(FOLDER, more, KAFKA, "4.3.0")[0].name.endswith("4.3.0.jar")


def test_a_missing_jar_is_named_with_its_version_and_the_remedy() -> None:
    with pytest.raises(JarsInvalid, match=r"spark-sql-kafka-0-10_2\.13 is not in /jars") as refused:
        jars_in_directory(FOLDER, FILES[1:], KAFKA, "4.3.0")
    assert "version 4.3.0, or an older one of 4.x" in refused.value.hint
    assert "resurgence connectors install kafka" in refused.value.hint


def test_a_jar_for_another_spark_is_named() -> None:
    files = ["spark-sql-kafka-0-10_2.13-3.5.1.jar", *FILES[1:]]
    with pytest.raises(JarsInvalid, match=r"3\.5\.1\.jar in /jars does not fit Spark 4\.3\.0"):
        jars_in_directory(FOLDER, files, KAFKA, "4.3.0")


def test_an_unknown_set_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="no jars named 'kafak'") as refused:
        jar_set("kafak")
    assert "kafka" in refused.value.hint


def test_only_jars_of_others_may_be_newer_than_required() -> None:
    assert revisions(KAFKA.main, "4.3.0") == ("4.3.0", "[4.0,4.3.0[")
    clients = Module("org.apache.kafka", "kafka-clients")
    assert revisions(clients, "3.9.2") == ("3.9.2", "[3.0,3.9.2[", "]3.9.2,4.0[")


def test_only_what_is_needed_at_run_time_is_required() -> None:
    text = """<ivy-module><dependencies>
        <dependency org="a" name="needed" rev="1" conf="test->runtime(*);compile->compile(*)"/>
        <dependency org="a" name="provided" rev="2" conf="provided->compile(*)"/>
        <dependency org="a" name="tested" rev="3" conf="test->runtime(*)"/>
        <dependency org="a" name="later" rev="4" conf="runtime->runtime(*)"/>
    </dependencies></ivy-module>"""
    assert required_versions(text) == {("a", "needed"): "1", ("a", "later"): "4"}
