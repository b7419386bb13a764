"""Helm itself, and what it renders from our chart.

To build Helm takes minutes, so only long tests run it. The others read what it rendered last, in
`tests/unit/deploy/rendered`; they fail if the chart has changed since. After a change of the chart:

    python -m tests.helm
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.servers.builds import go_binary

HELM_PACKAGE = "helm.sh/helm/v3/cmd/helm"
HELM_VERSION = "v3.19.5"
ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "resurgence"
RENDERED = ROOT / "tests" / "unit" / "deploy" / "rendered"
NAMESPACE = "streams"
KUBERNETES = ("1.25.0", "1.37.0")
"""The oldest and the newest version that the chart is tested for."""

Manifest = dict[str, Any]
"""A Kubernetes object as its schema has it."""

Values = dict[str, Any]
"""What a user writes into a values file."""

VARIANTS: dict[str, Values] = {
    "plain": {"stateDir": "s3://bucket/jobs"},
    "local": {
        "stateDir": "gs://bucket/jobs",
        "replicas": 1,
        "executors": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "ports": {"api": 8080},
        "service": {"port": 80},
    },
    "full": {
        "stateDir": "az://container/jobs",
        "replicas": 3,
        "database": {"existingSecret": "postgres", "key": "uri"},
        "apiKeys": {"existingSecret": "keys", "write": ["admin", "ci"], "read": ["grafana"]},
        "image": {"repository": "registry.example/streams", "tag": "7", "pullSecrets": ["pull"]},
        "settings": {
            "pipeline.epoch_rows": 250_000_000,
            "checkpoint.accept_state_loss": True,
            "controller.webhook_secret": "${env:WEBHOOK_SECRET}",
            "spark.executor.memory": "6g",
            "spark.dynamicAllocation.enabled": True,
            "spark.executor.extraJavaOptions": '-Dquoted="a \\ b" <x>',
        },
        "stopTimeoutSeconds": 600,
        "env": {"AWS_REGION": "eu-central-1"},
        "envFromSecrets": ["storage", "kafka"],
        "secretFiles": ["certificates"],
        "nodeSelector": {"pool": "drivers"},
        "tolerations": [{"key": "drivers", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}},
        "executors": {
            "instances": 4,
            "nodeSelector": {"pool": "executors"},
            "tolerations": [{"key": "executors", "operator": "Exists"}],
            "serviceAccount": {
                "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/b"}
            },
        },
        "networkPolicy": {
            "apiFrom": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}],
            "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
    },
}


class Refused(Exception):
    """Helm does not render these values."""


def build() -> Path:
    """Return Helm's program, built once per machine; raise NoServer if that is not possible."""
    return go_binary(HELM_PACKAGE, HELM_VERSION)


def render(values: Values) -> list[Manifest]:
    """Return all objects of a release."""
    return _parsed(render_text(values))


def render_text(values: Values) -> str:
    version = ["--kube-version", KUBERNETES[-1]]
    return run("template", "prod", str(CHART), "--namespace", NAMESPACE, *version, values=values)


def run(*arguments: str, values: Values) -> str:
    """Run Helm; return what it prints, or raise Refused."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "values.yaml")
        file.write_text(yaml.safe_dump(values))
        done = subprocess.run(
            [str(build()), *arguments, "--values", str(file)],
            env={"HOME": folder, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
    if done.returncode != 0:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def stored(variant: str) -> list[Manifest]:
    """Return the objects that Helm rendered last."""
    return _parsed(stored_file(variant).read_text())


def stored_file(variant: str) -> Path:
    return RENDERED / f"{variant}.yaml"


def header(variant: str) -> str:
    """Return the first line of a stored file. It is another one if the chart or the values are."""
    digest = hashlib.sha256(json.dumps(VARIANTS[variant], sort_keys=True).encode())
    for file in sorted(each for each in CHART.rglob("*") if each.is_file()):
        digest.update(f"\n{file.relative_to(CHART)}\n".encode() + file.read_bytes())
    return f"# Rendered by `python -m tests.helm`; chart and values {digest.hexdigest()[:16]}"


def one(manifests: list[Manifest], kind: str, name: str = "prod-resurgence") -> Manifest:
    """Return the object of that kind and name."""
    (found,) = (
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return found


def _parsed(text: str) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(text) if each is not None]


if __name__ == "__main__":
    RENDERED.mkdir(exist_ok=True)
    for each, chosen in VARIANTS.items():
        stored_file(each).write_text(f"{header(each)}\n{render_text(chosen)}")
        print(stored_file(each).relative_to(ROOT))
