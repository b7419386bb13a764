"""A rollback compiles the recorded text, which contains no literal secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from pydantic import SecretStr
from tests.unit.state.real_state import NOW, RealJob

from resurgence.cli import pipeline_file
from resurgence.connectors import registry
from resurgence.connectors.registry import CONNECTORS
from resurgence.connectors.terminal import BlackholeSink
from resurgence.control.jobs import rollback_preview
from resurgence.control.jobs.job_record import DesiredConfig, JobRecord, JobStatus, PipelineRecord
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.metadata import MetadataStore
from resurgence.graph.connector_spec import ConnectorSpec, Role, RoleSpec
from resurgence.graph.table_options import TableOptions, option
from resurgence.ids import JobName

BACK = ("rollback", "--to-epoch", "1", "--dry-run", "--accept-duplicates")


class VaultOptions(TableOptions):
    password: SecretStr | None = option(default=None)
    mechanism: Literal["PLAIN"] | None = option(default=None, name="sasl.mechanism")


VAULT = ConnectorSpec(
    "vault",
    {
        Role.SOURCE: RoleSpec(Role.SOURCE, VaultOptions),
        Role.SINK: RoleSpec(Role.SINK, VaultOptions, needs_columns=False),
    },
)


@pytest.fixture
def recorded(
    real: RealJob, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Path]:
    """Puts a pipeline on record, as `run` does; its file."""
    monkeypatch.setattr(pipeline_file, "CONNECTORS", {**CONNECTORS, "vault": VAULT})
    for module in (rollback_preview, registry):
        monkeypatch.setattr(module, "make_sink", lambda *_: BlackholeSink())

    def record(source: str, sink: str) -> Path:
        sql = (
            f"CREATE TABLE t (a INT) WITH (connector = 'vault', type = 'source', {source});\n"
            f"CREATE TABLE o WITH (connector = 'vault', type = 'sink', {sink});\n"
            "INSERT INTO o SELECT a FROM t;"
        )
        store = MetadataStore(state_dir / "resurgence.db")
        store.put_job(
            JobRecord(
                name=JobName("rides"),
                pipeline=PipelineRecord(sql, str(state_dir)),
                desired=DesiredConfig(parallelism=1),
                status=JobStatus(state=StateName.FINISHED),
                created_at=NOW,
            )
        )
        store.close()
        (tmp_path / "rides.sql").write_text(sql)
        return tmp_path / "rides.sql"

    return record


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("password = 'hunter2', sasl.mechanism = 'PLAIN'", "password = '${env:PW}'"),
        ("password = '${env:PW}'", "password = '${file:pw}'"),
    ],
)
def test_secrets_of_sources_and_references_do_not_matter(
    cli: Callable[..., object], recorded: Callable[[str, str], Path], source: str, sink: str
) -> None:
    recorded(source, sink)
    answer = cli(*BACK)
    assert "nothing was changed" in str(answer)


@pytest.mark.parametrize("sink", ["password = 'hunter2'", "sasl.mechanism = 'PLAIN'"])
def test_literal_secrets_of_a_sink_need_the_file(
    cli: Callable[..., object], recorded: Callable[[str, str], Path], sink: str
) -> None:
    file = recorded("password = '${env:PW}'", sink)
    refused = str(cli(*BACK))
    assert "status=2" in refused
    assert f"without the secrets of its sink 'o': {sink.split()[0]}" in refused
    assert "--sql" in refused
    assert "nothing was changed" in str(cli(*BACK, "--sql", str(file)))
