"""No interleaving of a few generations, and no crash of any of them, violates the protocol.

Proved for each set of programs below, in every state that they can reach together, over the real
backend and the real retention:

(a) an epoch has at most one checkpoint that stands;
(b) an epoch has one content, in all its manifests and in its sink;
(c) a fresh generation gets the job running: it plans, finishes the pending commit, seals the next
    epoch, and then the sink shows every row once and nothing of a dead epoch;
(d) all that a kept checkpoint names is there;
(e) no living checkpoint follows on a dead one, and each begins where its parent ended.

Bounds: two or three programs, one or two epochs each, at most two rollbacks, two checkpoints kept
(the newest, or the first and the newest with those between thinned), retention after an epoch and not
beside it: the first round of a program lists what is stored, a second one does not. A rollback goes no further back than retention keeps, and no more is damaged than that: a
slow round of a generation that was overtaken may still be deleting what lies behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from tests.property.protocol_model import OPERATOR, Broken, Checker, Program, build

from resurgence.config import KeepRule
from resurgence.ids import Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.paths import state_file_epoch
from resurgence.state.protocol.decisions import EpochObjects
from resurgence.state.records import GenerationRecord, InputRange, RollbackRecord, decode
from resurgence.state.retention import Deletions, Retention

RUN = Program("run")
BARE = Program("run", keep=0)
"""Without retention there are fewer states, so there may be more programs."""
ROLL_BACK = Program("roll back", keep=0, rolls_back=True)


class ThinsAtOnce(Retention):
    """Does not wait for a batch."""

    batch = 1


THIN = Program(
    "run",
    keep=1,
    keep_for=(KeepRule(timedelta(hours=1), timedelta(days=1)),),
    retention=ThinsAtOnce,
)
"""Keeps the first checkpoint and the newest; those between are thinned."""


@dataclass(frozen=True)
class Case:
    """Programs that run at the same time, and what is stored when they begin."""

    programs: Sequence[Program]
    epochs: int
    damaged: bool = False
    """The state file of the newest epoch is gone."""
    least_states: int = 0
    before: Program = RUN
    """What ran before."""

    def checker(self, fresh: Program | None = None, overwrites: bool = False) -> Checker:
        fresh = fresh or self.before
        start = build(*[self.before] * self.epochs)
        lost = frozenset(
            path for path in start if self.damaged and state_file_epoch(path) == self.epochs
        )
        left = {path: data for path, data in start.items() if path not in lost}
        return Checker(self.programs, left, lost, fresh, overwrites)


CASES = {
    "two from nothing": Case([RUN, RUN], 0, least_states=3_000),
    "two that go on": Case([RUN, RUN], 3, least_states=10_000),
    "two that fall back": Case([RUN, RUN], 3, damaged=True, least_states=4_000),
    "a run and a rollback": Case([RUN, ROLL_BACK], 3, least_states=7_000),
    "two that fall back over a thinned epoch": Case(
        [THIN, THIN], 3, damaged=True, least_states=60_000, before=THIN
    ),
    "a thinning run and a rollback": Case([THIN, ROLL_BACK], 3, least_states=30_000, before=THIN),
    "two epochs each": Case([replace(BARE, epochs=2)] * 2, 1, least_states=2_000),
    "three from nothing": Case([BARE] * 3, 0, least_states=100_000),
}
LONG_CASES = {
    "a run that knows what it sealed, and another": Case(
        [replace(RUN, epochs=2), RUN], 1, least_states=90_000
    ),
    "two that thin": Case([THIN, THIN], 3, least_states=500_000, before=THIN),
    "three that fall back": Case([BARE] * 3, 2, damaged=True, least_states=200_000),
    "two runs and a rollback": Case([BARE, BARE, ROLL_BACK], 2, least_states=400_000),
    "a run and two rollbacks": Case([BARE, ROLL_BACK, ROLL_BACK], 3, least_states=500_000),
    "two that fall back, and a rollback": Case(
        [BARE, BARE, ROLL_BACK], 3, damaged=True, least_states=500_000
    ),
}


def prove(case: Case) -> None:
    checker = case.checker()
    checker.run()
    print(f"{checker.states} states, {checker.worlds} of what is stored")
    assert checker.states >= case.least_states, f"only {checker.states} states were visited"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_interleaving_and_no_crash_violates_an_invariant(case: Case) -> None:
    prove(case)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG_CASES.values(), ids=LONG_CASES)
def test_no_interleaving_and_no_crash_violates_an_invariant_in_larger_bounds(case: Case) -> None:
    prove(case)


# ---------------------------------------------------------------- a broken protocol is seen


class WithoutFence(StateBackend):
    """Seals without looking whether it was overtaken."""

    def require_newest(self, generation: Generation) -> None:
        pass


class RollbackWithoutClaim(StateBackend):
    """A rollback counts as soon as it is recorded."""

    def _rollback(self, number: int) -> RollbackRecord:
        path = self.paths.rollback(number)
        return decode(RollbackRecord, self.store.read(path), path)


class Amnesia(StateBackend):
    """Knows of no rollback."""

    def rollbacks(self, newest: int | None = None) -> tuple[RollbackRecord, ...]:
        return ()


class RollbackForgotten(StateBackend):
    """Restores whatever is newest."""

    def prepare_checkpoint_load(
        self, claim: GenerationRecord, parallelism: int, damaged: frozenset[str] = frozenset()
    ) -> LoadPlan:
        forgetful = Amnesia(self.store, self.paths.job)
        return forgetful.prepare_checkpoint_load(claim, parallelism, damaged)


class InputForgotten(StateBackend):
    """Replays over any input."""

    def prepare_checkpoint_load(
        self, claim: GenerationRecord, parallelism: int, damaged: frozenset[str] = frozenset()
    ) -> LoadPlan:
        plan = super().prepare_checkpoint_load(claim, parallelism, damaged)
        elsewhere = InputRange(start={"row": -1}, end={"row": -1}, rows=0)
        forgotten = {"inputs": {OPERATOR: elsewhere}, "sealed": False}
        recorded = {key: each.model_copy(update=forgotten) for key, each in plan.recorded.items()}
        return plan.model_copy(update={"recorded": recorded})


class DeletesBeforeItLooks(Retention):
    """Takes old files for dead ones, without asking the manifests."""

    def run(self, *_: object, **__: object) -> Deletions:
        store, paths = self._backend.store, self._backend.paths
        files = [each.path for each in store.list(paths.tables)]
        newest = max(state_file_epoch(path) or Epoch(0) for path in files)
        store.delete(path for path in files if state_file_epoch(path) != newest)
        return super().run()


NOTHING, ROLLED_BACK = CASES["two from nothing"], CASES["a run and a rollback"]
FALLEN_BACK = CASES["two that fall back"]
FLAWS = {
    "seals without looking at the fence": (
        ROLLED_BACK,
        Program("fresh", backend=WithoutFence),
        "which is dead",
    ),
    "commits before it seals": (NOTHING, Program("fresh", commits_first=True), "was committed as"),
    "commits what someone else sealed": (
        NOTHING,
        Program("fresh", ignores_a_lost_seal=True),
        "was committed as",
    ),
    "deletes before it looks": (
        CASES["two that go on"],
        Program("fresh", retention=DeletesBeforeItLooks),
        "was deleted",
    ),
    "rolls back without a claim": (
        ROLLED_BACK,
        Program("fresh", backend=RollbackWithoutClaim),
        "which is dead",
    ),
    "forgets a rollback": (ROLLED_BACK, Program("fresh", backend=RollbackForgotten), "dead"),
    "forgets what was read": (
        FALLEN_BACK,
        Program("fresh", backend=InputForgotten),
        "was committed as",
    ),
}


@pytest.mark.parametrize(("case", "program", "said"), FLAWS.values(), ids=FLAWS)
def test_the_checker_detects_a_broken_protocol(case: Case, program: Program, said: str) -> None:
    """Every program of the case is broken in the same way."""
    programs = [
        replace(program, name=each.name, keep=each.keep, rolls_back=each.rolls_back)
        for each in case.programs
    ]
    with pytest.raises(Broken, match=said):
        replace(case, programs=programs).checker(program).run()


class ThinsWithoutHistory(ThinsAtOnce):
    """Removes checkpoints without keeping what their epochs read."""

    def _thin(
        self, alive: Mapping[Epoch, EpochObjects], epochs: Iterable[Epoch]
    ) -> tuple[Epoch, ...]:
        return tuple(epochs)


def test_the_checker_detects_the_lost_input_of_a_thinned_epoch() -> None:
    forgetful = replace(THIN, retention=ThinsWithoutHistory)
    with pytest.raises(Broken, match="epoch 2 must be replayed"):
        Case([], 3, damaged=True, before=forgetful).checker().run()


def test_the_checker_detects_a_store_without_conditional_create() -> None:
    with pytest.raises(Broken, match="was deleted"):
        NOTHING.checker(overwrites=True).run()
