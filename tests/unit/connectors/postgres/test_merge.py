"""The statements of a merge."""

from __future__ import annotations

from resurgence.connectors.postgres.merge import StagedPart, StagedRows, merge_statements, take_turn

PARTS = (StagedPart("s", 5, 0, 3), StagedPart("s", 6, 1, 2))
OF_PARTS = '(("__part" = 5 AND "__row" < 3) OR ("__part" = 6 AND "__row" < 8589934594))'


def staged(*columns: str) -> StagedRows:
    return StagedRows(("__part", "__row", *columns), PARTS)


def test_rows_without_a_key_are_appended_in_their_order() -> None:
    assert merge_statements("t", [], [staged("a")]) == [
        f'INSERT INTO t ("a") SELECT "a" FROM s WHERE {OF_PARTS} ORDER BY "__row"'
    ]


def test_the_last_row_of_a_key_is_upserted_in_the_order_of_keys() -> None:
    newest = (
        f'(SELECT DISTINCT ON ("k") * FROM s WHERE {OF_PARTS} ORDER BY "k", "__row" DESC) staged'
    )
    assert merge_statements("t", ["k"], [staged("k", "a")]) == [
        f'INSERT INTO t ("k", "a") SELECT "k", "a" FROM {newest} ORDER BY "k"'
        ' ON CONFLICT ("k") DO UPDATE SET "a" = EXCLUDED."a"'
    ]
    deletes, upserts = merge_statements("t", ["k"], [staged("__is_deleted", "k")])
    assert deletes == (
        f'DELETE FROM t target USING {newest} WHERE staged.__is_deleted AND target."k" = staged."k"'
    )
    assert upserts == (
        f'INSERT INTO t ("k") SELECT "k" FROM {newest} WHERE NOT __is_deleted ORDER BY "k"'
        ' ON CONFLICT ("k") DO NOTHING'
    )


def test_the_lock_of_a_table_fits_for_every_identifier() -> None:
    assert take_turn(16384).endswith(", 16384)")
    assert take_turn(2**32 - 1).endswith(", -1)")
