"""Access to a store: its URL, the options of its client, and its deadlines.

The driver resolves an access from the environment, from the settings `storage.*` and from a profile
of the AWS files. Spark tasks get the result in their closures, because executors have neither. A
closure is serialised Python code: Spark shows its name, never its values. Every Spark job gets a
newly resolved access, so credentials that expire are refreshed without a restart.

What belongs to a machine is not passed on: an instance role, a file with a token, a login. Each
executor uses its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from resurgence.errors import ConfigError
from resurgence.storage.aws_profile import profile_variables

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_OWN_CREDENTIALS = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
_S3 = (
    *_KEYS,
    "AWS_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_UNSIGNED_PAYLOAD",
    "AWS_SKIP_SIGNATURE",
    "AWS_REQUEST_PAYER",
    "AWS_CHECKSUM_ALGORITHM",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_ALLOW_HTTP",
)
_GS = (
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_BEARER_TOKEN",
    "GOOGLE_BASE_URL",
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_ALLOW_HTTP",
)
_GS_FILES = (
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_AZURE = (
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_SKIP_SIGNATURE",
    "AZURE_ALLOW_HTTP",
)


@dataclass(frozen=True)
class Deadlines:
    """No request takes longer than `request`; none is retried after `retries`."""

    request: timedelta = timedelta(seconds=60)
    retries: timedelta = timedelta(seconds=90)


@dataclass(frozen=True)
class StoreAccess:
    """Everything that a client needs. It holds secrets: never show, store or log its options."""

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """By the names of the variables."""
    deadlines: Deadlines = Deadlines()


@dataclass(frozen=True)
class AccessOverrides:
    """What this process sets on top of its environment."""

    variables: Callable[[], Mapping[str, str]] = dict
    """Called whenever an access is resolved, because the secrets that they refer to may change."""
    deadlines: Deadlines = Deadlines()


_overrides = AccessOverrides()


def override_access(overrides: AccessOverrides) -> None:
    """Resolve every later access of this process with these overrides."""
    global _overrides
    _overrides = overrides


def store_access(url: str) -> StoreAccess:
    """Resolve the access to a store, as this process has it now."""
    own = _overrides.variables()
    variables = {**os.environ, **own}
    if any(name in own for name in _KEYS):
        # Credentials belong together: a session token of the environment is not for these keys.
        variables = {k: v for k, v in variables.items() if k not in _KEYS or k in own}
    options = resolve(urlsplit(url).scheme, variables)
    return StoreAccess(url, tuple(sorted(options.items())), _overrides.deadlines)


def resolve(scheme: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a kind of store, by the names of the variables."""
    match scheme:
        case "s3" | "s3a":
            has_credentials = any(variables.get(name) for name in (*_KEYS, *_OWN_CREDENTIALS))
            found = profile_variables(variables, with_credentials=not has_credentials)
            return found | _named(variables, _S3)
        case "gs":
            return _service_account(variables) | _named(variables, _GS)
        case "az" | "azure" | "abfs" | "abfss" | "adl":
            return _named(variables, _AZURE)
        case _:
            return {}


def _named(variables: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: variables[name] for name in names if variables.get(name)}


def _service_account(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the key of a service account, which is passed on instead of the path of its file."""
    for name in _GS_FILES:
        if path := variables.get(name):
            try:
                text = Path(path).expanduser().read_text(encoding="utf-8")
                is_key = json.loads(text).get("type", "service_account") == "service_account"
            except (OSError, ValueError, AttributeError) as error:
                reason = getattr(error, "strerror", None) or "it is not a JSON object"
                raise ConfigError(
                    f"cannot read the credentials that {name} names: {reason}",
                    hint=f"Set {name} to the path of a key file.",
                ) from error
            if is_key:
                return {"GOOGLE_SERVICE_ACCOUNT_KEY": text}
    return {}
