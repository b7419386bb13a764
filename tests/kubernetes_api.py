"""The part of the Kubernetes API that a Spark driver uses, on loopback: pods are processes.

A pod that is created is started at once: the entry point of our image runs on this machine, with the
arguments and variables of its only container. What the caller's role does not allow is refused. There
are no images, volumes, nodes or networks here.
"""

from __future__ import annotations

import copy
import json
import os
import queue
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]

_ADDRESS = "127.0.0.1"
_KINDS = {"pods": "Pod", "configmaps": "ConfigMap"}


@dataclass(frozen=True)
class Call:
    """A request, in the words of a role."""

    verb: str
    resource: str


@dataclass
class _Pod:
    manifest: Manifest
    process: subprocess.Popen[bytes] | None = None


@dataclass
class KubernetesApi:
    """The objects of one namespace."""

    namespace: str
    rules: list[Manifest]
    """What the caller may do."""
    entry_point: Path
    environment: dict[str, str]
    """Of every container: what its image sets."""
    folder: Path
    """For the working directories and logs of containers."""
    port: int = 0
    calls: list[Call] = field(default_factory=list)
    refused: list[Call] = field(default_factory=list)
    created: list[Manifest] = field(default_factory=list)
    """Every object as it was sent."""
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _others: dict[str, Manifest] = field(default_factory=dict)
    _version: int = 1
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _watchers: list[queue.Queue[Manifest | None]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{_ADDRESS}:{self.port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve until the block ends; then kill all pods."""
        server = ThreadingHTTPServer((_ADDRESS, 0), _handler(self))
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            for watcher in list(self._watchers):
                watcher.put(None)
            server.shutdown()
            server.server_close()
            for name in list(self._pods):
                self._kill(name)

    def add_pod(self, name: str) -> None:
        """Add a running pod without a process: that of the caller."""
        with self._lock:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {}}
            self._pods[name] = _Pod(self._stored(pod))
            self._set_status(name, "Running")

    def pods(self) -> list[str]:
        """Return the names of all pods, also of those whose process has ended."""
        with self._lock:
            return list(self._pods)

    def live_pods(self) -> list[str]:
        """Return the names of the pods whose process has not ended."""
        with self._lock:
            return [
                name
                for name, pod in self._pods.items()
                if pod.process is not None and pod.process.poll() is None
            ]

    def kill(self, name: str) -> None:
        """SIGKILL the process of a pod, as a kernel without memory does."""
        process = self._pods[name].process
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)

    def is_allowed(self, call: Call) -> bool:
        with self._lock:
            self.calls.append(call)
            for rule in self.rules:
                if call.resource in rule["resources"] and call.verb in rule["verbs"]:
                    return True
            self.refused.append(call)
            return False

    def create(self, resource: str, manifest: Manifest) -> Manifest:
        with self._lock:
            self.created.append(copy.deepcopy(manifest))
            name = manifest["metadata"]["name"]
            if resource != "pods":
                self._others[name] = self._stored(manifest)
                return self._others[name]
            self._pods[name] = _Pod(self._stored(manifest))
            self._set_status(name, "Pending", "ADDED")
            self._start(name)
            return self._pods[name].manifest

    def get(self, name: str) -> Manifest | None:
        with self._lock:
            return self._pods[name].manifest if name in self._pods else None

    def listed(self, resource: str, query: dict[str, str]) -> Manifest:
        with self._lock:
            every = (
                [each.manifest for each in self._pods.values()]
                if resource == "pods"
                else list(self._others.values())
            )
            return {
                "apiVersion": "v1",
                "kind": f"{_KINDS[resource]}List",
                "metadata": {"resourceVersion": str(self._version)},
                "items": [each for each in every if _matches(each, query)],
            }

    def delete(self, resource: str, query: dict[str, str], name: str | None = None) -> None:
        with self._lock:
            for each in self.listed(resource, query)["items"]:
                found = each["metadata"]["name"]
                if name in (None, found):
                    if resource == "pods":
                        self._kill(found)
                        self._publish("DELETED", self._pods.pop(found).manifest)
                    else:
                        del self._others[found]

    def watching(self, query: dict[str, str]) -> Iterator[Manifest]:
        """Yield the changes of pods from now on."""
        changes: queue.Queue[Manifest | None] = queue.Queue()
        with self._lock:
            self._watchers.append(changes)
        try:
            while (change := changes.get()) is not None:
                if _matches(change["object"], query):
                    yield change
        finally:
            self._watchers.remove(changes)

    def _stored(self, manifest: Manifest) -> Manifest:
        stored = copy.deepcopy(manifest)
        stored["metadata"] |= {
            "namespace": self.namespace,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        return stored

    def _set_status(
        self, name: str, phase: str, change: str = "MODIFIED", exit_code: int = 0
    ) -> None:
        state: Manifest = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if phase in ("Succeeded", "Failed"):
            state = {"terminated": {"exitCode": exit_code}}
        pod = self._pods[name].manifest
        status: Manifest = {"phase": phase, "podIP": _ADDRESS}
        if phase != "Pending":
            status["conditions"] = [{"type": "Ready", "status": str(phase == "Running")}]
            status["containerStatuses"] = [
                {"name": each["name"], "ready": phase == "Running", "state": state}
                for each in pod["spec"].get("containers", [])
            ]
        self._pods[name].manifest = {**pod, "status": status}
        self._publish(change, self._pods[name].manifest)

    def _publish(self, change: str, manifest: Manifest) -> None:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        for watcher in self._watchers:
            watcher.put({"type": change, "object": copy.deepcopy(manifest)})

    def _start(self, name: str) -> None:
        pod = self._pods[name]
        (container,) = pod.manifest["spec"]["containers"]
        directory = self.folder / name
        directory.mkdir()
        with (directory / "log").open("wb") as log:
            pod.process = subprocess.Popen(
                [str(self.entry_point), *container["args"]],
                env=self.environment | dict(_variables(container, name)),
                cwd=directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._set_status(name, "Running")
        threading.Thread(target=self._follow, args=(name, pod.process), daemon=True).start()

    def _follow(self, name: str, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._lock:
            if name in self._pods:
                phase = "Succeeded" if status == 0 else "Failed"
                self._set_status(name, phase, exit_code=status if status >= 0 else 128 - status)

    def _kill(self, name: str) -> None:
        process = self._pods[name].process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _variables(container: Manifest, pod: str) -> Iterator[tuple[str, str]]:
    fields = {"status.podIP": _ADDRESS, "metadata.name": pod}
    for each in container["env"]:
        if "valueFrom" in each:
            yield each["name"], fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        else:
            yield each["name"], each.get("value", "")


def _matches(manifest: Manifest, query: dict[str, str]) -> bool:
    """Return whether the selectors of a request match an object."""
    labels = manifest["metadata"].get("labels", {})
    for each in filter(None, query.get("labelSelector", "").split(",")):
        name, separator, value = re.split(r"(!=|==|=|$)", each, maxsplit=1)
        is_same = labels.get(name) == value if separator else name in labels
        if is_same == (separator == "!="):
            return False
    for each in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, value = each.partition("=")
        found = {
            "metadata.name": manifest["metadata"]["name"],
            "status.phase": manifest.get("status", {}).get("phase"),
        }[name]
        if found != value.lstrip("="):
            return False
    return True


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            resource, name, query = self._target()
            is_watch = query.get("watch") == "true"
            verb = "watch" if is_watch else "get" if name else "list"
            if not self._admitted(verb, resource):
                return
            if is_watch and "upgrade" in self.headers:
                # The client then asks again, without a web socket.
                self._answer(503, {"kind": "Status", "code": 503})
            elif is_watch:
                self._stream(query)
            elif name:
                found = api.get(name)
                self._answer(200 if found else 404, found or {"kind": "Status", "code": 404})
            else:
                self._answer(200, api.listed(resource, query))

        def do_POST(self) -> None:
            resource, _, _ = self._target()
            body = json.loads(self._body())
            if self._admitted("create", resource):
                self._answer(201, api.create(resource, body))

        def do_PATCH(self) -> None:
            resource, name, _ = self._target()
            self._body()
            if self._admitted("patch", resource):
                self._answer(200, api.get(name or "") or {})

        def do_DELETE(self) -> None:
            resource, name, query = self._target()
            self._body()
            if self._admitted("delete" if name else "deletecollection", resource):
                api.delete(resource, query, name)
                self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def log_message(self, format: str, *args: object) -> None:
            return

        def _target(self) -> tuple[str, str | None, dict[str, str]]:
            parts = urlsplit(self.path)
            _, _, _, _, _, resource, *rest = parts.path.split("/")
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            return resource, rest[0] if rest else None, query

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def _admitted(self, verb: str, resource: str) -> bool:
            if api.is_allowed(Call(verb, resource)):
                return True
            self._answer(403, {"kind": "Status", "status": "Failure", "code": 403})
            return False

        def _answer(self, status: int, answer: Manifest) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            with suppress(ConnectionError):
                self.wfile.flush()
                for change in api.watching(query):
                    self.wfile.write(json.dumps(change).encode() + b"\n")
                    self.wfile.flush()

    return Handler
