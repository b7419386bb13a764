"""The connection to a Kafka cluster: the options of its tables, and the settings of two clients.

Spark's connector reads rows with the Java client. Everything else uses librdkafka, which works
without a JVM: metadata, offsets, markers, transactions. Both get the same endpoints and the same
credentials from here.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import SecretStr

from resurgence.errors import ConfigError, ConnectionLost, ResurgenceError, UserError
from resurgence.graph.table_options import TableOptions, option

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

REQUEST_SECONDS = 30.0
"""The deadline of one request, and of one call of a client that makes several."""
_RECENT_CLIENTS: deque[AdminClient] = deque(maxlen=16)
"""See `admin_client`. A client leaves it, and is destroyed, when others are created."""


class AuthType(StrEnum):
    """How a client authenticates."""

    NONE = "none"
    SASL = "sasl"


class Protocol(StrEnum):
    """What a connection is made of: plain text or TLS, with or without SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Mechanism(StrEnum):
    """The SASL mechanism."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


_LOGIN_MODULES = {
    Mechanism.PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    Mechanism.SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    Mechanism.SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class KafkaOptions(TableOptions):
    """The options of every Kafka table."""

    bootstrap_servers: str = option("`host:port` of one or more brokers, separated by commas")
    auth_type: AuthType = option(
        "`none` (default) or `sasl`", default=AuthType.NONE, name="auth.type"
    )
    auth_protocol: Protocol | None = option(
        "`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`; by default `SASL_SSL` with"
        " `'auth.type' = 'sasl'`, `SSL` with `'auth.certificate_file'`, else `PLAINTEXT`",
        default=None,
        name="auth.protocol",
    )
    auth_mechanism: Mechanism | None = option(
        "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`", default=None, name="auth.mechanism"
    )
    auth_username: str | None = option("the SASL user", default=None, name="auth.username")
    auth_password: SecretStr | None = option(
        "the SASL password, as in `${env:KAFKA_PASSWORD}`", default=None, name="auth.password"
    )
    auth_ca_file: str | None = option(
        "a PEM file with the certificates that the brokers are verified against; by default those"
        " of the system and of Java",
        default=None,
        name="auth.ca_file",
    )
    auth_certificate_file: str | None = option(
        "a PEM file with the client's private key (PKCS #8, not encrypted) and certificate, for"
        " brokers that authenticate clients by TLS",
        default=None,
        name="auth.certificate_file",
    )

    def connection(self) -> KafkaConnection:
        """Return the connection. Raise ConfigError if options contradict each other."""
        has_sasl = self.auth_type is AuthType.SASL
        protocol = self.auth_protocol or self._usual_protocol()
        if has_sasl != protocol.startswith("SASL_"):
            raise ConfigError(
                f"'auth.type' is '{self.auth_type}', but 'auth.protocol' is '{protocol}'",
                hint="Use SASL_SSL or SASL_PLAINTEXT with 'auth.type' = 'sasl', and SSL or PLAINTEXT"
                " without it.",
            )
        if self.auth_certificate_file is not None and not protocol.endswith("SSL"):
            raise ConfigError(
                f"'auth.certificate_file' is set, but 'auth.protocol' is '{protocol}'",
                hint="Use SSL, or SASL_SSL with 'auth.type' = 'sasl'.",
            )
        missing = [
            name
            for name, value in (
                ("auth.mechanism", self.auth_mechanism),
                ("auth.username", self.auth_username),
                ("auth.password", self.auth_password),
            )
            if has_sasl and value is None
        ]
        if missing:
            raise ConfigError(
                f"'auth.type' = 'sasl' requires {' and '.join(repr(each) for each in missing)}",
                hint="Set the option on the table.",
            )
        password = self.auth_password.get_secret_value() if self.auth_password else ""
        return KafkaConnection(
            bootstrap=self.bootstrap_servers,
            protocol=protocol,
            mechanism=self.auth_mechanism,
            username=self.auth_username or "",
            password=password,
            ca_file=self.auth_ca_file,
            certificate_file=self.auth_certificate_file,
        )

    def _usual_protocol(self) -> Protocol:
        if self.auth_type is AuthType.SASL:
            return Protocol.SASL_SSL
        return Protocol.SSL if self.auth_certificate_file is not None else Protocol.PLAINTEXT


@dataclass(frozen=True)
class KafkaConnection:
    """A cluster, and how to log in. Travels to Spark tasks."""

    bootstrap: str
    protocol: Protocol = Protocol.PLAINTEXT
    mechanism: Mechanism | None = None
    username: str = ""
    password: str = ""
    ca_file: str | None = None
    certificate_file: str | None = None

    def __repr__(self) -> str:
        return f"KafkaConnection({self.bootstrap})"

    @property
    def has_sasl(self) -> bool:
        return self.mechanism is not None

    def client_settings(self) -> dict[str, str | int | float | bool]:
        """Return the settings of a librdkafka client."""
        require_client()
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol.value,
            "client.id": "resurgence",
            "socket.timeout.ms": round(REQUEST_SECONDS * 1000),
            # Errors are raised by calls; logs would repeat them on the standard error of a task.
            "log_level": 0,
        }
        if self.mechanism is not None:
            settings["sasl.mechanisms"] = self.mechanism.value
            settings["sasl.username"] = self.username
            settings["sasl.password"] = self.password
        if self.ca_file is not None:
            settings["ssl.ca.location"] = self.ca_file
        if self.certificate_file is not None:
            settings["ssl.certificate.location"] = self.certificate_file
            settings["ssl.key.location"] = self.certificate_file
        return settings

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's connector."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": self.protocol.value,
        }
        if self.mechanism is not None:
            options["kafka.sasl.mechanism"] = self.mechanism.value
            options["kafka.sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[self.mechanism]} required"
                f" username={_quoted(self.username)} password={_quoted(self.password)};"
            )
        if self.ca_file is not None:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = self.ca_file
        if self.certificate_file is not None:
            options["kafka.ssl.keystore.type"] = "PEM"
            options["kafka.ssl.keystore.location"] = self.certificate_file
        return options


def _quoted(text: str) -> str:
    """Return text as a string of Java's login configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def require_client() -> None:
    """Raise ConfigError if the client library is not installed."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise ConfigError(
            "Kafka tables require the package confluent-kafka, which is not installed",
            hint="Run `pip install 'resurgence[kafka]'`, also in the Python of Spark's executors.",
        )


class Refusals:
    """Why brokers have refused to log a client in, since it last had an answer.

    librdkafka tries again for ever, so the requests of such a client time out, and only its error
    callback has the reason. A broker that is starting may refuse a client, too, so the reason counts
    only once a request has timed out.
    """

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        if _refuses_login(error):
            self._last = error

    def answered(self, client: AdminClient) -> None:
        """Take note that a request had an answer."""
        client.poll(0)
        self._last = None

    def reason(self, client: AdminClient, error: KafkaError) -> KafkaError:
        """Return why a request has failed: `error`, unless it means that there was no answer, and
        brokers have refused the client.
        """
        from confluent_kafka import KafkaError as Code

        client.poll(0)
        is_silence = error.code() in (Code._TIMED_OUT, Code._TRANSPORT, Code._ALL_BROKERS_DOWN)
        return self._last if is_silence and self._last is not None else error


def _refuses_login(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Code

    # With TLS 1.3, a broker that misses a client's certificate says so after the handshake.
    return error.code() in (Code._AUTHENTICATION, Code._SSL) or (
        error.code() == Code._TRANSPORT and "SSL alert" in error.str()
    )


def kafka_error(error: KafkaError, doing: str, connection: KafkaConnection) -> ResurgenceError:
    """Return the error for a failed call. `doing` is what failed, as in `reading topic 'rides'`."""
    from confluent_kafka import KafkaError as Code

    text = f"{doing} failed: {error.str()} ({error.name()})"
    denied = (
        Code.SASL_AUTHENTICATION_FAILED,
        # A setting that the client refuses, such as a file of certificates that it cannot read.
        Code._INVALID_ARG,
    )
    forbidden = (
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    if error.code() in denied or _refuses_login(error):
        return UserError(text, hint="Check the options 'auth.*' of the table.")
    if error.code() in forbidden:
        user = f"user '{connection.username}'" if connection.has_sasl else "this client"
        return UserError(text, hint=f"Grant {user} access by an ACL of the cluster.")
    if error.code() in (Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC, Code._UNKNOWN_PARTITION):
        return UserError(text, hint="Create the topic, or check the option 'topic'.")
    return ConnectionLost(
        text, hint=f"Check the brokers at {connection.bootstrap}. The job will retry."
    )


def admin_client(connection: KafkaConnection, refusals: Refusals) -> AdminClient:
    """Return a new client for requests about a cluster. It is held for a while after its last use:
    if the thread that delivers its last answer drops the last reference to it, librdkafka aborts
    the process.
    """
    from confluent_kafka.admin import AdminClient

    client = AdminClient(connection.client_settings(), error_cb=refusals.note)
    _RECENT_CLIENTS.append(client)
    return client
