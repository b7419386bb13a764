"""Installs examples/connector_package as a user would, into its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "connector_package"


def install_example(folder: Path) -> Path:
    """Install it with pip, without asking the network for anything; the folder."""
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *flags, "--target", str(folder), str(EXAMPLE)],
        check=True,
        timeout=120,
    )
    return folder


def resurgence(*arguments: str, packages: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command, with the packages in a folder installed."""
    path = [str(packages)] if packages else []
    return subprocess.run(
        [sys.executable, "-m", "resurgence", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=240,
    )
