"""The text of a pipeline's file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from resurgence.cli.app import app
from resurgence.cli.pipeline_file import read_sql
from resurgence.errors import SqlError


def test_a_file_that_is_not_utf8_is_refused_at_its_first_bad_byte(tmp_path: Path) -> None:
    file = tmp_path / "latin.sql"
    file.write_bytes("SELECT 1;\n-- \u00e9 caf".encode() + b"\xe9\n")
    with pytest.raises(SqlError) as caught:
        read_sql(file)
    assert caught.value.message == "the file is not UTF-8: byte 0xe9 at offset 19"
    assert (caught.value.line, caught.value.column) == (2, 9)


@pytest.mark.parametrize("command", ["run", "explain"])
def test_the_command_exits_with_2_and_the_place(tmp_path: Path, command: str) -> None:
    file = tmp_path / "latin.sql"
    file.write_bytes(b"SELECT '\xff'")
    result = CliRunner().invoke(app, [command, str(file)])
    assert result.exit_code == 2
    assert f"{file}:1:9: the file is not UTF-8" in result.output
