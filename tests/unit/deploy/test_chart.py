"""The Helm chart: what Helm renders is valid, and names what exists in Resurgence."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from tests.helm import (
    CHART,
    KUBERNETES,
    NAMESPACE,
    Helm,
    Manifest,
    Refused,
    helm,
    one,
    waits_for_helm,
)
from tests.unit.api.simulated_service import SimulatedController

import resurgence
from resurgence.api.access.guard import OPEN_PATHS, Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.app import make_app
from resurgence.cli.app import app
from resurgence.config import Settings, load_settings
from resurgence.engine.spark.session import session_conf

__all__ = ["helm"]
pytestmark = waits_for_helm

STATE_DIR = "s3://bucket/jobs"
PLAIN: dict[str, Any] = {"stateDir": STATE_DIR}
LOCAL: dict[str, Any] = {
    "stateDir": "gs://bucket/jobs",
    "replicas": 1,
    "executors": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "ports": {"api": 8080},
    "service": {"port": 80},
}
FULL: dict[str, Any] = {
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
    "nodeSelector": {"pool": "drivers"},
    "tolerations": [{"key": "drivers", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/a"}},
    "executors": {
        "instances": 4,
        "nodeSelector": {"pool": "executors"},
        "tolerations": [{"key": "executors", "operator": "Exists"}],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/b"}},
    },
    "networkPolicy": {
        "apiFrom": [{"namespaceSelector": {"matchLabels": {"team": "data"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
}
VARIANTS = [
    pytest.param(each, id=name)
    for name, each in (("plain", PLAIN), ("local", LOCAL), ("full", FULL))
]


def controller(manifests: list[Manifest]) -> Manifest:
    """Return the pod of a controller."""
    pod: Manifest = one(manifests, "Deployment")["spec"]["template"]["spec"]
    return pod


def settings_of(manifests: list[Manifest], folder: Path) -> Settings:
    """Return the settings of a controller, read from its file and its variables."""
    file = folder / "resurgence.toml"
    file.write_text(one(manifests, "ConfigMap")["data"]["resurgence.toml"])
    (container,) = controller(manifests)["containers"]
    environment = {each["name"]: each.get("value", "from-the-pod") for each in container["env"]}
    return load_settings(toml_file=file, environment=environment)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", VARIANTS)
def test_every_object_is_valid_in_kubernetes(
    helm: Helm, values: dict[str, Any], version: str
) -> None:
    manifests = helm.render(values, version)
    templates = [
        yaml.safe_load(each["data"]["executor.yaml"])
        for each in manifests
        if "executor.yaml" in each.get("data", {})
    ]
    assert {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"} <= {
        each["kind"] for each in manifests
    }
    for manifest in [*manifests, *templates]:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("values", VARIANTS)
def test_helm_finds_no_fault(helm: Helm, values: dict[str, Any]) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), values=values)


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == resurgence.__version__


@pytest.mark.parametrize("values", VARIANTS)
def test_the_arguments_of_every_container_are_those_of_our_commands(
    helm: Helm, values: dict[str, Any]
) -> None:
    pod = controller(helm.render(values))
    command = typer.main.get_command(app)
    for container in [*pod["initContainers"], *pod["containers"]]:
        parse(command, container["args"])
    (serving,) = pod["containers"]
    assert serving["args"][serving["args"].index("--state-dir") + 1] == values["stateDir"]


def parse(command: Any, arguments: list[str]) -> None:
    """Parse a command line as the command does, without running it."""
    context = command.make_context("resurgence", list(arguments), resilient_parsing=False)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("values", VARIANTS)
def test_probes_ask_for_paths_that_need_no_key(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.render(values)
    (container,) = controller(manifests)["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "liveness": "/health",
        "readiness": "/ready",
    }
    paths = make_app(SimulatedController(Path()), Guard(), KeyRing(list)).openapi()["paths"]
    assert {each["path"] for each in probes.values()} <= set(paths) & OPEN_PATHS
    (port,) = container["ports"]
    assert {each["port"] for each in probes.values()} == {port["name"]}
    listens_on = container["args"][container["args"].index("--port") + 1]
    assert listens_on == str(port["containerPort"])
    (service_port,) = one(manifests, "Service")["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]


@pytest.mark.parametrize("values", VARIANTS)
def test_a_controller_has_time_for_the_last_checkpoint(
    helm: Helm, values: dict[str, Any], tmp_path: Path
) -> None:
    manifests = helm.render(values)
    stop_timeout = settings_of(manifests, tmp_path).pipeline.stop_timeout.total_seconds()
    assert stop_timeout == values.get("stopTimeoutSeconds", 120)
    assert controller(manifests)["terminationGracePeriodSeconds"] >= stop_timeout + 30


def test_settings_arrive_as_they_are_written(helm: Helm, tmp_path: Path) -> None:
    settings = settings_of(helm.render(FULL), tmp_path)
    assert settings.pipeline.epoch_rows == 250_000_000
    assert settings.checkpoint.accept_state_loss is True
    assert settings.controller.webhook_secret == "${env:WEBHOOK_SECRET}"
    assert settings.spark["spark.executor.extraJavaOptions"] == '-Dquoted="a \\ b" <x>'
    assert settings.spark["spark.executor.memory"] == "6g"
    assert settings.spark["spark.dynamicAllocation.enabled"] == "true"


def test_executors_are_pods_of_the_same_image_and_namespace(helm: Helm, tmp_path: Path) -> None:
    manifests = helm.render(FULL)
    spark = settings_of(manifests, tmp_path).spark
    session_conf(app_name="a", master=spark["spark.master"], shuffle_partitions=2, conf=spark)
    assert spark["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert spark["spark.kubernetes.namespace"] == NAMESPACE
    (container,) = controller(manifests)["containers"]
    assert spark["spark.kubernetes.container.image"] == container["image"]
    assert spark["spark.kubernetes.container.image.pullSecrets"] == "pull"
    assert spark["spark.executor.instances"] == "4"
    account = spark["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert one(manifests, "ServiceAccount", account)["automountServiceAccountToken"] is False
    assert {"spark.driver.host", "spark.kubernetes.driver.pod.name"} <= set(spark)
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "settings")
    template = Path(spark["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == mount["mountPath"]
    assert template.name in one(manifests, "ConfigMap")["data"]


def test_without_executors_spark_is_local_and_the_pod_cannot_call_kubernetes(
    helm: Helm, tmp_path: Path
) -> None:
    manifests = helm.render(LOCAL)
    assert settings_of(manifests, tmp_path).spark == {}
    assert controller(manifests)["automountServiceAccountToken"] is False
    assert {"Role", "RoleBinding", "NetworkPolicy"} & {each["kind"] for each in manifests} == set()


def test_network_policies_allow_the_ports_that_spark_uses(helm: Helm, tmp_path: Path) -> None:
    manifests = helm.render(FULL)
    spark = settings_of(manifests, tmp_path).spark
    tries = int(spark["spark.port.maxRetries"])

    def ports(key: str) -> tuple[int, int]:
        return int(spark[key]), int(spark[key]) + tries

    to_driver = {ports("spark.driver.port"), ports("spark.driver.blockManager.port")}
    to_executor = {ports("spark.blockManager.port")}
    drivers = one(manifests, "NetworkPolicy", "prod-resurgence-controllers")["spec"]
    executors = one(manifests, "NetworkPolicy", "prod-resurgence-executors")["spec"]
    assert allowed(drivers["ingress"], "from", "executor") == to_driver
    assert allowed(executors["egress"], "to", "controller") == to_driver
    assert allowed(drivers["egress"], "to", "executor") == to_executor
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        assert allowed(executors[direction], peers, "executor") == to_executor
    assert allowed(executors["ingress"], "from", "controller") == to_executor
    api = drivers["ingress"][0]
    assert api["from"] == FULL["networkPolicy"]["apiFrom"]
    (container,) = controller(manifests)["containers"]
    assert api["ports"] == [{"port": container["ports"][0]["containerPort"]}]
    for policy in (drivers, executors):
        open_ports = {
            each["port"] for rule in policy["egress"] if "to" not in rule for each in rule["ports"]
        }
        assert open_ports == {53, 443, 6443, 5432}
        assert FULL["networkPolicy"]["extraEgress"][0] in policy["egress"]


def allowed(rules: list[Manifest], peers: str, component: str) -> set[tuple[int, int]]:
    """Return the ranges of ports that rules allow from or to the pods of a component."""
    return {
        (each["port"], each["endPort"])
        for rule in rules
        for peer in rule.get(peers, [])
        if peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
        == component
        for each in rule["ports"]
    }


@pytest.mark.parametrize("values", VARIANTS)
def test_selectors_match_the_labels_of_the_pods(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.render(values)
    pods = [one(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]]
    template = one(manifests, "ConfigMap")["data"].get("executor.yaml")
    if template is not None:
        pods.append(yaml.safe_load(template)["metadata"]["labels"])
    selectors = [
        selector
        for each in manifests
        for selector in labels_selected(each.get("spec"))
        if "app.kubernetes.io/name" in selector
    ]
    assert selectors
    for selector in selectors:
        matching = [each for each in pods if selector.items() <= each.items()]
        assert len(matching) == 1


def labels_selected(spec: Any) -> Iterator[dict[str, str]]:
    """Yield every label selector of an object."""
    if isinstance(spec, list):
        for each in spec:
            yield from labels_selected(each)
    elif isinstance(spec, dict):
        for key, each in spec.items():
            if key == "matchLabels" or (key == "selector" and "matchLabels" not in each):
                yield each
            else:
                yield from labels_selected(each)


def test_secrets_are_referenced_and_never_rendered(helm: Helm) -> None:
    manifests = helm.render(FULL)
    assert "Secret" not in {each["kind"] for each in manifests}
    pod = controller(manifests)
    for container in [*pod["initContainers"], *pod["containers"]]:
        variables = {each["name"]: each for each in container["env"]}
        assert variables["RESURGENCE_DATABASE"]["valueFrom"] == {
            "secretKeyRef": {"name": "postgres", "key": "uri"}
        }
        assert "value" not in variables["RESURGENCE_DATABASE"]
    (container,) = pod["containers"]
    assert container["envFrom"] == [
        {"secretRef": {"name": "storage"}},
        {"secretRef": {"name": "kafka"}},
    ]
    imports = [each["args"] for each in pod["initContainers"]]
    folder = pod["initContainers"][0]["volumeMounts"][0]["mountPath"]
    assert imports == [
        ["keys", "import", name, f"{folder}/{name}", "--role", role]
        for name, role in (("admin", "write"), ("ci", "write"), ("grafana", "read"))
    ]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "api-keys")
    assert volume["secret"]["secretName"] == "keys"


@pytest.mark.parametrize("values", VARIANTS)
def test_pods_meet_the_restricted_security_standard(helm: Helm, values: dict[str, Any]) -> None:
    manifests = helm.render(values)
    pods = [controller(manifests)]
    template = one(manifests, "ConfigMap")["data"].get("executor.yaml")
    if template is not None:
        pods.append(yaml.safe_load(template)["spec"])
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            mounted = {each["mountPath"] for each in container["volumeMounts"]}
            assert {"/tmp", "/var/lib/resurgence"} <= mounted


def test_a_change_of_settings_restarts_the_controllers(helm: Helm) -> None:
    checksums = {
        json.dumps(
            one(helm.render(each), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        )
        for each in (PLAIN, PLAIN | {"settings": {"pipeline.parallelism": 8}}, PLAIN)
    }
    assert len(checksums) == 2


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "stateDir is required"),
        ({"stateDir": "/var/state"}, "stateDir"),
        ({"stateDir": "s3://user:password@bucket/jobs"}, "stateDir"),
        (PLAIN | {"settings": {"pipeline.stop_timeout": "5m"}}, "stop_timeout"),
        (PLAIN | {"settings": {"pipelines.parallelism": 4}}, "pipelines"),
        (PLAIN | {"apiKeys": {"write": []}}, "write"),
        (PLAIN | {"replica": 3}, "replica"),
    ],
)
def test_wrong_values_are_refused(helm: Helm, values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        helm.render(values)


def test_the_settings_file_is_flat_text(helm: Helm) -> None:
    text = one(helm.render(FULL), "ConfigMap")["data"]["resurgence.toml"]
    assert all(isinstance(each, str) for each in tomllib.loads(text).values())
