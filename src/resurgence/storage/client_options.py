"""The client of an object store: made once per access, with deadlines and bounded retries.

The client retries server errors, throttling and lost connections by itself, with exponential
backoff. It does not repeat a conditional create whose outcome it does not know; that is the job's
decision.
"""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.store import ObjectStore as Client
from obstore.store import from_url

from resurgence.storage.access import StoreAccess

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

_CONNECT = timedelta(seconds=5)
_MAX_RETRIES = 8
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10)}
_CLIENTS = 32
"""Clients retained: enough for the stores of a job, few enough to drop those of old credentials."""


@functools.lru_cache(_CLIENTS)
def client(access: StoreAccess) -> Client:
    """Return the process's only client for an access, so that tasks share its connections."""
    options = dict(access.options)
    client_options: ClientConfig = {
        "connect_timeout": _CONNECT,
        "timeout": access.deadlines.request,
        "allow_http": any(
            options.pop(name).lower() in ("true", "1", "yes", "on")
            for name in ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
            if name in options
        ),
    }
    retry_config: RetryConfig = {
        "max_retries": _MAX_RETRIES,
        "retry_timeout": access.deadlines.retries,
        "backoff": {**_BACKOFF},  # type: ignore[typeddict-item]
    }
    if {"GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"} & os.environ.keys():
        # This process reads the file itself, and two keys are refused.
        options.pop("GOOGLE_SERVICE_ACCOUNT_KEY", None)
    arguments: dict[str, Any] = {}
    if "AWS_ACCESS_KEY_ID" in options:
        arguments["credential_provider"] = _FixedCredentials(options)
    config: Any = {name.lower(): value for name, value in options.items()}
    return from_url(
        access.url,
        config=config,
        client_options=client_options,
        retry_config=retry_config,
        **arguments,
    )


class _FixedCredentials:
    """Credentials that take precedence over those in the environment of an executor, as a whole:
    with plain options, its session token would be used with our keys.
    """

    def __init__(self, options: dict[str, str]) -> None:
        """Take the credentials out of the options."""
        self._credential: S3Credential = {
            "access_key_id": options.pop("AWS_ACCESS_KEY_ID"),
            "secret_access_key": options.pop("AWS_SECRET_ACCESS_KEY", ""),
            "token": options.pop("AWS_SESSION_TOKEN", None) or options.pop("AWS_TOKEN", None),
            "expires_at": None,
        }

    def __call__(self) -> S3Credential:
        return self._credential
