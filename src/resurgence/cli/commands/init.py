"""`resurgence init`: a folder with a pipeline, its sample data, settings and a test."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from resurgence.cli.state_dir import Debug, run_and_exit
from resurgence.errors import ConfigError

RIDES = 2_400
_TEMPLATES = {
    "rides.sql": "rides.sql",
    "resurgence.toml": "resurgence.toml",
    "test_rides.py": "test_rides.py",
    "README.md": "README.md",
    "gitignore": ".gitignore",
}
"""The files of the project by the names of their templates."""
_SAMPLE = "data/rides.json"


def init_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder; it is created if necessary.")
    ],
    debug: Debug = False,
) -> None:
    """Create a project: a pipeline with sample data, settings and a test."""
    run_and_exit(debug, lambda: create_project(folder))


def create_project(folder: Path) -> int:
    """Write the files and say what to do next. An existing file is never changed."""
    contents = project_files()
    existing = [name for name in contents if (folder / name).exists()]
    if existing:
        raise ConfigError(
            f"{folder / existing[0]} already exists", hint="Choose a folder without it."
        )
    try:
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write to {folder}: {error.strerror or error}", hint="Choose another folder."
        ) from error
    print(f"created in {folder}: {', '.join(contents)}")
    print(
        f"next: cd {folder}\n"
        "      resurgence check rides.sql      is it valid, and what does it do?\n"
        "      resurgence preview rides.sql    its first rows\n"
        "      resurgence run rides.sql        run it; the same command again resumes it"
    )
    return 0


def project_files() -> dict[str, str]:
    """Return the text of each file of a project by its name."""
    templates = resources.files("resurgence.cli") / "project"
    texts = {
        name: (templates / template).read_text(encoding="utf-8")
        for template, name in _TEMPLATES.items()
    }
    return {**texts, _SAMPLE: "".join(f"{json.dumps(each)}\n" for each in sample_rides())}


def sample_rides() -> Iterator[dict[str, object]]:
    """Yield a day of rides, slightly out of order. They are the same every time."""
    generator = random.Random(2024)
    day = timedelta(days=1)
    for number in range(RIDES):
        at = datetime(2024, 3, 1) + day * number / RIDES
        late = timedelta(seconds=generator.randint(0, 25)) if number else timedelta()
        yield {
            "at": (at - late).isoformat(timespec="seconds"),
            "driver": generator.randint(1, 50),
            "kind": generator.choice(["city", "city", "airport"]),
            "price": generator.randint(500, 9000) / 100,
        }
