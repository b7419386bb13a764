"""Which Java runs Spark."""

from __future__ import annotations

import pytest

from resurgence.engine.spark.class_archive import archive_path
from resurgence.engine.spark.java import find_java


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_options_in_the_environment_do_not_make_another_archive(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    archive = archive_path(find_java())
    monkeypatch.setenv(variable, "-XX:TieredStopAtLevel=1")
    assert archive_path(find_java()) == archive
