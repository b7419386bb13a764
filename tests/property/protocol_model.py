"""Every interleaving of a few generations, over the real backend: a small model checker.

A program is ordinary code that uses the real `StateBackend` and `Retention` over a store in memory.
Each request to that store, and each to the sink, is a step. A program is deterministic but for the
responses that it gets, so its position is the list of its responses so far; it is run again from its
beginning, over those responses, to find its next request. A global state is the stored objects and
the position of each program. All states that can be reached are visited once, depth first.

A crash needs no step of its own: a program that is never continued is one that died. So whatever
holds in every state holds after a crash of any of them, anywhere. In every state a fresh
generation is started alone, which must recover the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from resurgence.config import KeepRule
from resurgence.errors import IncompatibleState, ObjectMissing, ResurgenceError, Retired, UserError
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.load_plan import LoadPlan
from resurgence.state.paths import JobPaths, generation_of
from resurgence.state.protocol.checkpoint_records import CheckpointRecords
from resurgence.state.protocol.decisions import (
    EpochObjects,
    EpochRange,
    dead_ranges,
    epochs_seen,
    is_dead,
    living,
)
from resurgence.state.records import (
    CommittedRecord,
    EpochCounts,
    GenerationRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
    Totals,
    decode,
)
from resurgence.state.retention import Retention
from resurgence.storage.object_store import ObjectStore, StoredObject

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = JobName("j")
OPERATOR = OperatorId("o")
RETRACTED = b"retracted"

Request = tuple[Any, ...]
Answer = Any


class Broken(AssertionError):
    """The protocol does not keep a promise."""


# ---------------------------------------------------------------- what is stored


class World:
    """Everything durable: the objects of the state store, and what the sink shows."""

    def __init__(self, objects: dict[str, bytes], overwrites: bool = False) -> None:
        self.objects = objects
        self.overwrites = overwrites
        """A store without conditional create."""

    def answer(self, request: Request) -> tuple[dict[str, bytes], Answer]:
        """What is stored afterwards, and what is answered. The sink keeps an epoch's first
        content, as the commit log does; a retraction is a content, too.
        """
        verb, path, *rest = request
        match verb:
            case "create" if path in self.objects and not self.overwrites:
                return self.objects, False
            case "create":
                return {**self.objects, path: rest[0]}, True
            case "read":
                return self.objects, self.objects.get(path)
            case "list":
                found = (
                    each
                    for each in self.objects
                    if each.startswith(path + "/") and each > (rest[0] or "")
                )
                return self.objects, tuple(
                    StoredObject(each, len(self.objects[each])) for each in sorted(found)
                )
            case "delete":
                left = {each: data for each, data in self.objects.items() if each != path}
                return left, None
            case "commit":
                if self.objects.get(path, RETRACTED) not in (RETRACTED, rest[0]):
                    raise Broken(f"{path} was committed as {self.objects[path]!r}, now {rest[0]!r}")
                return {path: rest[0], **self.objects}, None
            case "retract":
                epochs = (each for first, last in rest[0] for each in range(first, last + 1))
                return {**self.objects, **{sunk(each): RETRACTED for each in epochs}}, None
        raise NotImplementedError(request)


def sunk(epoch: int) -> str:
    """Where the sink shows an epoch."""
    return f"sink/{epoch}"


class Pause(BaseException):
    """A program requests something that it has not been answered yet."""

    def __init__(self, request: Request) -> None:
        self.request = request


class ScriptedStore(ObjectStore):
    """Gives the answers that were given before, then pauses the program."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.url = "memory:"
        self.generation = 0
        """The newest one that was claimed here."""
        self._answers = iter(answers)

    def ask(self, *request: Any) -> Answer:
        for answer in self._answers:
            return answer
        raise Pause(request)

    def create(self, path: str, data: bytes) -> bool:
        created = bool(self.ask("create", path, data))
        if created:
            self.generation = generation_of(path) or self.generation
        return created

    def read(self, path: str) -> bytes:
        data = self.ask("read", path)
        if data is None:
            raise ObjectMissing(f"{path} does not exist")
        return bytes(data)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        return tuple(self.ask("list", prefix, after))

    def delete(self, paths: Iterable[str]) -> None:
        """A bulk deletion has no order and may be cut off anywhere: here it goes backwards."""
        for path in reversed([*paths]):
            self.ask("delete", path)


# ---------------------------------------------------------------- programs


class FixedClock:
    """It is always now."""

    def now(self) -> datetime:
        return NOW


@dataclass(frozen=True)
class Program:
    """What one process does. The flags break the protocol on purpose."""

    name: str
    epochs: int = 1
    keep: int = 2
    """Checkpoints; 0: there is no retention."""
    keep_for: tuple[KeepRule, ...] = ()
    """By time: all is sealed in the same instant, so a rule keeps the first checkpoint there is."""
    rolls_back: bool = False
    """To the checkpoint before the newest, instead of running epochs."""
    backend: type[StateBackend] = StateBackend
    retention: type[Retention] = Retention
    commits_first: bool = False
    ignores_a_lost_seal: bool = False

    def run(self, store: ScriptedStore) -> None:
        backend = self.backend(store, JOB)
        claim = backend.claim_generation(NOW)
        if self.rolls_back:
            epochs = backend.epochs()
            sealed = [epoch for epoch, each in epochs.items() if each.manifests]
            backend.record_rollback(claim, sealed[-2], NOW)
            return
        plan = backend.prepare_checkpoint_load(claim, 1)
        if plan.dead:
            store.ask("retract", "sink", plan.dead)
        if plan.commit_pending:
            assert plan.manifest is not None
            self._commit(store, backend, plan, plan.epoch, plan.manifest.inputs[OPERATOR])
        epoch, position, files = plan.epoch, 0, list[StateFile]()
        if plan.epoch:
            load = plan.operators[OPERATOR]
            position = end_of(load.metadata.input)
            files = [each.file for each in load.subtasks["state"][0]]
        retention = self.retention(backend, self.keep, plan.generation, self.keep_for, FixedClock())
        for number in range(self.epochs):
            parent, epoch = epoch, plan.after(epoch)
            checkpoint = self._epoch(store, backend, plan, parent, epoch, position, files)
            assert checkpoint.manifest is not None
            position = end_of(checkpoint.manifest.inputs[OPERATOR])
            files = [file for file, _ in checkpoint.state_files()]
            if self.keep:
                retention.run(sealed=[checkpoint], look=number == 0)

    def _epoch(
        self,
        store: ScriptedStore,
        backend: StateBackend,
        plan: LoadPlan,
        parent: Epoch,
        epoch: Epoch,
        position: int,
        files: list[StateFile],
    ) -> CheckpointRecords:
        """Each checkpoint names the file of its epoch and that of the epoch before."""
        recorded = plan.recorded.get(epoch)
        # How much is read anew differs from generation to generation.
        end = position + 1 + plan.generation % 2
        read = InputRange(start={"row": position}, end={"row": end}, rows=end - position)
        if recorded is not None and recorded.inputs[OPERATOR].start == read.start:
            read = recorded.inputs[OPERATOR]
        elif recorded is not None and recorded.sealed:
            raise IncompatibleState(f"epoch {epoch} must be replayed over other input")
        files = [*files[-1:], self._file(store, backend, plan, epoch)]
        metadata = OperatorCheckpointMetadata(
            job=plan.job,
            operator=OPERATOR,
            epoch=epoch,
            generation=plan.generation,
            parallelism=1,
            tables={"state": TableCheckpoint(kind=TableKind.KEY, files=tuple(files))},
            input=read,
        )
        digests = backend.write_metadata([metadata])
        if self.commits_first:
            store.ask("commit", sunk(epoch), content(read))
        manifest = Manifest(
            job=plan.job,
            epoch=epoch,
            attempt=recorded.attempt if recorded else 0,
            generation=plan.generation,
            parent=parent,
            operators=digests,
            inputs={OPERATOR: read},
            totals=Totals(since=Epoch(1), counts=EpochCounts()),
            began_at=NOW,
            sealed_at=NOW,
        )
        try:
            backend.publish(manifest)
        except Retired:
            if not self.ignores_a_lost_seal:
                raise
        self._commit(store, backend, plan, epoch, read)
        return CheckpointRecords(manifest, {OPERATOR: metadata})

    def _file(
        self, store: ScriptedStore, backend: StateBackend, plan: LoadPlan, epoch: Epoch
    ) -> StateFile:
        folder = backend.paths.table(OPERATOR, "state")
        path = f"{folder}/{epoch}-{plan.generation}-0-{plan.generation:012x}.parquet"
        assert store.create(path, b"rows")
        return StateFile(
            path=path,
            subtask=0,
            epoch=epoch,
            rows=1,
            bytes=4,
            key_groups=2**64 - 1,
            time_start=0,
            time_end=0,
            digest="",
        )

    def _commit(
        self,
        store: ScriptedStore,
        backend: StateBackend,
        plan: LoadPlan,
        epoch: Epoch,
        read: InputRange,
    ) -> None:
        store.ask("commit", sunk(epoch), content(read))
        backend.record_committed(
            CommittedRecord(
                job=plan.job,
                epoch=epoch,
                generation=plan.generation,
                inputs={OPERATOR: read},
                committed_at=NOW,
            )
        )


def end_of(read: InputRange | None) -> int:
    assert read is not None
    return int(str(read.end["row"]))


def content(read: InputRange) -> bytes:
    """What an epoch gives its sink."""
    return f"{read.start['row']}-{read.end['row']}".encode()


# ---------------------------------------------------------------- where a program stands


class Place:
    """A program after some answers: what it asks next, or how it ended."""

    def __init__(self, program: Program, answers: tuple[Answer, ...] = ()) -> None:
        self.program = program
        self.answers = answers
        self.request: Request | None = None
        self.error: ResurgenceError | None = None
        self._after: dict[Answer, Place] = {}
        store = ScriptedStore(answers)
        try:
            program.run(store)
        except Pause as pause:
            self.request = pause.request
        except ResurgenceError as error:
            self.error = error
        self.generation = store.generation

    def after(self, answer: Answer) -> Place:
        place = self._after.get(answer)
        if place is None:
            place = self._after[answer] = Place(self.program, (*self.answers, answer))
        return place


# ---------------------------------------------------------------- promises


@dataclass(frozen=True)
class Checkpoint:
    """A manifest that is there, and whether all that it names is."""

    manifest: Manifest
    missing: tuple[str, ...]


class View:
    """A world as the protocol reads it."""

    def __init__(self, world: World, reader: Program) -> None:
        self.world = world
        backend = reader.backend(_Frozen(world), JOB)
        self.dead: tuple[EpochRange, ...] = dead_ranges(backend.rollbacks())
        epochs = epochs_seen(world.objects)
        self.living: dict[Epoch, EpochObjects] = living(epochs, self.dead)
        self.standing: dict[Epoch, Checkpoint] = {
            epoch: self._checkpoint(objects.manifests[objects.standing])
            for epoch, objects in self.living.items()
            if objects.standing is not None
        }

    def _checkpoint(self, path: str) -> Checkpoint:
        manifest = self.manifest(path)
        missing = []
        for digest in manifest.operators.values():
            data = self.world.objects.get(digest.path)
            if data is None:
                missing.append(digest.path)
                continue
            metadata = decode(OperatorCheckpointMetadata, data, digest.path)
            missing += [
                file.path
                for table in metadata.tables.values()
                for file in table.files
                if file.path not in self.world.objects
            ]
        return Checkpoint(manifest, tuple(missing))

    def manifest(self, path: str) -> Manifest:
        return decode(Manifest, self.world.objects[path], path)


class _Frozen(ScriptedStore):
    def __init__(self, world: World) -> None:
        super().__init__(())
        self._world = world

    def ask(self, *request: Any) -> Answer:
        return self._world.answer(request)[1]


def check(world: World, reader: Program, lost: frozenset[str]) -> View:
    """What must hold in every state. `lost` was damaged before it all began."""
    view = View(world, reader)
    for epoch, objects in view.living.items():
        unharmed = [each for each in objects.manifests if each not in objects.condemned]
        if len(unharmed) > 1:
            raise Broken(f"epoch {epoch} has {len(unharmed)} checkpoints that stand")
        contents = {
            content(view.manifest(path).inputs[OPERATOR]) for path in objects.manifests.values()
        }
        if (shown := world.objects.get(sunk(epoch))) is not None and objects.manifests:
            contents.add(shown)
        if len(contents) > 1:
            raise Broken(f"epoch {epoch} has several contents: {sorted(contents)}")
    for epoch in sorted(view.standing, reverse=True)[: reader.keep]:
        if missing := set(view.standing[epoch].missing) - lost:
            raise Broken(f"epoch {epoch} is kept, but {sorted(missing)} was deleted")
    for epoch, each in view.standing.items():
        parent = each.manifest.parent
        if is_dead(parent, view.dead):
            raise Broken(f"epoch {epoch} follows on epoch {parent}, which is dead")
        before = view.standing.get(parent)
        end = end_of(before.manifest.inputs[OPERATOR]) if before else None
        start = each.manifest.inputs[OPERATOR].start["row"]
        if (end is not None and start != end) or (parent == NO_EPOCH and start != 0):
            raise Broken(f"epoch {epoch} begins at {start}, epoch {parent} ended at {end}")
    return view


def check_running(before: View, world: World, reader: Program, lost: frozenset[str]) -> None:
    """What must hold once a fresh generation has got the job running again."""
    after = check(world, reader, lost)
    whole = {each for each in before.standing if not before.standing[each].missing}
    if max(after.standing, default=NO_EPOCH) <= max(whole, default=NO_EPOCH):
        raise Broken("the job is not running: no epoch was sealed")
    for epoch in after.standing:
        if world.objects.get(sunk(epoch), RETRACTED) == RETRACTED:
            raise Broken(f"epoch {epoch} lives, but its output is not there")
    position = 0
    for number in sorted(int(path[5:]) for path in world.objects if path.startswith("sink/")):
        shown = world.objects[sunk(number)]
        if shown == RETRACTED:
            continue
        if is_dead(Epoch(number), after.dead):
            raise Broken(f"epoch {number} is dead, but its output can be seen")
        start, end = map(int, shown.split(b"-"))
        if start != position:
            raise Broken(f"the output of epoch {number} begins at {start}, not at {position}")
        position = end
    expected = sorted({*whole, max(after.standing)}, reverse=True)[: reader.keep]
    gone = [each for each in expected if each not in after.standing or after.standing[each].missing]
    if gone:
        raise Broken(f"epochs {gone} are among the newest, but were deleted")


# ---------------------------------------------------------------- all interleavings


Way = tuple["Way", Place] | None
"""The steps so far, the last one first."""


@dataclass
class Checker:
    """Visits every state that some programs can reach from a world."""

    programs: Sequence[Program]
    start: dict[str, bytes]
    lost: frozenset[str] = frozenset()
    fresh: Program = field(default_factory=lambda: Program("fresh"))
    overwrites: bool = False
    states: int = 0

    def __post_init__(self) -> None:
        self._worlds: dict[frozenset[tuple[str, bytes]], World] = {}
        self._steps: dict[tuple[World, Request], tuple[World, Answer]] = {}
        self._views: dict[World, View] = {}
        roots = {program: Place(program) for program in {*self.programs, self.fresh}}
        self._root = tuple(roots[program] for program in self.programs)
        self._fresh = roots[self.fresh]
        self._deletes = any(program.keep for program in self.programs)

    @property
    def worlds(self) -> int:
        return len(self._views)

    def run(self) -> None:
        """Visit everything; raises Broken with the way that leads there."""
        world = self._world(self.start)
        self._visit(world)
        visited = {_canonical(world, self._root)}
        stack: list[tuple[World, tuple[Place, ...], Way]] = [(world, self._root, None)]
        while stack:
            world, places, way = stack.pop()
            self.states += 1
            for index in self._next(world, places):
                place = places[index]
                try:
                    after, moved = self._step(world, place)
                    self._visit(after)
                    self._require_fair_end(after, moved)
                except Broken as broken:
                    raise Broken("\n  ".join((str(broken), *_told((way, place))))) from broken
                there = (*places[:index], moved, *places[index + 1 :])
                key = _canonical(after, there)
                if key not in visited:
                    visited.add(key)
                    stack.append((after, there, (way, place)))

    def _next(self, world: World, places: Sequence[Place]) -> Sequence[int]:
        """Whose step is next: anyone's. But as long as nothing is deleted, what an object holds is
        the same at any time, so reading an existing one neither waits for other programs nor blocks them.
        """
        asking = []
        for index, place in enumerate(places):
            if place.request is not None:
                verb, path, *_ = place.request
                if verb == "read" and path in world.objects and not self._deletes:
                    return [index]
                asking.append(index)
        return asking

    def _world(self, objects: dict[str, bytes]) -> World:
        key = frozenset(objects.items())
        if key not in self._worlds:
            self._worlds[key] = World(objects, self.overwrites)
        return self._worlds[key]

    def _step(self, world: World, place: Place) -> tuple[World, Place]:
        assert place.request is not None
        key = (world, place.request)
        if key not in self._steps:
            objects, answer = world.answer(place.request)
            after = world if objects is world.objects else self._world(objects)
            self._steps[key] = after, answer
        after, answer = self._steps[key]
        return after, place.after(answer)

    def _visit(self, world: World) -> None:
        """Hold a world that is new against the promises, then let a fresh generation recover it."""
        if world in self._views:
            return
        self._views[world] = check(world, self.fresh, self.lost)
        now, place = world, self._fresh
        while place.request is not None:
            now, place = self._step(now, place)
        if place.error is not None:
            raise Broken(f"a fresh generation cannot go on: {place.error.message}")
        check_running(self._views[world], now, self.fresh, self.lost)

    def _require_fair_end(self, world: World, place: Place) -> None:
        """Only who was overtaken, lost a seal or asked for what is not there may end early."""
        if isinstance(place.error, Retired | None) or type(place.error) is UserError:
            return
        if place.generation == max(generation_of(path) or 0 for path in world.objects):
            raise Broken(f"the newest generation failed: {place.error}") from place.error


def _canonical(world: World, places: Iterable[Place]) -> tuple[object, ...]:
    """Programs of the same kind are interchangeable."""
    return (world, *sorted(id(place) for place in places))


def _told(way: Way) -> list[str]:
    """The steps that led somewhere."""
    steps = []
    while way is not None:
        way, place = way
        assert place.request is not None
        steps.append(f"{place.program.name}: {place.request[0]} {place.request[1]}")
    return steps[::-1]


def build(*programs: Program, start: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """What is stored after some programs have run, one after the other. A job's identity is made
    at random, so its first generation is given.
    """
    first = GenerationRecord(
        job=JobIdentity("identity"), generation=Generation(1), claimed_at=NOW, claimed_by="first"
    )
    world = World(start or {JobPaths(JOB).generation(first.generation): first.encode()})
    for program in programs:
        place = Place(program)
        while place.request is not None:
            objects, answer = world.answer(place.request)
            world, place = World(objects), place.after(answer)
        assert place.error is None, place.error
    return world.objects
