"""The ledger: what went into each epoch and what came out of it, and whether that adds up. Pure.

Five checks, each from records that were written at different times:

* The totals of a checkpoint are those of its parent and its own counts.
* `committed.json` says the same counts as the manifest.
* An epoch reads on where its parent stopped.
* No source has more bad rows than rows.
* What a window kept and what came late is no more than its source gave; the rest was filtered out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from resurgence.ids import NO_EPOCH, Epoch, OperatorId
from resurgence.state.inspection.checkpoints import CheckpointStatus, CheckpointView, of_each_epoch
from resurgence.state.records import EpochCounts, Manifest, Totals


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    MISMATCH = "mismatch"
    UNKNOWN = "n/a"
    """What it needs is not on record, or no longer kept."""


class CheckKind(StrEnum):
    """What is checked."""

    TOTALS = "totals are the parent's and the epoch's own"
    COMMITTED = "committed.json has the counts of the manifest"
    INPUT = "input goes on where the parent stopped"
    BAD = "bad rows are among the rows read"
    WINDOWS = "rows kept and late are among the good rows"


@dataclass(frozen=True)
class Check:
    """One check of one epoch."""

    kind: CheckKind
    epoch: Epoch
    verdict: Verdict
    detail: str
    """The numbers, or why there are none."""


@dataclass(frozen=True)
class LedgerLine:
    """One epoch."""

    epoch: Epoch
    status: str
    counts: EpochCounts
    filtered: Mapping[OperatorId, int]
    """Per window: good rows that are neither kept nor late. Empty where it cannot be derived."""
    state_rows: int
    state_bytes: int


@dataclass(frozen=True)
class Ledger:
    """The epochs that are kept, oldest first; what went through all of them; what was checked."""

    lines: tuple[LedgerLine, ...]
    totals: Totals | None
    """None: no manifest can be read."""
    checks: tuple[Check, ...]

    @property
    def balances(self) -> bool:
        return all(each.verdict is not Verdict.MISMATCH for each in self.checks)


def ledger_of(views: Iterable[CheckpointView], last: int | None = None) -> Ledger:
    """The ledger of all epochs that are kept, or of the last so many. The epochs before those
    still count as parents.
    """
    chosen = of_each_epoch(views)
    shown = list(chosen.values())[-last:] if last else list(chosen.values())
    totals = [
        view.manifest.totals
        for view in chosen.values()
        if view.manifest and view.status is not CheckpointStatus.DEAD
    ]
    return Ledger(
        lines=tuple(_line(view, view.manifest) for view in shown if view.manifest),
        totals=totals[-1] if totals else None,
        checks=tuple(check for view in shown for check in _checks(view, chosen)),
    )


def filtered_rows(counts: EpochCounts) -> dict[OperatorId, int]:
    """Per window, good rows that a filter before it took out. Only with a single source is it
    known which one feeds the window.
    """
    if len(counts.rows_in) != 1:
        return {}
    (source, rows), *_ = counts.rows_in.items()
    good = rows - counts.bad_rows.get(source, 0)
    return {
        window: good - kept - counts.late_rows.get(window, 0)
        for window, kept in counts.kept_rows.items()
    }


def _line(view: CheckpointView, manifest: Manifest) -> LedgerLine:
    return LedgerLine(
        epoch=view.epoch,
        status=view.status,
        counts=manifest.counts,
        filtered=filtered_rows(manifest.counts),
        state_rows=view.rows,
        state_bytes=view.bytes,
    )


def _checks(view: CheckpointView, chosen: Mapping[Epoch, CheckpointView]) -> Iterator[Check]:
    manifest = view.manifest
    if manifest is None:
        reason = "; ".join(view.reasons) or "its manifest cannot be read"
        for kind in CheckKind:
            yield Check(kind, view.epoch, Verdict.UNKNOWN, reason)
        return
    parent = chosen.get(manifest.parent)
    yield _totals_check(manifest, parent.manifest if parent else None)
    yield _committed_check(view, manifest)
    yield _input_check(manifest, parent.manifest if parent else None)
    yield from _bad_checks(manifest)
    yield from _window_checks(manifest)


def _totals_check(manifest: Manifest, parent: Manifest | None) -> Check:
    kind, epoch, totals = CheckKind.TOTALS, manifest.epoch, manifest.totals
    if manifest.parent == NO_EPOCH:
        before = Totals(since=epoch, counts=EpochCounts())
    elif parent is None:
        return Check(kind, epoch, Verdict.UNKNOWN, f"epoch {manifest.parent} is not kept")
    else:
        before = parent.totals
    expected = Totals(since=before.since, counts=before.counts.plus(manifest.counts))
    differences = _differences(totals.counts, expected.counts)
    if totals.since != expected.since:
        differences.insert(0, f"since epoch {totals.since} instead of {expected.since}")
    if differences:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(differences))
    read = sum(totals.counts.rows_in.values())
    return Check(kind, epoch, Verdict.OK, f"{read:,} rows read since epoch {totals.since}")


def _committed_check(view: CheckpointView, manifest: Manifest) -> Check:
    kind, epoch = CheckKind.COMMITTED, view.epoch
    if view.committed is None:
        reason = view.committed_fault or "not committed yet"
        return Check(kind, epoch, Verdict.UNKNOWN, reason)
    said, sealed = view.committed.counts, manifest.counts
    differences = _differences(said, sealed)
    if differences:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(differences))
    out = sum(said.rows_out.values())
    return Check(kind, epoch, Verdict.OK, f"{sum(said.rows_in.values()):,} in, {out:,} out")


def _input_check(manifest: Manifest, parent: Manifest | None) -> Check:
    kind, epoch = CheckKind.INPUT, manifest.epoch
    if manifest.parent == NO_EPOCH:
        return Check(kind, epoch, Verdict.OK, "the beginning")
    if parent is None:
        return Check(kind, epoch, Verdict.UNKNOWN, f"epoch {manifest.parent} is not kept")
    wrong = [
        f"{source} begins at {each.start}, but epoch {parent.epoch} ended at {before.end}"
        for source, each in manifest.inputs.items()
        if (before := parent.inputs.get(source)) is not None and before.end != each.start
    ]
    if wrong:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(wrong))
    return Check(kind, epoch, Verdict.OK, f"after epoch {parent.epoch}")


def _bad_checks(manifest: Manifest) -> Iterator[Check]:
    for source, rows in manifest.counts.rows_in.items():
        bad = manifest.counts.bad_rows.get(source, 0)
        verdict = Verdict.OK if 0 <= bad <= rows else Verdict.MISMATCH
        yield Check(
            CheckKind.BAD, manifest.epoch, verdict, f"{source}: {bad:,} bad of {rows:,} rows"
        )


def _window_checks(manifest: Manifest) -> Iterator[Check]:
    kind, epoch, counts = CheckKind.WINDOWS, manifest.epoch, manifest.counts
    filtered = filtered_rows(counts)
    for window, kept in counts.kept_rows.items():
        late = counts.late_rows.get(window, 0)
        if window not in filtered:
            yield Check(kind, epoch, Verdict.UNKNOWN, f"{window}: there are several sources")
            continue
        rest = filtered[window]
        said = f"{window}: {kept:,} kept + {late:,} late of {kept + late + rest:,} good rows"
        if rest < 0:
            # UNNEST, a join, GROUPING SETS.
            yield Check(kind, epoch, Verdict.UNKNOWN, f"{said}: does its query make more of them?")
        else:
            yield Check(kind, epoch, Verdict.OK, said)


def _differences(found: EpochCounts, expected: EpochCounts) -> list[str]:
    """Where two counts differ, a count that is not there being none."""
    theirs = expected.model_dump()
    return [
        f"{name} of {operator} is {mine.get(operator, 0):,} instead of {theirs[name].get(operator, 0):,}"
        for name, mine in found.model_dump().items()
        for operator in {**mine, **theirs[name]}
        if mine.get(operator, 0) != theirs[name].get(operator, 0)
    ]
