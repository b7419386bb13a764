"""Run a short form of every benchmark, one after the other, with a progress bar.

The short forms take about twenty minutes on two cores. They show whether a benchmark runs, and the
order of its figures; README.md has the commands whose figures are published. Those that write JSON
write it to benchmarks/results.

    python -m benchmarks.short [NAME]...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SHORT: dict[str, tuple[str, ...]] = {
    "window_aggregate": ("--large-epochs", "9", "--small-epochs", "41", "--rounds", "1"),
    "nexmark": (
        *("--queries", "q0,q5,q17", "--rows", "200000", "--epoch-rows", "50000"),
        *("--repetitions", "1"),
    ),
    "keyed_state": ("--keys", "100000,1000000", "--epochs", "16"),
    "keyed_rows": ("--keys", "100000,1000000", "--epochs", "16"),
    "recovery": ("--kills", "2", "--rounds", "1"),
    "restore": ("--keys", "10000,1000000", "--repetitions", "1"),
    "day": ("--minutes", "1"),
    "checkpoints": ("--most-files", "1000", "--most-epochs", "100"),
    "json_lines": ("--rows", "500000", "--turns", "2"),
    "object_store": ("--epochs", "6"),
    "kafka": ("--only", "flat", "--rows", "100000", "--epochs", "8"),
    "lakehouse": ("--rate", "20000", "--seconds", "60"),
    "control_plane": ("--jobs", "100", "--minutes", "0.5"),
}
"""The arguments of the short forms. A benchmark that is not in this table is not run."""

WITH_JSON = frozenset(
    {"window_aggregate", "nexmark", "keyed_state", "keyed_rows", "recovery", "restore", "day"}
)
RESULTS = Path(__file__).with_name("results")


def command(name: str) -> list[str]:
    """Return the command of a short form."""
    report = ["--json", str(RESULTS / f"{name}.json")] if name in WITH_JSON else []
    return [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *SHORT[name], *report]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[*SHORT, []], metavar="NAME")
    chosen = parser.parse_args().names or [*SHORT]
    RESULTS.mkdir(exist_ok=True)
    failed = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as progress:
        bar = progress.add_task("benchmarks", total=len(chosen))
        for name in chosen:
            progress.update(bar, description=name)
            progress.console.print(f"[bold]{name}[/bold] {' '.join(SHORT[name])}")
            done = subprocess.run(
                command(name),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            progress.console.print(done.stdout.rstrip(), markup=False, highlight=False)
            if done.returncode != 0:
                failed.append(name)
            progress.advance(bar)
    if failed:
        raise SystemExit(f"failed, or missed a bound: {', '.join(failed)}")


if __name__ == "__main__":
    main()
