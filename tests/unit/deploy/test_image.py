"""The container file, read as text, and the entry point, run as a process. No container engine builds the
image here.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.helm import one, stored

import resurgence
from resurgence.engine.spark.java import OLDEST_JAVA, spark_home

ROOT = Path(__file__).parents[3]
ENTRY_POINT = ROOT / "deploy" / "entrypoint.sh"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file and their arguments, without comments."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = "".join(f"{each}\n" for each in text.splitlines() if not each.startswith("#"))
    found = []
    for line in lines.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            found.append((name, " ".join(rest.split())))
    return found


def arguments_of(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def test_the_installed_extras_are_ours_and_cover_a_service_on_postgres() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (installed,) = (
        found.group(1).split(",")
        for each in arguments_of("RUN")
        if (found := re.search(r"pip install .*'\.\[(.*)\]'", each))
    )
    assert set(installed) <= set(project["optional-dependencies"])
    assert "postgres" in installed


def test_python_and_java_are_new_enough() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = tuple(int(each) for each in project["requires-python"].removeprefix(">=").split("."))
    images = {each.split()[0] for each in arguments_of("FROM")}
    (version,) = {re.match(r"python:(\d+\.\d+)-", each)[1] for each in images}  # type: ignore[index]
    assert tuple(int(each) for each in version.split(".")) >= oldest
    text = "\n".join(rest for _, rest in instructions())
    assert set(re.findall(r"python(\d+\.\d+)/", text)) == {version}
    (java,) = re.findall(r"openjdk-(\d+)-jre", text)
    assert int(java) >= OLDEST_JAVA


def test_everything_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sent = [each.removeprefix("!") for each in ignored if each.startswith("!")]
    assert "*" in ignored
    copied = [each.split()[:-1] for each in arguments_of("COPY") if "--from" not in each]
    for source in (each for sources in copied for each in sources if not each.startswith("--")):
        assert (ROOT / source).exists()
        assert any(fnmatch.fnmatch(source, each) for each in sent)
    for each in sent:
        assert (ROOT / each).exists()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"]} <= set(sent)


def test_the_image_runs_as_an_unprivileged_user_and_reaps_processes() -> None:
    *_, (_, user) = (each for each in instructions() if each[0] == "USER")
    number = user.partition(":")[0]
    assert int(number) >= 1000
    assert f"--uid {number}" in " ".join(arguments_of("RUN"))
    (entry_point,) = arguments_of("ENTRYPOINT")
    tini, _, script = json.loads(entry_point)
    assert tini == "/usr/bin/tini"
    assert " tini" in " ".join(arguments_of("RUN"))
    (copied,) = (each for each in arguments_of("COPY") if "entrypoint.sh" in each)
    assert copied.split()[-1] == script
    assert ENTRY_POINT.stat().st_mode & 0o111


def test_the_chart_runs_the_image_as_its_user_with_a_writable_home() -> None:
    (user,) = arguments_of("USER")
    (folder,) = arguments_of("WORKDIR")[-1:]
    assert f"HOME={folder}" in arguments_of("ENV")
    assert f"--home-dir {folder} " in " ".join(arguments_of("RUN"))
    manifests = stored("plain")
    pods = [
        one(manifests, "Deployment")["spec"]["template"]["spec"],
        yaml.safe_load(one(manifests, "ConfigMap")["data"]["executor.yaml"])["spec"],
    ]
    for pod in pods:
        security = pod["securityContext"]
        assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
        (container,) = pod["containers"]
        assert folder in {each["mountPath"] for each in container["volumeMounts"]}


def test_the_modules_that_the_build_runs_exist() -> None:
    modules = re.findall(r"python -m (resurgence\S+)", " ".join(arguments_of("RUN")))
    assert modules
    for each in modules:
        path = ROOT / "src" / each.replace(".", "/")
        assert path.with_suffix(".py").is_file()


def test_the_entry_point_runs_our_command(tmp_path: Path) -> None:
    done = run_entry_point(tmp_path, "--version")
    assert done.stdout.strip().endswith(resurgence.__version__)


def run_entry_point(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with `resurgence` on the path, as in the image."""
    command = folder / "resurgence"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m resurgence "$@"\n')
    command.chmod(0o755)
    return subprocess.run(
        [str(ENTRY_POINT), *arguments],
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SPARK_HOME": str(spark_home()),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_an_executor_gets_what_spark_put_into_its_variables(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    options = [f"-Dnumber={number}" for number in range(11)] + ["-Dwith=a space"]
    done = run_entry_point(
        tmp_path,
        "executor",
        environment={
            **{f"SPARK_JAVA_OPT_{number}": each for number, each in enumerate(options)},
            "SPARK_EXECUTOR_MEMORY": "1024m",
            "SPARK_EXECUTOR_CORES": "2",
            "SPARK_EXECUTOR_ID": "7",
            "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
            "SPARK_EXECUTOR_POD_NAME": "exec-7",
            "SPARK_APPLICATION_ID": "spark-1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:20000",
            "SPARK_CONF_DIR": "/opt/spark/conf",
        },
    )
    arguments = done.stdout.splitlines()
    assert arguments[: len(options)] == options
    rest = arguments[len(options) :]
    assert rest[:4] == ["-Xms1024m", "-Xmx1024m", "-cp", f"/opt/spark/conf:{spark_home()}/jars/*"]
    named = dict(zip(rest[5::2], rest[6::2], strict=True))
    assert named == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:20000",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "exec-7",
    }


def test_an_executor_without_its_variables_does_not_start(tmp_path: Path) -> None:
    done = run_entry_point(tmp_path, "executor")
    assert done.returncode != 0
    assert "SPARK_EXECUTOR_MEMORY" in done.stderr


@pytest.mark.parametrize("jar", ["spark-kubernetes", "kubernetes-client"])
def test_pyspark_brings_the_jars_for_kubernetes(jar: str) -> None:
    assert list((spark_home() / "jars").glob(f"{jar}*.jar"))
