"""Secrets in a pipeline's text: compiled as written, masked where they are shown or stored."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import SecretStr

from resurgence.errors import SqlError
from resurgence.graph.connector_spec import ConnectorSpec, Role, RoleSpec
from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph
from resurgence.graph.table_options import TableOptions, option
from resurgence.graph.values import Column
from resurgence.sql import compile_pipeline
from resurgence.sql.syntax.masking import masked_sql


class VaultOptions(TableOptions):
    url: str | None = option(default=None)
    password: SecretStr | None = option(default=None)
    mechanism: Literal["PLAIN", "SCRAM"] | None = option(default=None, name="sasl.mechanism")
    size: Literal["big"] | None = option(default=None)


CONNECTORS = {
    "vault": ConnectorSpec(
        "vault",
        {
            Role.SOURCE: RoleSpec(
                Role.SOURCE,
                VaultOptions,
                fixed_columns=(Column(name="a", type="INT"),),
                needs_columns=False,
            ),
            Role.SINK: RoleSpec(Role.SINK, VaultOptions, needs_columns=False),
        },
    )
}


def pipeline(options: str) -> str:
    return (
        f"CREATE TABLE t WITH (connector = 'vault', type = 'source', {options});\n"
        f"CREATE TABLE o WITH (connector = 'vault', type = 'sink', {options});\n"
        "INSERT INTO o SELECT a FROM t WHERE concat('pg://me:x@h', a) <> 'password';"
    )


def compiled(options: str) -> Graph:
    return compile_pipeline(pipeline(options), CONNECTORS)


def test_references_stay_in_the_graph_and_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESURGENCE_PW", "hunter2")
    graph = compiled("password = '${env:RESURGENCE_PW}', url = 'pg://me:${env:RESURGENCE_PW}@h'")
    options = {"password": "${env:RESURGENCE_PW}", "url": "pg://me:${env:RESURGENCE_PW}@h"}
    assert graph.sources()[0].options == options
    assert graph.sinks()[0].options == options
    assert "hunter2" not in graph.model_dump_json()
    assert explain_graph(graph, 1).count("password = ${env:RESURGENCE_PW}") == 2


@pytest.mark.parametrize(
    ("options", "column", "message"),
    [
        ("url = '${foo:x}'", 60, "unknown kind 'foo'"),
        ("url = 'x', password = '${env:X'", 71, "invalid reference"),
    ],
)
def test_wrong_references_are_refused_at_their_place(
    options: str, column: int, message: str
) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        compiled(options)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_a_literal_dollar_brace_is_no_reference() -> None:
    assert compiled("url = '$${foo:x}'").sinks()[0].options["url"] == "$${foo:x}"


def test_explain_masks_literal_secrets() -> None:
    text = explain_graph(compiled("password = 'hunter2', url = 'pg://me:hunter3@host'"), 1)
    assert text.count("(password = ***, url = pg://me:***@host)") == 2
    assert "hunter" not in text


@pytest.mark.parametrize(
    "options",
    [
        "sasl.mechanism = 'hunter2'",
        "size = 'pg://me:hunter2@h'",
        "password = 'x' hunter2",
        "password = x('hunter2')",
        "password = 'x' || 'hunter2'",
    ],
)
def test_errors_do_not_quote_secrets(options: str) -> None:
    with pytest.raises(SqlError) as caught:
        compiled(options)
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("written", "masked"),
    [
        ("password = 'hunter2'", "password = '***'"),
        ("PassWord='hunter2'", "PassWord='***'"),
        ("'password' = 'it''s hunter2'", "'password' = '***'"),
        ("\"password\" = 'a\\'hunter2'", "\"password\" = '***'"),
        ("password = 222", "password = '***'"),
        ("password = -22.2", "password = '***'"),
        ("password = true", "password = '***'"),
        ("password = '${env:PW}'", "password = '${env:PW}'"),
        ("password /* hunter2's */ = 'x, hunter2)'", "password /* hunter2's */ = '***'"),
        ("sasl.mechanism = 'PLAIN'", "sasl.mechanism = '***'"),
        ("url = 'pg://it''s\\\\me:hunter2@h'", "url = 'pg://it''s\\\\me:***@h'"),
        ("url = 'pg://me:${env:PW}@h'", "url = 'pg://me:${env:PW}@h'"),
        ("url = 'é', password = 'hunter2'", "url = 'é', password = '***'"),
        (
            "url = 'x' -- , password = 'hunter2'\n, size = 'big'",
            "url = 'x' -- , password = '***'\n, size = 'big'",
        ),
        ("/* pg://me:hunter2@h */ url = 'x'", "/* pg://me:***@h */ url = 'x'"),
        ("-- token=hunter2, or so\nurl = 'x'", "-- token='***', or so\nurl = 'x'"),
        ("-- password = '${env:PW}'\nurl = 'x'", "-- password = '${env:PW}'\nurl = 'x'"),
    ],
)
def test_a_masked_text_is_the_text_but_for_secrets_and_compiles_to_the_same_operators(
    written: str, masked: str
) -> None:
    assert masked_sql(pipeline(written)) == pipeline(masked)
    before, after = compiled(written), compiled(masked)
    assert [each.id for each in before.operators] == [each.id for each in after.operators]


@pytest.mark.parametrize(
    ("written", "masked"),
    [
        ("CREATE TABLE (password = 'hunter2', url", "CREATE TABLE (password = '***', url"),
        ("'never closed, token = hunter2", "'never closed, token = '***'"),
        ("oops pg://me:hunter2@h", "oops pg://me:***@h"),
    ],
)
def test_a_text_that_cannot_be_parsed_is_masked_as_well_as_can_be(
    written: str, masked: str
) -> None:
    assert masked_sql(written) == masked
