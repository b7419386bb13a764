"""`resurgence ledger`: the figures, the checks, the exit status."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Cli
from tests.unit.state.real_state import RealJob, counts_of

from resurgence.ids import OperatorId


def test_each_epoch_and_the_totals_are_shown_and_balance(cli: Cli, real: RealJob) -> None:
    done = cli("ledger")
    assert done.status == 0
    header, *lines = done.out.splitlines()
    assert header.split() == [
        *("epoch", "in", "bad", "late", "kept", "filtered", "out"),
        *("state", "rows", "state", "bytes", "status"),
    ]
    assert lines[2].split()[:8] == ["3", "100", "2", "3", "90", "5", "7", "300"]
    assert lines[3].split()[:9] == ["total", "since", "1", "300", "6", "9", "270", "15", "21"]
    assert [line.split()[0] for line in lines[5:]] == ["ok"] * 5


def test_partly_late_rows_have_a_column_if_there_are_any(cli: Cli, real: RealJob) -> None:
    partly_late = {"partly_late_rows": {OperatorId("window-7f"): 4}}
    real.commit(real.seal(4, counts=counts_of().model_copy(update=partly_late)))
    header, *lines = cli("ledger").out.splitlines()
    assert header.split()[5:7] == ["partly", "late"]
    assert [line.split()[5] for line in lines[:4]] == ["-", "-", "-", "4"]
    assert [line.split()[0] for line in lines[6:]] == ["ok"] * 6


def test_a_mismatch_is_shown_with_its_numbers_and_is_exit_1(cli: Cli, real: RealJob) -> None:
    real.commit(real.seal(4), counts_of(out=8))
    done = cli("ledger")
    assert done.status == 1
    (line,) = (line for line in done.out.splitlines() if line.startswith("MISMATCH"))
    assert line.endswith("epoch 4: rows_out of sink-hourly is 8 instead of 7")
    as_json = cli("ledger", "--json")
    assert as_json.status == 1
    found = json.loads(as_json.out)
    assert not found["balances"]
    (wrong,) = (each for each in found["checks"] if each["verdict"] == "mismatch")
    assert (wrong["check"], wrong["epoch"]) == ("committed", 4)


def test_the_last_epochs_only(cli: Cli, real: RealJob) -> None:
    shown = json.loads(cli("ledger", "--last", "2", "--json").out)
    assert [line["epoch"] for line in shown["epochs"]] == [2, 3]
    assert shown["epochs"][0]["filtered"] == {"window-7f": 5}
    assert shown["totals"]["rows_in"] == {"source-rides": 300}
    assert {each["verdict"] for each in shown["checks"]} == {"ok"}
    assert cli("ledger", "--last", "0").status == 2
