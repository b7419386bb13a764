"""Spark's own code for Kubernetes with the settings of our chart: executors start as pods, by the entry
point of our image, with no more rights than our role grants.

The API server is a stand-in whose pods are processes of this machine. No live cluster is involved.
"""

from __future__ import annotations

import os
from pathlib import Path

import kubernetes_validate
import yaml

from resurgence.engine.spark.java import find_java, spark_home
from tests.helm import KUBERNETES, NAMESPACE, Helm, Manifest, helm, one, waits_for_helm
from tests.integration.conftest import Project, settings
from tests.kubernetes_api import Call, KubernetesApi

__all__ = ["helm"]

ROOT = Path(__file__).parents[2]
POD = "prod-resurgence-0"
SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}


@waits_for_helm
def test_executors_are_pods_as_the_chart_describes_them(helm: Helm, project: Project) -> None:
    manifests = helm.render({"stateDir": "s3://bucket/jobs", "settings": SMALL})
    api = KubernetesApi(
        NAMESPACE,
        rules=one(manifests, "Role")["rules"],
        entry_point=ROOT / "deploy" / "entrypoint.sh",
        environment=image_environment(),
        folder=project.folder / "pods",
    )
    api.folder.mkdir()
    with api.serving():
        api.add_pod(POD)
        done = project.run(
            *("--config", str(written_settings(manifests, project.folder))),
            *("--epoch-rows", "300"),
            *settings(
                f"spark.master=k8s://{api.url}",
                f"spark.kubernetes.executor.podTemplateFile={project.folder}/executor.yaml",
                "pipeline.start_timeout=8m",
                # The variables of the controller's container.
                "spark.driver.host=127.0.0.1",
                f"spark.kubernetes.driver.pod.name={POD}",
            ),
        )
        left = api.live_pods()
    assert done.returncode == 0, done.stderr
    assert left == []
    project.assert_exactly_once()
    assert api.refused == []
    assert Call("create", "pods") in api.calls
    executors = [each for each in api.created if each["kind"] == "Pod"]
    assert len(executors) == 2
    for executor in executors:
        assert_is_as_described(executor, manifests)


def image_environment() -> dict[str, str]:
    """Return what the image sets, for this machine."""
    java = Path(find_java().executable).parent
    return {
        "PATH": f"{java}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_HOME": str(spark_home()),
        "JDK_JAVA_OPTIONS": os.environ.get("JDK_JAVA_OPTIONS", ""),
    }


def written_settings(manifests: list[Manifest], folder: Path) -> Path:
    """Write the files of the ConfigMap; return the one with the settings."""
    for name, text in one(manifests, "ConfigMap")["data"].items():
        (folder / name).write_text(text)
    return folder / "resurgence.toml"


def assert_is_as_described(executor: Manifest, manifests: list[Manifest]) -> None:
    """The pod that Spark sent is valid, and what the other objects expect."""
    kubernetes_validate.validate(executor, KUBERNETES[-1], strict=True)
    (container,) = executor["spec"]["containers"]
    assert container["image"] == "resurgence:0.1.0"
    assert container["args"] == ["executor"]
    assert container["resources"]["limits"].keys() == {"memory"}
    described = yaml.safe_load(one(manifests, "ConfigMap")["data"]["executor.yaml"])
    (template,) = described["spec"]["containers"]
    assert container["securityContext"] == template["securityContext"]
    assert executor["spec"]["securityContext"] == described["spec"]["securityContext"]
    policy = one(manifests, "NetworkPolicy", "prod-resurgence-executors")["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert labels.items() <= executor["metadata"]["labels"].items()
    account = executor["spec"]["serviceAccountName"]
    assert one(manifests, "ServiceAccount", account)
    assert executor["spec"]["automountServiceAccountToken"] is False
    (owner,) = executor["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", POD)
    (port,) = container["ports"]
    rules = policy["ingress"][0]["ports"]
    assert [each["port"] for each in rules] == [port["containerPort"]]
