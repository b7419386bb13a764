"""Another package adds a connector: the example is installed, and a pipeline compiled with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.example_package import EXAMPLE, install_example, resurgence


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_example(tmp_path_factory.mktemp("packages"))


def test_a_pipeline_compiles_with_the_connector_of_a_package(packages: Path) -> None:
    done = resurgence("explain", str(EXAMPLE / "countdown.sql"), packages=packages)
    assert done.returncode == 0, done.stderr
    assert (
        "reads        table numbers through countdown (bad_data = fail, first = 10)" in done.stdout
    )
    assert "columns      number BIGINT" in done.stdout


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "first = 'zero'",
            "1:53: 'zero' is not a valid value for option 'first'\n"
            "hint: Use a whole number of at least 1.",
        ),
        ("frist = 10", "as a source has no option 'frist'\nhint: Perhaps you meant 'first'."),
    ],
)
def test_its_options_are_validated_like_built_in_ones(
    packages: Path, tmp_path: Path, written: str, message: str
) -> None:
    text = (EXAMPLE / "countdown.sql").read_text().replace("first = 10", written)
    (tmp_path / "bad.sql").write_text(text)
    done = resurgence("explain", str(tmp_path / "bad.sql"), packages=packages)
    assert done.returncode == 2
    assert message in done.stderr


def test_without_the_package_there_is_no_such_connector() -> None:
    done = resurgence("explain", str(EXAMPLE / "countdown.sql"))
    assert done.returncode == 2
    assert "there is no connector 'countdown'" in done.stderr
