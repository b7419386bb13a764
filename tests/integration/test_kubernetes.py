"""Spark's own code for Kubernetes with the settings of our chart: executors start as pods, by the entry
point of our image, and the driver does all that our role grants and nothing else.

The API server is a stand-in whose pods are processes of this machine. No live cluster is involved.
"""

from __future__ import annotations

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from resurgence.engine.spark.java import find_java, spark_home
from tests.helm import KUBERNETES, NAMESPACE, ROOT, Manifest, one, stored
from tests.integration.conftest import DEADLINE_SECONDS, Project, settings
from tests.kubernetes_api import KubernetesApi

POD = "prod-resurgence-0"
POD_ADDRESS = "127.0.0.2"
SMALL = ("spark.driver.memory=512m", "spark.executor.memory=1g")


@pytest.mark.long
def test_executors_are_pods_as_the_chart_describes_them(project: Project) -> None:
    manifests = stored("plain")
    (rule,) = one(manifests, "Role")["rules"]
    api = KubernetesApi(
        NAMESPACE,
        rules=[rule],
        entry_point=ROOT / "deploy" / "entrypoint.sh",
        environment=image_environment(),
        folder=project.folder / "pods",
    )
    api.folder.mkdir()
    with api.serving():
        api.add_pod(POD)
        process = project.start(
            *("--config", str(written_settings(manifests, project.folder))),
            *("--epoch-rows", "200"),
            *settings(
                f"spark.master=k8s://{api.url}",
                f"spark.kubernetes.executor.podTemplateFile={project.folder}/executor.yaml",
                "pipeline.start_timeout=3m",
                *SMALL,
                # The variables of the controller's container.
                f"spark.driver.host={POD_ADDRESS}",
                f"spark.kubernetes.driver.pod.name={POD}",
            ),
        )
        project.wait_for("committed")
        api.kill(next(iter(api.live_pods())))
        project.wait_for("executor_lost")
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
        left = api.pods()
    assert process.returncode == 0, err
    project.assert_exactly_once()
    # The killed executor was replaced, and the job ended without a recovery and left no pods.
    executors = api.created
    assert {each["kind"] for each in executors} == {"Pod"}
    assert len(executors) == 3
    assert project.events("recovery_started") == []
    assert left == [POD]
    assert api.refused == []
    assert {each.verb for each in api.calls} == set(rule["verbs"])
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
    # The heap, and 40% for the Python processes.
    assert container["resources"]["limits"] == {"memory": "1433Mi"}
    described = yaml.safe_load(one(manifests, "ConfigMap")["data"]["executor.yaml"])
    (template,) = described["spec"]["containers"]
    assert container["securityContext"] == template["securityContext"]
    assert executor["spec"]["securityContext"] == described["spec"]["securityContext"]
    policy = one(manifests, "NetworkPolicy", "prod-resurgence-executors")["spec"]
    labels = policy["podSelector"]["matchLabels"]
    assert labels.items() <= executor["metadata"]["labels"].items()
    variables = {each["name"]: each.get("value") for each in container["env"]}
    driver = f"{POD_ADDRESS}:20000"
    assert variables["SPARK_DRIVER_URL"] == f"spark://CoarseGrainedScheduler@{driver}"
    account = executor["spec"]["serviceAccountName"]
    assert one(manifests, "ServiceAccount", account)
    assert executor["spec"]["automountServiceAccountToken"] is False
    (owner,) = executor["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", POD)
    (port,) = container["ports"]
    rules = policy["ingress"][0]["ports"]
    assert [each["port"] for each in rules] == [port["containerPort"]]
