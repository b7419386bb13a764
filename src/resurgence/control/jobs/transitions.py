"""The states of a job and the legal transitions between them: one literal table, from which the
diagram in the docs is generated.
"""

from __future__ import annotations

from enum import StrEnum

from resurgence.errors import ResurgenceError


class StateName(StrEnum):
    """The states of a job."""

    CREATED = "Created"
    COMPILING = "Compiling"
    SCHEDULING = "Scheduling"
    RUNNING = "Running"
    CHECKPOINT_STOPPING = "CheckpointStopping"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FINISHING = "Finishing"
    FINISHED = "Finished"
    RECOVERING = "Recovering"
    RESCALING = "Rescaling"
    RESTARTING = "Restarting"
    FAILING = "Failing"
    FAILED = "Failed"


TERMINAL = frozenset({StateName.STOPPED, StateName.FINISHED, StateName.FAILED})

_C = StateName

EDGES: dict[StateName, frozenset[StateName]] = {
    _C.CREATED: frozenset({_C.COMPILING, _C.RUNNING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.COMPILING: frozenset({_C.SCHEDULING, _C.FINISHING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.SCHEDULING: frozenset({_C.RUNNING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.RUNNING: frozenset(
        {
            _C.CHECKPOINT_STOPPING,
            _C.STOPPING,
            _C.FINISHING,
            _C.RECOVERING,
            _C.RESCALING,
            _C.RESTARTING,
            _C.FAILING,
        }
    ),
    _C.CHECKPOINT_STOPPING: frozenset({_C.STOPPING, _C.FINISHING, _C.FAILING}),
    _C.STOPPING: frozenset({_C.STOPPED, _C.FAILING}),
    _C.FINISHING: frozenset({_C.FINISHED, _C.RECOVERING, _C.FAILING}),
    _C.RECOVERING: frozenset({_C.COMPILING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.RESCALING: frozenset({_C.COMPILING, _C.FINISHING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.RESTARTING: frozenset({_C.COMPILING, _C.FINISHING, _C.STOPPING, _C.RECOVERING, _C.FAILING}),
    _C.FAILING: frozenset({_C.FAILED}),
    _C.STOPPED: frozenset({_C.CREATED}),
    _C.FINISHED: frozenset({_C.CREATED}),
    _C.FAILED: frozenset({_C.CREATED}),
}


class IllegalTransition(ResurgenceError):
    """A transition that is not in the table: a bug."""

    code = "control.illegal_transition"


def require_edge(source: StateName, target: StateName) -> None:
    """Raise IllegalTransition unless the table has this edge."""
    if target not in EDGES[source]:
        raise IllegalTransition(f"illegal job transition from {source} to {target}")


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", f"    [*] --> {StateName.CREATED}"]
    for source in StateName:
        lines += [f"    {source} --> {target}" for target in StateName if target in EDGES[source]]
    lines += [f"    {state} --> [*]" for state in StateName if state in TERMINAL]
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
