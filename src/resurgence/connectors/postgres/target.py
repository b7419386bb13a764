"""The table that a sink writes, as its server describes it, and whether rows fit it. Pure but for
`read_target`.

A sealed epoch must be committed, so a row that the table refuses must be found before. Most rows
are refused while they are staged: the staging table has the types, the NOT NULL and the CHECK
constraints of the target. Foreign keys, further unique indexes, exclusion constraints, policies and
partitions depend on more than the row, and triggers may do anything; a table that has such gets a trial of every
merge, which is rolled back (`needs_trial`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resurgence.connectors.postgres.column_types import (
    TargetColumn,
    WrittenColumn,
    require_column,
)
from resurgence.connectors.postgres.location import quoted, quoted_table
from resurgence.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import psycopg

_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relrowsecurity OR c.relhasrules,
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal),
    EXISTS (SELECT FROM pg_constraint WHERE confrelid = c.oid AND contype = 'f')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), b.typname, e.typname, a.atttypmod, a.attnotnull,
    a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_CONSTRAINTS = """
SELECT conname, contype::text, pg_get_constraintdef(oid), ARRAY(
    SELECT attname::text FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY(conkey))
FROM pg_constraint WHERE conrelid = %s AND contype IN ('c', 'f', 'x') ORDER BY conname
"""
_UNIQUE = """
SELECT i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL, ARRAY(
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = i.indrelid AND attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1]))
FROM pg_index i WHERE i.indrelid = %s AND i.indisunique ORDER BY i.indexrelid
"""


@dataclass(frozen=True)
class Constraint:
    """A constraint: `c` for CHECK, `f` for a foreign key, `x` for an exclusion."""

    name: str
    kind: str
    definition: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class UniqueIndex:
    """A unique index, and whether ON CONFLICT can refer to it by its columns."""

    columns: tuple[str, ...]
    is_plain: bool


@dataclass(frozen=True)
class Target:
    """A table and everything that decides whether it takes a row."""

    oid: int
    sql: str
    """Its name with its schema, quoted."""
    columns: tuple[TargetColumn, ...]
    constraints: tuple[Constraint, ...] = ()
    unique: tuple[UniqueIndex, ...] = ()
    has_triggers: bool = False
    has_policies: bool = False
    """It has row security or rules."""
    is_partitioned: bool = False
    """A row may have no partition."""
    is_referenced: bool = False
    """Foreign keys refer to it: a row may have to stay as it is."""

    def named(self, names: Sequence[str]) -> tuple[TargetColumn, ...]:
        """Return the columns for these names: exactly so named, or else but for case. Raise
        UserError if one is missing.
        """
        exact = {each.name: each for each in self.columns}
        folded = {each.name.lower(): each for each in self.columns}
        found = []
        for name in names:
            column = exact.get(name) or folded.get(name.lower())
            if column is None:
                hint = did_you_mean(name, exact) or "Add the column to the table."
                raise UserError(f"table {self.sql} has no column '{name}'", hint=hint)
            found.append(column)
        return tuple(found)

    def require_fitting(self, written: Sequence[WrittenColumn], keys: Sequence[str]) -> None:
        """Raise UserError, with the name of the column, if rows of this shape cannot be written."""
        columns = self.named([each.name for each in written])
        for row_column, column in zip(written, columns, strict=True):
            require_column(self.sql, row_column, column)
        self._require_complete(columns)
        self._require_key(keys)

    def _require_complete(self, columns: Sequence[TargetColumn]) -> None:
        for each in self.columns:
            if each in columns or not each.not_null or each.has_default or each.is_generated:
                continue
            raise UserError(
                f"column '{each.name}' of table {self.sql} is NOT NULL without a default, but it"
                " is not written",
                hint="Write it, or give it a default in the table.",
            )

    def _require_key(self, keys: Sequence[str]) -> None:
        names = {each.name for each in self.named(keys)}
        plain = [set(each.columns) for each in self.unique if each.is_plain]
        if keys and names not in plain:
            listed = ", ".join(quoted(each.name) for each in self.named(keys))
            raise UserError(
                f"table {self.sql} has no unique index on its PRIMARY KEY ({listed})",
                hint=f"Create one: ALTER TABLE {self.sql} ADD PRIMARY KEY ({listed}).",
            )

    def needs_trial(self, written: Sequence[str], keys: Sequence[str]) -> bool:
        """Return whether the table can refuse a row that its staging table has taken."""
        columns = {each.name for each in self.named(written)}
        key = {each.name for each in self.named(keys)}
        return (
            self.has_triggers
            or self.has_policies
            or self.is_partitioned
            or (self.is_referenced and bool(key))
            or any(
                each.kind != "c" or not columns.issuperset(each.columns)
                for each in self.constraints
            )
            or any(
                not each.is_plain or (columns & set(each.columns) and set(each.columns) != key)
                for each in self.unique
            )
        )

    def staging_columns(self, written: Sequence[str], keys: Sequence[str]) -> tuple[str, ...]:
        """Return the columns and constraints of a staging table, as SQL. A trigger may fill in what
        a row lacks, so a table with triggers is staged without constraints.
        """
        columns = self.named(written)
        key = {each.name for each in self.named(keys)}
        names = {each.name for each in columns}
        checks = [
            f"CONSTRAINT {quoted(each.name)} {each.definition.removesuffix(' NOT VALID')}"
            for each in self.constraints
            if each.kind == "c" and names.issuperset(each.columns) and not self.has_triggers
        ]
        return (
            *(
                f"{quoted(each.name)} {each.declared}"
                + (
                    " NOT NULL"
                    if each.name in key or (each.not_null and not self.has_triggers)
                    else ""
                )
                for each in columns
            ),
            *checks,
        )


def read_target(connection: psycopg.Connection[Any], table: str, hint: str) -> Target:
    """Return the description of a table. Raise UserError, with the hint, if there is none."""
    found = connection.execute(_TABLE, [quoted_table(table)]).fetchone()
    if found is None:
        raise UserError(f"table {quoted_table(table)} does not exist", hint=hint)
    oid, schema, name, kind, has_policies, has_triggers, is_referenced = found
    sql = f"{quoted(schema)}.{quoted(name)}"
    if kind not in ("r", "p"):
        raise UserError(
            f"{sql} is not a table", hint="Name a table, not a view or a foreign table."
        )
    return Target(
        oid,
        sql,
        tuple(TargetColumn(*each) for each in connection.execute(_COLUMNS, [oid])),
        tuple(
            Constraint(each, contype, definition, tuple(columns))
            for each, contype, definition, columns in connection.execute(_CONSTRAINTS, [oid])
        ),
        tuple(
            UniqueIndex(tuple(columns), is_plain)
            for is_plain, columns in connection.execute(_UNIQUE, [oid])
        ),
        has_triggers,
        has_policies,
        is_partitioned=kind == "p",
        is_referenced=is_referenced,
    )
