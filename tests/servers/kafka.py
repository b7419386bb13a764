"""A Kafka broker: Apache Kafka in KRaft mode, from its Maven artifacts.

It has a plaintext listener, where everyone is a super user, one with SASL over TLS, and one that
requires a certificate of the client.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from resurgence.engine.spark.java import find_java
from tests.servers.builds import NoServer, maven_jars
from tests.servers.certificates import Certificates, make_certificates
from tests.servers.kafka_records import Record, produce, read, read_by_java
from tests.servers.process import ServerProcess, free_ports

USERNAME = "resurgence-tests"
PASSWORD = "not-a-secret-but-it-must-never-be-shown"
PASSWORDS = {
    "SCRAM-SHA-256": PASSWORD,
    "SCRAM-SHA-512": f"{PASSWORD}-512",
    "PLAIN": f"{PASSWORD}-plain",
}
"""By the mechanism of SASL. They differ, so that each can be used only with its own."""
_SCRAM = {name: password for name, password in PASSWORDS.items() if name.startswith("SCRAM")}
_KAFKA = [
    "org.apache.kafka:kafka_2.13:4.1.0",
    "org.apache.kafka:kafka-tools:4.1.0",
    "org.slf4j:slf4j-simple:1.7.36",
]
_START_DEADLINE = 60.0
_REQUEST_DEADLINE = 30.0
_CLUSTER_ID = "cmVzdXJnZW5jZS10ZXN0cw"

_SMALL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # After a SIGKILL, the broker is not accepted before the session of its predecessor ends.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"
    ),
    "sasl.enabled.mechanisms": ",".join(PASSWORDS),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.ssl.ssl.client.auth": "required",
}


@dataclass(frozen=True)
class _Ports:
    plain: int
    secure: int
    certified: int
    controller: int


class KafkaBroker:
    """A broker with its own folder and ports, which it keeps when it is restarted."""

    username = USERNAME
    password = PASSWORD

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        self._folder = folder
        self._more = properties
        self._certificates = make_certificates(folder)
        self._properties_file = folder / "server.properties"
        self._ports = _Ports(0, 0, 0, 0)
        self._process: ServerProcess | None = None
        self._admins: deque[AdminClient] = deque(maxlen=4)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports.plain}"

    @property
    def secure_bootstrap(self) -> str:
        """SASL_SSL, with one of the mechanisms of `PASSWORDS`."""
        return f"127.0.0.1:{self._ports.secure}"

    @property
    def certified_bootstrap(self) -> str:
        """TLS with a certificate of the client."""
        return f"127.0.0.1:{self._ports.certified}"

    @property
    def client_file(self) -> Path:
        return self._certificates.client_file

    @property
    def ca_file(self) -> Path:
        return self._certificates.ca_file

    @property
    def settings(self) -> dict[str, Any]:
        """What a client of librdkafka needs."""
        return {"bootstrap.servers": self.bootstrap}

    @property
    def secure_settings(self) -> dict[str, Any]:
        """The same for the listener with SASL."""
        return {
            "bootstrap.servers": self.secure_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USERNAME,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.ca_file),
        }

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, of a name that no other test uses, and return its name."""
        topic = name or f"topic-{uuid.uuid4().hex[:12]}"
        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new])[topic].result(_REQUEST_DEADLINE)
        # The broker learns of a topic a moment after the controller has created it.
        _wait_until(lambda: _has_leaders(admin, topic, partitions), f"{topic} has no leaders")
        return topic

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()  # an answer needs the client that asked
        admin.delete_topics([topic])[topic].result(_REQUEST_DEADLINE)
        _wait_until(
            lambda: topic not in admin.list_topics(timeout=_REQUEST_DEADLINE).topics,
            f"{topic} still exists",
        )

    def log_file(self, topic: str, partition: int = 0) -> Path:
        """The records of a partition, as long as they are few."""
        return self._folder / "data" / f"{topic}-{partition}" / f"{0:020}.log"

    def deny_write(self, topic: str) -> None:
        """Forbid the user of the secure listener to write to a topic; everything else stays
        allowed.
        """
        self._add_acls(_acls(ResourceType.TOPIC, topic, AclOperation.WRITE))

    @contextmanager
    def topics_denied(self) -> Iterator[None]:
        """Forbid the user of the secure listener to create topics."""
        acls = [
            *_acls(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
            *_acls(ResourceType.TOPIC, "*", AclOperation.CREATE),
        ]
        self._add_acls(acls)
        try:
            yield
        finally:
            admin = self.admin()
            for future in admin.delete_acls([_filter_of(each) for each in acls]).values():
                future.result(_REQUEST_DEADLINE)

    def _add_acls(self, acls: list[AclBinding]) -> None:
        admin = self.admin()
        for future in admin.create_acls(acls).values():
            future.result(_REQUEST_DEADLINE)

    def produce(self, topic: str, records: Iterable[bytes | Record | tuple[Any, ...]]) -> None:
        """Produce values, `(key, value[, headers, timestamp, partition])`, or records."""
        produce(self.settings, topic, records)

    def read(self, topic: str, isolation: str = "read_committed") -> list[Record]:
        """The records of a topic, up to the first open transaction, by partition and offset."""
        return read(self.settings, topic, isolation)

    def read_by_java(
        self, topic: str, isolation: str = "read_committed", silence: float = 3.0
    ) -> list[Record]:
        """The same by Kafka's Java client, which ends after some seconds without a record."""
        return read_by_java(_java("-Xmx128m"), self.bootstrap, topic, isolation, silence)

    def admin(self) -> AdminClient:
        # Held: librdkafka aborts if its own thread drops the last reference.
        self._admins.append(AdminClient({**self.settings, "log_level": 0}))
        return self._admins[-1]

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        """Kill it if it runs, and start it again with the same data, on the same ports."""
        self.kill()
        reason = self._attempt()
        if reason is not None:
            raise NoServer(f"Kafka does not start again: {reason}")

    def start(self) -> None:
        """Format the folder and start; NoServer with the reason if that fails."""
        reason: str | None = ""
        for _ in range(3):  # another process may take a port first
            self._ports = _Ports(*free_ports(4))
            self._properties_file.write_text(
                _properties(self._folder, self._ports, self._certificates, self._more)
            )
            self._format()
            reason = self._attempt()
            if reason is None:
                return
        raise NoServer(f"Kafka does not start: {reason}")

    def _format(self) -> None:
        options = ["-t", _CLUSTER_ID, "-c", str(self._properties_file), "--ignore-formatted"]
        command = [*_java("-Xmx128m"), "kafka.tools.StorageTool", "format", *options]
        for mechanism, password in _SCRAM.items():
            command += ["--add-scram", f"{mechanism}=[name={USERNAME},password={password}]"]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_START_DEADLINE,
            check=False,
        )
        if done.returncode != 0:
            raise NoServer(f"Kafka's storage cannot be formatted: {done.stdout.decode()[-500:]}")

    def _attempt(self) -> str | None:
        """Start the process; None when it answers, else the reason."""
        command = [*_java("-Xmx512m"), "kafka.Kafka", str(self._properties_file)]
        process = self._process = ServerProcess(command, self._folder)
        give_up_at = time.monotonic() + _START_DEADLINE
        admin = AdminClient({**self.settings, "reconnect.backoff.max.ms": 200, "log_level": 0})
        while process.is_alive() and time.monotonic() < give_up_at:
            with suppress(KafkaException):
                if admin.list_topics(timeout=1).brokers:
                    return None
            time.sleep(0.05)
        reason = process.last_words() or f"no answer within {_START_DEADLINE:g} s"
        self.kill()
        return reason


@contextmanager
def running_broker(
    *, folder: Path | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[KafkaBroker]:
    """A broker that answers; NoServer with the reason if there is none.

    `properties` replace those of the tests. The folder is kept if one is given.
    """
    build()
    with tempfile.TemporaryDirectory(prefix="kafka-") as temporary:
        broker = KafkaBroker(folder or Path(temporary), properties or {})
        try:
            broker.start()
            yield broker
        finally:
            broker.kill()


def build() -> Path:
    """Return the folder of jars, installed if necessary."""
    return maven_jars("kafka", _KAFKA)


def _java(memory: str) -> list[str]:
    # Short lives: the optimising compiler and parallel collectors would cost more than they save.
    options = [memory, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return [find_java().executable, *options, "-cp", f"{build()}/*"]


def _properties(
    folder: Path, ports: _Ports, certificates: Certificates, more: Mapping[str, str]
) -> str:
    listeners = ",".join(
        f"{name}://127.0.0.1:{port}"
        for name, port in (
            ("PLAINTEXT", ports.plain),
            ("SASL_SSL", ports.secure),
            ("SSL", ports.certified),
        )
    )
    login = "org.apache.kafka.common.security.{}.{}LoginModule required"
    plain = f'{login.format("plain", "Plain")} user_{USERNAME}="{PASSWORDS["PLAIN"]}";'
    scram = login.format("scram", "Scram")
    properties = {
        **_SMALL,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "log.dirs": str(folder / "data"),
        "ssl.keystore.location": str(certificates.server_file),
        "ssl.truststore.location": str(certificates.ca_file),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        **{
            f"listener.name.sasl_ssl.{each.lower()}.sasl.jaas.config": f"{scram};"
            for each in _SCRAM
        },
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _acls(kind: ResourceType, name: str, denied: AclOperation) -> list[AclBinding]:
    """Deny the user of the secure listener one operation, and allow everyone all others."""
    rules = (
        (denied, AclPermissionType.DENY, f"User:{USERNAME}"),
        (AclOperation.ALL, AclPermissionType.ALLOW, "User:*"),
    )
    return [
        AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, permission)
        for operation, permission, principal in rules
    ]


def _filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    give_up_at = time.monotonic() + _REQUEST_DEADLINE
    while not condition():
        assert time.monotonic() < give_up_at, otherwise
        time.sleep(0.01)


def _has_leaders(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, _REQUEST_DEADLINE).topics.get(topic)
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(each.leader >= 0 for each in found.partitions.values())
    )
