"""Which rows fit a table, and which constraints its staging table can check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resurgence.connectors.postgres.column_types import (
    TargetColumn,
    WrittenColumn,
    creation_hint,
    misfit,
)
from resurgence.connectors.postgres.target import Constraint, Target, UniqueIndex

ID = TargetColumn("id", "bigint", "int8", not_null=True)
NAME = TargetColumn("name", "text", "text", not_null=True)
MORE = TargetColumn("more", "integer", "int4", has_default=True, not_null=True)
PLAIN = Target(1, '"public"."t"', (ID, NAME, MORE), unique=(UniqueIndex(("id",), True),))
WRITTEN = ("id", "name")


def column(kind: str, element: str | None = None, modifier: int = -1) -> TargetColumn:
    return TargetColumn("c", kind, kind, element, modifier)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("BIGINT", column("int4")),
        ("DECIMAL(10,2)", column("numeric")),
        ("DECIMAL(10,2)", column("numeric", modifier=(12 << 16 | 2) + 4)),
        ("STRING", column("uuid")),
        ("STRING", column("varchar")),
        ("TIMESTAMP", column("timestamp")),
        ("ARRAY<STRING>", column("_text", "text")),
        ("ARRAY<DECIMAL(4,1)>", column("_numeric", "numeric")),
        ("ARRAY<STRUCT<A:INT>>", column("jsonb")),
        ("MAP<STRING,INT>", column("json")),
    ],
)
def test_a_column_holds_values_that_it_can_hold_exactly(kind: str, stored: TargetColumn) -> None:
    assert misfit(kind, stored) is None


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("BIGINT", column("text")),
        ("BIGINT", column("float8")),
        ("DOUBLE", column("float4")),
        ("DOUBLE", column("numeric")),
        ("STRING", column("int4")),
        ("STRING", column("_text", "text")),
        ("TIMESTAMP_NTZ", column("timestamptz")),
        ("DECIMAL(10,3)", column("numeric", modifier=(12 << 16 | 2) + 4)),
        ("ARRAY<BIGINT>", column("_text", "text")),
        ("MAP<STRING,INT>", column("hstore")),
        ("INTERVAL DAY TO SECOND", column("interval")),
    ],
)
def test_a_column_does_not_hold_values_that_would_change(kind: str, stored: TargetColumn) -> None:
    assert misfit(kind, stored) is not None


@pytest.mark.parametrize(
    ("target", "keys", "needs"),
    [
        (PLAIN, ("id",), False),
        (PLAIN, (), True),
        (replace(PLAIN, unique=(UniqueIndex(("more",), True),)), (), False),
        (replace(PLAIN, unique=(UniqueIndex((), False),)), (), True),
        (replace(PLAIN, unique=(*PLAIN.unique, UniqueIndex(("name",), True))), ("id",), True),
        (replace(PLAIN, constraints=(Constraint("c", "c", "", ("id",)),)), ("id",), False),
        (replace(PLAIN, constraints=(Constraint("c", "c", "", ("id", "more")),)), ("id",), True),
        (replace(PLAIN, constraints=(Constraint("f", "f", "", ("more",)),)), ("id",), True),
        (replace(PLAIN, has_triggers=True), ("id",), True),
        (replace(PLAIN, has_policies=True), ("id",), True),
        (replace(PLAIN, is_partitioned=True), ("id",), True),
        (replace(PLAIN, is_referenced=True), ("id",), True),
        (replace(PLAIN, is_referenced=True, unique=()), (), False),
    ],
)
def test_a_trial_is_needed_where_a_staging_table_cannot_tell(
    target: Target, keys: tuple[str, ...], needs: bool
) -> None:
    assert target.needs_trial(WRITTEN, keys) is needs


def test_a_staging_table_has_the_constraints_of_written_columns() -> None:
    checks = (
        Constraint("odd", "c", "CHECK ((id <> 1)) NOT VALID", ("id",)),
        Constraint("more", "c", "CHECK ((id <> more))", ("id", "more")),
        Constraint("key", "f", "FOREIGN KEY", ("id",)),
    )
    target = replace(PLAIN, constraints=checks)
    assert target.staging_columns(WRITTEN, ()) == (
        '"id" bigint NOT NULL',
        '"name" text NOT NULL',
        'CONSTRAINT "odd" CHECK ((id <> 1))',
    )
    triggered = replace(target, has_triggers=True)
    assert triggered.staging_columns(WRITTEN, ("id",)) == ('"id" bigint NOT NULL', '"name" text')


def test_the_hint_for_a_missing_table_creates_it() -> None:
    columns = [WrittenColumn("id", "BIGINT"), WrittenColumn("price", "DECIMAL(10,2)")]
    columns += [WrittenColumn("tags", "ARRAY<STRING>"), WrittenColumn("more", "MAP<STRING,INT>")]
    assert creation_hint("s.t", columns, ["id"]) == (
        'Create it: CREATE TABLE "s"."t" ("id" bigint, "price" numeric(10,2), "tags" text[],'
        ' "more" jsonb, PRIMARY KEY ("id")).'
    )
