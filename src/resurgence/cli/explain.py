"""`resurgence explain`: the graph of a pipeline, without running it."""

from __future__ import annotations

from pathlib import Path

from resurgence.cli.pipeline_file import compile_file, settings_for
from resurgence.graph.explain import explain_graph


def explain_file(
    file: Path,
    parallelism: int | None,
    udfs: Path | None,
    assignments: tuple[str, ...],
    config: Path | None,
) -> int:
    """Print the graph."""
    settings = settings_for(assignments, config, parallelism=parallelism)
    graph = compile_file(file.read_text(encoding="utf-8"), udfs)
    print(explain_graph(graph, settings.pipeline.parallelism))
    return 0
