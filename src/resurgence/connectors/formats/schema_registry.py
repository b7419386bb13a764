"""A client of Confluent's schema registry, and the wire format of records with a schema's id.

The registry has the schemas of a subject as numbered versions; the id of a schema is unique in the
registry. A record begins with a zero byte and that id. Requests are made by the driver only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from resurgence.errors import ConfigError, ConnectionLost, ResurgenceError, UserError
from resurgence.graph.table_options import TableOptions, option

ENDPOINT = "schema_registry.endpoint"
_KEY = "schema_registry.api_key"
_SECRET = "schema_registry.api_secret"
_REQUEST_SECONDS = 10.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
PREFIX_BYTES = 5
"""The length of the zero byte and the schema's id."""


class SchemaRegistryOptions(TableOptions):
    """The options of a format whose schemas can be in a registry."""

    registry_endpoint: str | None = option(
        "the URL of a Confluent schema registry; records then begin with the id of their schema",
        default=None,
        name=ENDPOINT,
    )
    registry_api_key: SecretStr | None = option(
        "the user name for the registry", default=None, name=_KEY
    )
    registry_api_secret: SecretStr | None = option(
        "the password for the registry, as in `${env:REGISTRY_SECRET}`", default=None, name=_SECRET
    )

    def registry(self, subject: str | None) -> SchemaRegistry | None:
        """Return the registry of a table, or None if it has none. Raise ConfigError if options
        contradict each other.
        """
        if (self.registry_api_key is None) != (self.registry_api_secret is None):
            raise ConfigError(
                f"'{_KEY}' and '{_SECRET}' belong together, but only one is set",
                hint="Set both, or none.",
            )
        if self.registry_endpoint is None:
            if self.registry_api_key is not None:
                raise ConfigError(
                    f"'{_KEY}' requires '{ENDPOINT}'", hint=f"Set '{ENDPOINT}' on the table."
                )
            return None
        if subject is None:
            raise ConfigError(
                f"'{ENDPOINT}' requires a connector of messages, whose topic names the schema",
                hint="Remove it.",
            )
        key = self.registry_api_key.get_secret_value() if self.registry_api_key else ""
        secret = self.registry_api_secret.get_secret_value() if self.registry_api_secret else ""
        return SchemaRegistry(self.registry_endpoint.rstrip("/"), subject, key, secret)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema in the registry."""

    id: int
    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str


@dataclass(frozen=True)
class SchemaRegistry:
    """The schemas of one subject. Those that were read once are remembered: they never change."""

    endpoint: str
    subject: str
    key: str = ""
    secret: str = field(default="", repr=False)
    _known: dict[int, RegisteredSchema] = field(default_factory=dict, repr=False)
    """By version."""
    _registered: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    """Ids by kind and text."""

    def check(self) -> None:
        """Raise UserError if the registry refuses requests, ConnectionLost if it cannot be
        reached.
        """
        self._versions()

    def schemas(self) -> tuple[RegisteredSchema, ...]:
        """Return all schemas of the subject, the newest last; none if it does not exist."""
        for version in self._versions():
            if version not in self._known:
                self._known[version] = self._version(version)
        return tuple(self._known[version] for version in sorted(self._known))

    def latest(self) -> RegisteredSchema:
        """Return the newest schema of the subject."""
        return self._version("latest")

    def register(self, kind: str, text: str) -> int:
        """Return the id of a schema, which becomes a version of the subject if it is none yet."""
        if (kind, text) not in self._registered:
            body = {"schema": text, "schemaType": kind}
            found = self._request("POST", f"/subjects/{self._quoted}/versions", body)
            self._registered[kind, text] = _whole_number(found, "id", self.endpoint)
        return self._registered[kind, text]

    def _versions(self) -> list[int]:
        path = f"/subjects/{self._quoted}/versions?deleted=true"
        found = self._request("GET", path, is_optional=True)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(each, int) for each in found):
            raise _unexpected(self.endpoint)
        return found

    def _version(self, version: int | str) -> RegisteredSchema:
        path = f"/subjects/{self._quoted}/versions/{version}"
        if isinstance(version, int):
            # Records may have been written with a version that was deleted since.
            path += "?deleted=true"
        found = self._request("GET", path)
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise _unexpected(self.endpoint)
        number = _whole_number(found, "id", self.endpoint)
        if found.get("references"):
            raise UserError(
                f"schema {number} of subject '{self.subject}' refers to other schemas",
                hint="Register a schema that contains all types that it uses.",
            )
        return RegisteredSchema(number, str(found.get("schemaType", "AVRO")), found["schema"])

    @property
    def _quoted(self) -> str:
        return quote(self.subject, safe="")

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, str] | None = None,
        *,
        is_optional: bool = False,
    ) -> Any:
        """Return the parsed answer; None if the object does not exist and `is_optional`."""
        import httpx  # Slow to import, and every worker imports all formats.

        try:
            answer = httpx.request(
                method,
                self.endpoint + path,
                json=body,
                auth=(self.key, self.secret) if self.key else None,
                headers={"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE},
                timeout=_REQUEST_SECONDS,
                follow_redirects=True,
            )
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(
                f"'{self.endpoint}' is not a valid value for option '{ENDPOINT}'",
                hint="Write it as in http://localhost:8081.",
            ) from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise ConnectionLost(
                f"the schema registry {self.endpoint} does not respond: {reason}",
                hint="Check the registry. The job will retry.",
            ) from error
        try:
            found = answer.json()
        except ValueError:
            found = None
        if answer.is_error:
            is_answer = isinstance(found, dict) and "error_code" in found
            if is_optional and is_answer and answer.status_code == httpx.codes.NOT_FOUND:
                return None
            reason = found["message"] if is_answer and "message" in found else answer.reason_phrase
            raise self._refused(answer.status_code, reason)
        if found is None:
            raise _unexpected(self.endpoint)
        return found

    def _refused(self, status: int, reason: str) -> ResurgenceError:
        text = f"the schema registry {self.endpoint} answered {status}: {reason}"
        match status:
            case 401 | 403:
                return UserError(text, hint=f"Check the options '{_KEY}' and '{_SECRET}'.")
            case 404:
                return UserError(text, hint=f"Register a schema under subject '{self.subject}'.")
            case 409 | 422:
                hint = (
                    f"Change the columns so that they are compatible with subject '{self.subject}',"
                    " or its compatibility level."
                )
                return UserError(text, hint=hint)
            case 429:
                return ConnectionLost(
                    text, hint="The registry limits requests. The job will retry."
                )
            case _ if status >= 500:
                return ConnectionLost(text, hint="Check the registry. The job will retry.")
        return UserError(text, hint=f"Check the option '{ENDPOINT}'.")


def prefix(number: int) -> bytes:
    """Return the first bytes of every record with this schema."""
    return b"\x00" + number.to_bytes(4, "big")


def schema_id(raw: bytes) -> int | None:
    """Return the id of a record's schema; None if it does not begin with one."""
    if len(raw) < PREFIX_BYTES or raw[0] != 0:
        return None
    return int.from_bytes(raw[1:PREFIX_BYTES], "big")


def binary_literal(value: bytes) -> str:
    """Return a BINARY literal of Spark SQL."""
    return f"X'{value.hex()}'"


def _whole_number(found: Any, name: str, endpoint: str) -> int:
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, int):
        raise _unexpected(endpoint)
    return value


def _unexpected(endpoint: str) -> UserError:
    return UserError(
        f"{endpoint} does not answer as a schema registry",
        hint=f"Check the option '{ENDPOINT}'.",
    )
