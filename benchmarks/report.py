"""What the benchmarks share: ratios with their spread, goals, and reports as text, JSON and plots.

A report holds figures, each with the values of all repetitions, and ratios of two figures. A ratio
is that of the medians. Its spread is from the lower quartile of one figure over the upper quartile
of the other one to the reverse, so it covers the noise of both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Spread:
    """A figure of several repetitions: its median and quartiles."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


@dataclass(frozen=True)
class Goal:
    """A bound of a ratio."""

    bound: float
    is_minimum: bool = False

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.bound if self.is_minimum else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.is_minimum else '≤'} {self.bound:g}"


def at_most(bound: float) -> Goal:
    return Goal(bound)


def at_least(bound: float) -> Goal:
    return Goal(bound, is_minimum=True)


@dataclass(frozen=True)
class Figure:
    """What one system needed in one case: the values of all repetitions."""

    measure: str
    """What is measured, with its unit. A plot has one panel for each measure."""
    case: str
    system: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Series:
    """What one system needed along a scale, such as time or size."""

    measure: str
    scale: str
    system: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Ratio:
    """One figure over another one, and the goal of that."""

    name: str
    spread: Spread
    goal: Goal | None = None

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.goal.is_met(self.spread.median)

    def __str__(self) -> str:
        text = f"{self.name:58} {self.spread.median:7.2f}"
        if self.spread.low != self.spread.high:
            text += f" ({self.spread.low:.2f} to {self.spread.high:.2f})"
        if self.goal is not None:
            text += f"  goal {self.goal}: {'met' if self.is_met else 'NOT MET'}"
        return text


def ratio(
    name: str, values: Sequence[float], base: Sequence[float], goal: Goal | None = None
) -> Ratio:
    """Return the ratio of two figures: the first one over `base`."""
    above, below = spread_of(values), spread_of(base)
    found = Spread(above.median / below.median, above.low / below.high, above.high / below.low)
    return Ratio(name, found, goal)


class Report:
    """The figures and ratios of one run of a benchmark."""

    def __init__(self, benchmark: str, options: argparse.Namespace) -> None:
        self._benchmark = benchmark
        self._options = options
        self.figures: list[Figure] = []
        self.series: list[Series] = []
        self.ratios: list[Ratio] = []

    def add(self, measure: str, case: str, system: str, values: Sequence[float]) -> None:
        self.figures.append(Figure(measure, case, system, tuple(values)))

    def add_series(
        self, measure: str, scale: str, system: str, points: Sequence[tuple[float, float]]
    ) -> None:
        self.series.append(Series(measure, scale, system, tuple(points)))

    def compare(
        self,
        name: str,
        values: Sequence[float],
        base: Sequence[float],
        goal: Goal | None = None,
    ) -> None:
        """Add the ratio of two figures, and print it."""
        self.ratios.append(ratio(name, values, base, goal))
        print(f"  {self.ratios[-1]}", flush=True)

    def save(self) -> None:
        """Write what `--json` and `--plot` ask for."""
        if self._options.json is not None:
            self._options.json.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        if self._options.plot is not None:
            self._plot(self._options.plot)

    def as_json(self) -> dict[str, Any]:
        hidden = {"json", "plot"}
        return {
            "benchmark": self._benchmark,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "cores": os.cpu_count(),
            "options": {
                name: value if isinstance(value, int | float | bool) else str(value)
                for name, value in vars(self._options).items()
                if name not in hidden and value is not None
            },
            "figures": [asdict(each) | asdict(spread_of(each.values)) for each in self.figures],
            "series": [asdict(each) for each in self.series],
            "ratios": [
                {
                    "name": each.name,
                    **asdict(each.spread),
                    "goal": None if each.goal is None else str(each.goal),
                    "is_met": each.is_met,
                }
                for each in self.ratios
            ],
        }

    def _plot(self, file: Path) -> None:
        """Draw one panel for each measure: bars with their quartiles, or lines."""
        # Imported here because it is an optional dependency, and slow to import.
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot

        measures = [*dict.fromkeys(each.measure for each in self.figures)]
        measures += dict.fromkeys(each.measure for each in self.series)
        columns = min(2, len(measures))
        rows = -(-len(measures) // columns)
        canvas, panels = pyplot.subplots(
            rows, columns, figsize=(7 * columns, 3.5 * rows), squeeze=False, layout="constrained"
        )
        for panel in panels.flat[len(measures) :]:
            panel.set_axis_off()
        for panel, measure in zip(panels.flat, measures, strict=False):
            panel.set_title(measure, fontsize=10)
            self._draw_bars(panel, [each for each in self.figures if each.measure == measure])
            self._draw_lines(panel, [each for each in self.series if each.measure == measure])
            panel.set_ylim(bottom=0)
            if panel.get_legend_handles_labels()[1]:
                panel.legend(fontsize=8)
        canvas.suptitle(self._benchmark)
        canvas.savefig(file)
        pyplot.close(canvas)

    def _draw_bars(self, panel: Axes, figures: Sequence[Figure]) -> None:
        if not figures:
            return
        cases = [*dict.fromkeys(each.case for each in figures)]
        systems = [*dict.fromkeys(each.system for each in figures)]
        width = 0.8 / len(systems)
        for number, system in enumerate(systems):
            own = [each for each in figures if each.system == system]
            spreads = [spread_of(each.values) for each in own]
            panel.bar(
                [cases.index(each.case) + number * width for each in own],
                [each.median for each in spreads],
                width,
                label=system,
                yerr=[
                    [each.median - each.low for each in spreads],
                    [each.high - each.median for each in spreads],
                ],
                capsize=2,
            )
        middle = 0.4 - width / 2
        places = [number + middle for number in range(len(cases))]
        panel.set_xticks(
            places,
            cases,
            fontsize=8,
            rotation=30 if len(cases) > 4 else 0,
            ha="right" if len(cases) > 4 else "center",
        )

    def _draw_lines(self, panel: Axes, series: Sequence[Series]) -> None:
        for each in series:
            panel.plot(*zip(*each.points, strict=True), label=each.system, linewidth=1)
            panel.set_xlabel(each.scale)


def commit() -> str | None:
    """Return the commit that is measured, marked if there are changes beyond it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None


def add_profile_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        action="store_true",
        help="run Resurgence alone, and print where the time of its epochs goes",
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw them, as SVG, PNG or PDF (pip install -e '.[bench]')",
    )
