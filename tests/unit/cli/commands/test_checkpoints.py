"""`resurgence checkpoints`: output, condemnation, exit status."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Cli
from tests.unit.state.real_state import NOW, SOURCE, RealJob

from resurgence.ids import Epoch

SQL = """
CREATE TABLE rides (at TIMESTAMP NOT NULL, driver BIGINT, WATERMARK FOR at AS at)
WITH (connector = 'single_file', path = '{path}', format = 'json', type = 'source');
CREATE TABLE hourly (start TIMESTAMP, n BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO hourly SELECT window.start, n FROM (
  SELECT tumble(INTERVAL '1 hour') AS window, count(*) AS n FROM rides GROUP BY window);
"""


def damage(real: RealJob, epoch: int) -> str:
    """Flip a bit in a page of the file that an epoch wrote; gives its path."""
    file = next(each for each in real.files if each.epoch == epoch)
    data = bytearray(real.path(file.path).read_bytes())
    data[real.path(file.path).stat().st_size // 3] ^= 1
    real.path(file.path).write_bytes(data)
    return file.path


def condemned(real: RealJob) -> list[int]:
    store = real.backend.store
    found = [
        each.path for each in store.list(real.backend.paths.epochs) if "condemned" in each.path
    ]
    return [int(path.split("/")[-2]) for path in found]


def test_list_is_a_table_with_a_line_for_each(cli: Cli, real: RealJob) -> None:
    done = cli("checkpoints", "list")
    assert done.status == 0
    header, *lines = done.out.splitlines()
    assert header.split()[:4] == ["epoch", "attempt", "generation", "parent"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert lines[2].split()[-1] == "valid"
    assert "2.000 s" in lines[2]
    assert " 300 " in lines[2]


def test_list_as_json_has_every_figure(cli: Cli, real: RealJob) -> None:
    rows = json.loads(cli("checkpoints", "list", "--json").out)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert rows[2]["sealed_at"] == "2030-01-01T00:00:00+00:00"
    assert (rows[2]["duration"], rows[2]["state_rows"], rows[2]["files"]) == (2.0, 300, 3)


def test_list_shows_the_damage_of_each_checkpoint(cli: Cli, real: RealJob) -> None:
    real.path(real.files[2].path).unlink()
    done = cli("checkpoints", "list")
    assert done.status == 0
    assert done.out.splitlines()[3].endswith("damaged")
    assert f"epoch 3, damaged: state file {real.files[2].path}" in done.out


def test_list_shows_dead_epochs(cli: Cli, real: RealJob) -> None:
    real.backend.record_rollback(real.backend.claim_generation(NOW), Epoch(1), NOW)
    lines = cli("checkpoints", "list").out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["valid", "dead", "dead"]


def test_inspection_claims_no_generation(cli: Cli, real: RealJob) -> None:
    for command in (["checkpoints", "list"], ["checkpoints", "verify"], ["ledger"]):
        assert cli(*command).status == 0
    real.backend.require_newest(real.claim.generation)


def test_show_names_tables_files_offsets_and_digests(cli: Cli, real: RealJob) -> None:
    out = cli("checkpoints", "show", "2").out
    for text in (
        "epoch 2, attempt 0: valid",
        "table partials (time): 2 files, 200 rows",
        real.files[1].path.rsplit("/", 1)[-1],
        'table offsets (global): {"line": 200, "byte": 600}',
        "sha256 ",
        "watermark 1970-01-01 00:02:00",
        "2 timers, the first at 1970-01-01 00:02:00",
    ):
        assert text in out
    assert real.files[2].path.rsplit("/", 1)[-1] not in out


def test_show_as_json_holds_the_metadata(cli: Cli, real: RealJob) -> None:
    shown = json.loads(cli("checkpoints", "show", "3", "--json").out)
    assert shown["inputs"][SOURCE]["end"] == {"line": 300, "byte": 900}
    tables = shown["operators"]["window-7f"]["metadata"]["tables"]
    assert [file["rows"] for file in tables["partials"]["files"]] == [100, 100, 100]


def test_show_reports_the_damage_of_a_checkpoint(cli: Cli, real: RealJob) -> None:
    real.path(real.manifest_path(3)).write_text("damaged")
    done = cli("checkpoints", "show", "3")
    assert done.status == 0
    assert "epoch 3, attempt 0: damaged" in done.out
    assert "is not JSON" in done.out


def test_show_of_an_epoch_that_is_not_retained_is_bad_usage(cli: Cli, real: RealJob) -> None:
    done = cli("checkpoints", "show", "9")
    assert done.status == 2
    assert done.err.splitlines() == [
        "error: there is no checkpoint of epoch 9",
        "hint: Choose one of: 1, 2, 3.",
    ]


def test_verify_reads_the_newest_checkpoint_and_reports_what_it_read(
    cli: Cli, real: RealJob
) -> None:
    done = cli("checkpoints", "verify")
    assert done.status == 0
    first, note = done.out.splitlines()
    assert first.startswith("epoch 3: intact (3 files, ")
    assert first.endswith(" s)")
    assert "--sql" in note
    assert len(cli("checkpoints", "verify", "--all").out.splitlines()) == 4


def test_verify_condemns_a_damaged_checkpoint_and_a_restore_skips_it(
    cli: Cli, real: RealJob
) -> None:
    path = damage(real, 3)
    assert [row["status"] for row in json.loads(cli("checkpoints", "list", "--json").out)] == [
        "valid"
    ] * 3
    done = cli("checkpoints", "verify", "--all")
    assert done.status == 1
    assert "epoch 3: DAMAGED" in done.out
    assert f"state file {path} does not match its digest" in done.out
    assert "epoch 3 is condemned" in done.out
    assert condemned(real) == [3]
    listed = cli("checkpoints", "list").out
    assert f"epoch 3, condemned: state file {path}" in listed
    again = cli("checkpoints", "verify", "3")
    assert again.status == 1
    assert "not verified, already condemned" in again.out
    assert cli("checkpoints", "verify").status == 0
    assert real.chosen() == 2


def test_a_dry_run_condemns_nothing(cli: Cli, real: RealJob) -> None:
    damage(real, 3)
    done = cli("checkpoints", "verify", "--dry-run")
    assert done.status == 1
    assert "epoch 3: DAMAGED" in done.out
    assert condemned(real) == []


def test_the_last_checkpoints_are_not_condemned_if_all_are_damaged(cli: Cli, real: RealJob) -> None:
    """So that restoring the file from a backup is enough."""
    path = real.path(real.files[0].path)
    whole = path.read_bytes()
    damage(real, 1)
    done = cli("checkpoints", "verify", "--all")
    assert done.status == 1
    assert done.out.count("DAMAGED") == 3
    assert "nothing is condemned" in done.out
    assert condemned(real) == []
    path.write_bytes(whole)
    assert cli("checkpoints", "verify", "--all").status == 0


def test_an_epoch_and_all_together_are_bad_usage(cli: Cli, real: RealJob) -> None:
    assert cli("checkpoints", "verify", "2", "--all").status == 2


@pytest.mark.parametrize(
    ("lines", "status", "reason"),
    [
        (400, 0, None),
        (10, 1, "bytes, but the job has read"),
        (None, 1, "does not exist"),
    ],
    ids=["there", "cut", "gone"],
)
def test_with_its_pipeline_the_sources_are_checked(
    cli: Cli, tmp_path: Path, state_dir: Path, lines: int | None, status: int, reason: str | None
) -> None:
    """A source without the input condemns nothing, because the input can be restored."""
    real = RealJob.at(str(state_dir))
    real.run(1, 2, 3)
    path = tmp_path / "rides.json"
    if lines is not None:
        path.write_text("{}\n" * lines)
    sql = tmp_path / "rides.sql"
    sql.write_text(SQL.format(path=path))
    done = cli("checkpoints", "verify", "--sql", str(sql))
    assert done.status == status, done.out
    assert reason is None or reason in done.out
    assert condemned(real) == []


def test_a_pipeline_that_does_not_compile_is_bad_usage(
    cli: Cli, real: RealJob, tmp_path: Path
) -> None:
    sql = tmp_path / "rides.sql"
    sql.write_text(SQL.format(path="x").replace("count(*)", "cuont(*)"))
    done = cli("checkpoints", "verify", "--sql", str(sql))
    assert done.status == 2
    assert "rides.sql:6:" in done.err


def test_the_job_need_not_be_named_if_there_is_one(
    cli: Cli, real: RealJob, state_dir: Path
) -> None:
    RealJob.at(str(state_dir), "another").run(1)
    done = cli("checkpoints", "list")
    assert done.status == 2
    assert "Choose with --name: another, rides" in done.err
    assert len(cli("checkpoints", "list", "--name", "another").out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "ride"], "Perhaps you meant 'rides'."),
        (["--name", "../x"], "invalid job name"),
    ],
)
def test_an_unknown_job_is_bad_usage(
    cli: Cli, real: RealJob, arguments: list[str], message: str
) -> None:
    done = cli("checkpoints", "list", *arguments)
    assert done.status == 2
    assert message in done.err


def test_a_missing_state_dir_is_bad_usage_and_is_not_created(cli: Cli, state_dir: Path) -> None:
    done = cli("checkpoints", "list")
    assert done.status == 2
    assert "does not exist" in done.err
    assert not state_dir.exists()
    state_dir.mkdir()
    assert "holds no job" in cli("checkpoints", "list").err


def test_a_job_without_checkpoints_says_so(cli: Cli, state_dir: Path) -> None:
    RealJob.at(str(state_dir))
    assert cli("checkpoints", "list").out == "there are no checkpoints yet\n"
    assert cli("checkpoints", "list", "--json").out == "[]\n"
    assert cli("ledger").out == "there are no checkpoints yet\n"
    for command in (["checkpoints", "verify"], ["state", "tables"], ["checkpoints", "show", "1"]):
        assert cli(*command).status == 2


def test_rollbacks_that_cannot_be_read_are_a_failure(cli: Cli, real: RealJob) -> None:
    real.backend.record_rollback(real.backend.claim_generation(NOW), Epoch(1), NOW)
    shutil.rmtree(real.path(real.backend.paths.rollbacks))
    done = cli("checkpoints", "list")
    assert done.status == 1
    assert "which epochs were rolled back" in done.err
