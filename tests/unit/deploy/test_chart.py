"""What Helm rendered from the chart: it is valid, and names what exists in Resurgence.

`test_helm.py` compares it with what Helm renders now.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import typer
import yaml
from tests.helm import (
    CHART,
    KUBERNETES,
    NAMESPACE,
    VARIANTS,
    Manifest,
    Values,
    header,
    one,
    stored,
    stored_file,
)
from tests.unit.api.simulated_service import SimulatedController

import resurgence
from resurgence.api.access.guard import OPEN_PATHS, Guard
from resurgence.api.access.key_ring import KeyRing
from resurgence.api.app import make_app
from resurgence.cli.app import app
from resurgence.config import Settings, load_settings
from resurgence.engine.spark.session import session_conf

FULL = VARIANTS["full"]
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
def test_what_helm_rendered_is_not_older_than_the_chart(variant: str) -> None:
    first_line = stored_file(variant).read_text().splitlines()[0]
    assert first_line == header(variant), "run `python -m tests.helm`"


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
@every_variant
def test_every_object_is_valid_in_kubernetes(variant: str, version: str) -> None:
    manifests = stored(variant)
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


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == resurgence.__version__


@every_variant
def test_the_arguments_of_every_container_are_those_of_our_commands(variant: str) -> None:
    pod = controller(stored(variant))
    command = typer.main.get_command(app)
    for container in [*pod["initContainers"], *pod["containers"]]:
        parse(command, container["args"])
    (serving,) = pod["containers"]
    assert (
        serving["args"][serving["args"].index("--state-dir") + 1] == VARIANTS[variant]["stateDir"]
    )


def parse(command: Any, arguments: list[str]) -> None:
    """Parse a command line as the command does, without running it."""
    context = command.make_context("resurgence", list(arguments), resilient_parsing=False)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)


@every_variant
def test_probes_ask_for_paths_that_need_no_key(variant: str) -> None:
    manifests = stored(variant)
    (container,) = controller(manifests)["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("liveness", "readiness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "liveness": "/health",
        "readiness": "/ready",
    }
    assert {each["path"] for each in probes.values()} <= served_paths() & OPEN_PATHS
    (port,) = container["ports"]
    assert {each["port"] for each in probes.values()} == {port["name"]}
    listens_on = container["args"][container["args"].index("--port") + 1]
    assert listens_on == str(port["containerPort"])
    (service_port,) = one(manifests, "Service")["spec"]["ports"]
    assert service_port["targetPort"] == port["name"]


@functools.cache
def served_paths() -> frozenset[str]:
    """Return the paths of the API."""
    application = make_app(SimulatedController(Path()), Guard(), KeyRing(list))
    return frozenset(application.openapi()["paths"])


@every_variant
def test_a_controller_has_time_for_the_last_checkpoint(variant: str, tmp_path: Path) -> None:
    manifests = stored(variant)
    stop_timeout = settings_of(manifests, tmp_path).pipeline.stop_timeout.total_seconds()
    assert stop_timeout == VARIANTS[variant].get("stopTimeoutSeconds", 120)
    assert controller(manifests)["terminationGracePeriodSeconds"] >= stop_timeout + 30


def test_settings_arrive_as_they_are_written(tmp_path: Path) -> None:
    settings = settings_of(stored("full"), tmp_path)
    assert settings.pipeline.epoch_rows == 250_000_000
    assert settings.checkpoint.accept_state_loss is True
    assert settings.controller.webhook_secret == "${env:WEBHOOK_SECRET}"
    assert settings.spark["spark.executor.extraJavaOptions"] == '-Dquoted="a \\ b" <x>'
    assert settings.spark["spark.executor.memory"] == "6g"
    assert settings.spark["spark.dynamicAllocation.enabled"] == "true"


def test_executors_are_pods_of_the_same_image_and_namespace(tmp_path: Path) -> None:
    manifests = stored("full")
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
    template = Path(spark["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == mount_paths(container)["settings"]
    assert template.name in one(manifests, "ConfigMap")["data"]


def test_without_executors_spark_is_local_and_the_pod_cannot_call_kubernetes(
    tmp_path: Path,
) -> None:
    manifests = stored("local")
    assert settings_of(manifests, tmp_path).spark == {}
    assert controller(manifests)["automountServiceAccountToken"] is False
    assert {"Role", "RoleBinding", "NetworkPolicy"} & {each["kind"] for each in manifests} == set()


def test_network_policies_allow_the_ports_that_spark_uses(tmp_path: Path) -> None:
    manifests = stored("full")
    spark = settings_of(manifests, tmp_path).spark
    tries = int(spark["spark.port.maxRetries"])
    first = [int(spark[f"spark.driver.{each}"]) for each in ("port", "blockManager.port")]
    to_driver = {(each, each + tries) for each in first}
    # Each executor has an address of its own.
    to_executor = {(int(spark["spark.blockManager.port"]), None)}
    drivers = one(manifests, "NetworkPolicy", "prod-resurgence-controllers")["spec"]
    executors = one(manifests, "NetworkPolicy", "prod-resurgence-executors")["spec"]
    assert allowed(drivers["ingress"], "from", "executor") == to_driver
    assert allowed(executors["egress"], "to", "controller") == to_driver
    assert allowed(drivers["egress"], "to", "executor") == to_executor
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        assert allowed(executors[direction], peers, "executor") == to_executor
    assert allowed(executors["ingress"], "from", "controller") == to_executor
    (container,) = controller(manifests)["containers"]
    port = container["ports"][0]["containerPort"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["RESURGENCE_CONTROLLER__URL"] == f"http://$(POD_IP):{port}"
    assert allowed(drivers["ingress"], "from", "controller") == {(port, None)}
    assert allowed(drivers["egress"], "to", "controller") == {(port, None)}
    api = drivers["ingress"][0]
    assert api["from"] == FULL["networkPolicy"]["apiFrom"]
    assert api["ports"] == [{"port": port}]
    for policy in (drivers, executors):
        open_ports = {
            each["port"] for rule in policy["egress"] if "to" not in rule for each in rule["ports"]
        }
        assert open_ports == {53, 443, 6443, 5432}
        assert FULL["networkPolicy"]["extraEgress"][0] in policy["egress"]


def allowed(rules: list[Manifest], peers: str, component: str) -> set[tuple[int, int | None]]:
    """Return the ranges of ports that rules allow from or to the pods of a component."""
    return {
        (each["port"], each.get("endPort"))
        for rule in rules
        for peer in rule.get(peers, [])
        if peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
        == component
        for each in rule["ports"]
    }


@every_variant
def test_selectors_match_the_labels_of_the_pods(variant: str) -> None:
    manifests = stored(variant)
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


def test_secrets_are_referenced_and_never_rendered() -> None:
    manifests = stored("full")
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
    folder = mount_paths(pod["initContainers"][0])["api-keys"]
    assert "api-keys" not in mount_paths(container)
    assert imports == [
        ["keys", "import", name, f"{folder}/{name}", "--role", role]
        for name, role in (("admin", "write"), ("ci", "write"), ("grafana", "read"))
    ]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["api-keys"]["secret"]["secretName"] == "keys"
    assert volumes["secret-certificates"]["secret"]["secretName"] == "certificates"
    # The connection to the database may need a certificate, when keys are imported, too.
    for each in (*pod["initContainers"], container):
        paths = mount_paths(each)
        assert paths["secret-certificates"] == "/etc/resurgence-secrets/certificates"


def mount_paths(container: Manifest) -> dict[str, str]:
    """Return where each volume is mounted."""
    return {each["name"]: each["mountPath"] for each in container["volumeMounts"]}


@every_variant
def test_every_mounted_volume_exists_and_every_volume_is_mounted(variant: str) -> None:
    pod = controller(stored(variant))
    mounted = {
        name for each in (*pod["initContainers"], *pod["containers"]) for name in mount_paths(each)
    }
    assert mounted == {each["name"] for each in pod["volumes"]}


@every_variant
def test_pods_meet_the_restricted_security_standard(variant: str) -> None:
    manifests = stored(variant)
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
            mounted = set(mount_paths(container).values())
            assert {"/tmp", "/var/lib/resurgence"} <= mounted


WRONG: list[tuple[Values, str]] = [
    ({"stateDir": "/var/state"}, "stateDir"),
    ({"stateDir": "s3://user:password@bucket/jobs"}, "stateDir"),
    ({"settings": {"pipeline.stop_timeout": "5m"}}, "$.settings"),
    ({"settings": {"pipelines.parallelism": 4}}, "pipelines.parallelism"),
    ({"apiKeys": {"write": []}}, "write"),
    ({"env": {"AWS_SECRET_ACCESS_KEY": "a"}}, "AWS_SECRET_ACCESS_KEY"),
    ({"env": {"RESURGENCE_DATABASE": "postgresql://a:b@c/d"}}, "RESURGENCE_DATABASE"),
    ({"replica": 3}, "replica"),
]
"""Values, and what the complaint must name."""


def test_the_schema_accepts_the_defaults_and_every_variant() -> None:
    for values in ({}, *VARIANTS.values()):
        assert complaints(values) == []


@pytest.mark.parametrize(("values", "named"), WRONG, ids=[named for _, named in WRONG])
def test_the_schema_refuses_wrong_values(values: Values, named: str) -> None:
    (complaint,) = complaints(values)
    assert named in complaint


def complaints(values: Values) -> list[str]:
    """Return what the schema finds in the values of a user, merged into the defaults as by Helm."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    merged = merge(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    found = jsonschema.Draft7Validator(schema).iter_errors(merged)
    return [f"{each.json_path}: {each.message}" for each in found]


def merge(defaults: Values, values: Values) -> Values:
    merged = dict(defaults)
    for key, value in values.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def test_the_settings_file_is_flat_text() -> None:
    text = one(stored("full"), "ConfigMap")["data"]["resurgence.toml"]
    assert all(isinstance(each, str) for each in tomllib.loads(text).values())
