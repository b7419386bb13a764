"""`resurgence explain`: the graph of a pipeline, or the effect of a restore on its state. It runs
nothing.
"""

from __future__ import annotations

from pathlib import Path

from resurgence.cli.pipeline_file import compile_file, read_sql, settings_for
from resurgence.cli.state_dir import open_job
from resurgence.errors import ConfigError, UserError
from resurgence.graph.explain import explain_graph
from resurgence.state.inspection.checkpoints import newest_checkpoint
from resurgence.state.inspection.edits import ACCEPT_FLAG, fate_table, fates


def explain_file(
    file: Path,
    parallelism: int | None,
    udfs: Path | None,
    assignments: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print the graph."""
    settings = settings_for(assignments, config, parallelism=parallelism)
    graph = compile_file(read_sql(file), udfs)
    print(explain_graph(graph, settings.pipeline.parallelism))
    return 0


def explain_restore(
    file: Path,
    state_dir: str,
    name: str | None,
    parallelism: int | None,
    udfs: Path | None,
    assignments: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print what happens to each operator's state if this pipeline resumes from the newest
    checkpoint.
    """
    settings = settings_for(assignments, config, parallelism=parallelism)
    graph = compile_file(read_sql(file), udfs)
    view = newest_checkpoint(open_job(state_dir, name))
    if view is None:
        raise ConfigError("there are no checkpoints yet", hint="Run the job first.")
    judged = fates(
        graph,
        view.operators,
        settings.pipeline.parallelism,
        commit_pending=not view.is_committed,
    )
    print(f"from the checkpoint of epoch {view.epoch}:\n{fate_table(judged)}")
    if any(each.loses for each in judged):
        print(f"`run` refuses this pipeline unless {ACCEPT_FLAG} is passed")
    return 0


def sql_file(path: Path) -> Path:
    """Return `path`; raise UserError if it is not a file."""
    if not path.is_file():
        what = f"{path} is a directory" if Path(path).is_dir() else f"{path} does not exist"
        raise UserError(what, hint="Name a SQL file.")
    return path
