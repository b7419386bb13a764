"""Helm itself, and what it renders from our chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.builds import NoServer, go_binary

HELM_PACKAGE = "helm.sh/helm/v3/cmd/helm"
HELM_VERSION = "v3.19.5"
CHART = Path(__file__).parents[1] / "deploy" / "helm" / "resurgence"
NAMESPACE = "streams"
KUBERNETES = ("1.25.0", "1.37.0")
"""The oldest and the newest version that the chart is tested for."""

Manifest = dict[str, Any]
"""A Kubernetes object as its schema has it."""

waits_for_helm = pytest.mark.timeout(960)
"""The first test that uses Helm builds it, or waits for another process that does."""


class Refused(Exception):
    """Helm does not render these values."""


class Helm:
    """Renders the chart."""

    def __init__(self, executable: Path, folder: Path) -> None:
        self._executable = executable
        self._folder = folder

    def run(self, *arguments: str, values: dict[str, Any]) -> str:
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        done = subprocess.run(
            [str(self._executable), *arguments, "--values", str(file)],
            env={"HOME": str(self._folder), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode != 0:
            raise Refused(done.stderr + done.stdout)
        return done.stdout

    def render(self, values: dict[str, Any], version: str = KUBERNETES[-1]) -> list[Manifest]:
        """Return all objects of a release, for a version of Kubernetes."""
        place = ["--namespace", NAMESPACE, "--kube-version", version]
        text = self.run("template", "prod", str(CHART), *place, values=values)
        return [each for each in yaml.safe_load_all(text) if each is not None]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        executable = go_binary(HELM_PACKAGE, HELM_VERSION)
    except NoServer as error:
        pytest.skip(str(error))
    return Helm(executable, tmp_path_factory.mktemp("helm"))


def one(manifests: list[Manifest], kind: str, name: str = "prod-resurgence") -> Manifest:
    """Return the object of that kind and name."""
    (found,) = (
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return found
