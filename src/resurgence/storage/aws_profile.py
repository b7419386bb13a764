"""Profiles of the AWS files: `~/.aws/credentials` and `~/.aws/config`.

Read as the AWS tools do: a region, an endpoint, and credentials, either written there or printed by
a command (`credential_process`), which is run again before they expire.
"""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from resurgence.errors import ConfigError, StorageError

_DEADLINE = timedelta(seconds=30)
_EARLY = timedelta(minutes=5)
"""Credentials are refreshed this long before they expire: a Spark job must end with them."""
_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


@dataclass(frozen=True)
class _Printed:
    """What a command printed."""

    variables: dict[str, str]
    expires_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at - _EARLY


_printed: dict[str, _Printed] = {}
_lock = threading.Lock()


def profile_variables(variables: Mapping[str, str], *, with_credentials: bool) -> dict[str, str]:
    """Return what the profile sets, by the names of the variables that set the same."""
    chosen = variables.get("AWS_PROFILE")
    profile = _read(variables, chosen or "default")
    if profile is None:
        if chosen:
            raise ConfigError(
                f"there is no AWS profile '{chosen}'",
                hint="Check AWS_PROFILE, ~/.aws/config and ~/.aws/credentials.",
            )
        return {}
    found = {
        variable: profile[name]
        for name, variable in {"region": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL"}.items()
        if name in profile
    }
    if with_credentials:
        found |= _credentials(profile, chosen)
    return found


def _credentials(profile: Mapping[str, str], chosen: str | None) -> dict[str, str]:
    if "aws_access_key_id" in profile:
        return {name.upper(): profile[name] for name in _CREDENTIALS if name in profile}
    if command := profile.get("credential_process"):
        with _lock:
            printed = _printed.get(command)
            if printed is None or not printed.is_valid(datetime.now(UTC)):
                printed = _printed[command] = _run(command)
        return printed.variables
    if chosen:
        raise ConfigError(
            f"AWS profile '{chosen}' has no credentials",
            hint="Set aws_access_key_id and aws_secret_access_key, or a credential_process such as"
            " `aws configure export-credentials --format process`.",
        )
    return {}


def _read(variables: Mapping[str, str], name: str) -> dict[str, str] | None:
    """Return the profile from both files; `credentials` wins."""
    files = (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    )
    found: dict[str, str] | None = None
    for variable, default, section in files:
        path = Path(variables.get(variable) or default).expanduser()
        parser = configparser.RawConfigParser(default_section="")
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            # No cause: it quotes lines of the file.
            raise ConfigError(f"cannot read {path}: {type(error).__name__}") from None
        if parser.has_section(section):
            found = (found or {}) | dict(parser.items(section))
    return found


def _run(command: str) -> _Printed:
    """Run a command that prints credentials as JSON. What it prints is never quoted."""
    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE.total_seconds(),
            check=True,
        )
        answer = json.loads(done.stdout)
        variables = {
            "AWS_ACCESS_KEY_ID": str(answer["AccessKeyId"]),
            "AWS_SECRET_ACCESS_KEY": str(answer["SecretAccessKey"]),
        }
        if answer.get("SessionToken"):
            variables["AWS_SESSION_TOKEN"] = str(answer["SessionToken"])
        expires = answer.get("Expiration")
        return _Printed(variables, datetime.fromisoformat(expires) if expires else None)
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        raise StorageError(
            f"the credential_process of the AWS profile failed: {type(error).__name__}",
            hint="Run the command by hand. The job will retry.",
        ) from None
