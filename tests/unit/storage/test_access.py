"""Where the access to an object store comes from, and that it is never shown."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resurgence.config import settings_from
from resurgence.errors import ConfigError, StorageError, UserError
from resurgence.storage.access import (
    AccessOverrides,
    Deadlines,
    StoreAccess,
    override_access,
    resolve,
    store_access,
)
from resurgence.store_settings import apply_storage_settings

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in os.environ:
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    override_access(AccessOverrides())


def profile(tmp_path: Path, credentials: str, config: str = "") -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(credentials)
    (tmp_path / ".aws" / "config").write_text(config)


def test_variables_of_the_environment_are_the_access(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**KEYS, "AWS_ENDPOINT": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert dict(store_access("s3://bucket/folder").options) == variables


def test_a_local_folder_needs_no_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    assert store_access("file:///folder") == StoreAccess("file:///folder")
    assert store_access("/folder").options == ()


def test_an_access_never_shows_its_options() -> None:
    access = StoreAccess("s3://bucket", tuple(KEYS.items()))
    assert "hidden" not in f"{access} {access!r} {[access]}"


def test_an_access_can_be_sent_to_another_process() -> None:
    access = StoreAccess("s3://bucket", tuple(KEYS.items()), Deadlines(timedelta(seconds=1)))
    assert pickle.loads(pickle.dumps(access)) == access


def test_what_belongs_to_this_machine_is_not_passed_on() -> None:
    variables = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/run/token",
        "AWS_ROLE_ARN": "role",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/role",
        "AZURE_FEDERATED_TOKEN_FILE": "/run/token",
        "AWS_REGION": "us-east-1",
    }
    assert resolve("s3", variables) == {"AWS_REGION": "us-east-1"}
    assert resolve("az", variables) == {}


def test_a_profile_gives_credentials_region_and_endpoint(tmp_path: Path) -> None:
    profile(
        tmp_path,
        "[default]\naws_access_key_id = other\n[tests]\naws_access_key_id = id\n"
        "aws_secret_access_key = a%b\naws_session_token = token\n",
        "[profile tests]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n",
    )
    assert resolve("s3", {"AWS_PROFILE": "tests"}) == {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "a%b",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    }


def test_the_default_profile_is_used_without_variables(tmp_path: Path) -> None:
    profile(tmp_path, "[default]\naws_access_key_id = id\naws_secret_access_key = hidden\n")
    assert resolve("s3", {}) == KEYS


def test_credentials_of_the_environment_win_as_a_whole(tmp_path: Path) -> None:
    """A session token of the profile does not belong to the keys of the environment."""
    profile(tmp_path, "[default]\naws_access_key_id = other\naws_session_token = token\n")
    assert resolve("s3", KEYS) == KEYS


def test_a_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no AWS profile 'absent'"):
        resolve("s3", {"AWS_PROFILE": "absent"})


def test_a_chosen_profile_without_credentials_is_an_error(tmp_path: Path) -> None:
    profile(tmp_path, "", "[profile tests]\nsso_session = company\n")
    with pytest.raises(ConfigError, match="AWS profile 'tests' has no credentials"):
        resolve("s3", {"AWS_PROFILE": "tests"})


def printing(tmp_path: Path, lifetime: timedelta) -> Path:
    """A profile whose command prints other credentials each time; the file that counts its runs."""
    runs, script = tmp_path / "runs", tmp_path / "credentials.py"
    script.write_text(
        f"import json; runs = open({str(runs)!r}, 'a+'); runs.write('x'); runs.seek(0)\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': 'id', 'SecretAccessKey': 'hidden',"
        f" 'SessionToken': runs.read(), 'Expiration': {(datetime.now(UTC) + lifetime).isoformat()!r}}}))"
    )
    profile(tmp_path, f"[default]\ncredential_process = {sys.executable} {script}\n")
    return runs


def test_printed_credentials_are_used_until_shortly_before_they_expire(tmp_path: Path) -> None:
    runs = printing(tmp_path, timedelta(hours=1))
    assert [resolve("s3", {})["AWS_SESSION_TOKEN"] for _ in range(3)] == ["x", "x", "x"]
    assert runs.read_text() == "x"


def test_printed_credentials_that_expire_soon_are_printed_again(tmp_path: Path) -> None:
    printing(tmp_path, timedelta(minutes=1))
    assert [resolve("s3", {})["AWS_SESSION_TOKEN"] for _ in range(3)] == ["x", "xx", "xxx"]


def test_a_command_that_fails_is_a_storage_error_without_what_it_printed(tmp_path: Path) -> None:
    command = f"{sys.executable} -c \"print('hidden')\""
    profile(tmp_path, f"[default]\ncredential_process = {command}\n")
    with pytest.raises(StorageError, match="credential_process") as caught:
        resolve("s3", {})
    assert "hidden" not in str(caught.value)


def test_the_key_of_a_service_account_is_passed_on_and_not_its_path(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"type": "service_account", "private_key": "hidden"}))
    for name in ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS"):
        assert resolve("gs", {name: str(key)}) == {"GOOGLE_SERVICE_ACCOUNT_KEY": key.read_text()}


def test_settings_override_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    monkeypatch.setenv("MY_ID", "id")
    monkeypatch.setenv("MY_SECRET", "hidden")
    settings = settings_from(
        {
            "storage.aws_access_key_id": "${env:MY_ID}",
            "storage.aws_secret_access_key": "${env:MY_SECRET}",
            "storage.timeout": "5s",
        }
    )
    apply_storage_settings(settings.storage)
    access = store_access("s3://bucket")
    assert dict(access.options) == {**KEYS, "AWS_REGION": "us-east-1"}
    assert access.deadlines.request == timedelta(seconds=5)
    assert "hidden" not in settings.model_dump_json()


def test_a_reference_is_resolved_again_for_each_access(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    settings = settings_from({"storage.aws_session_token": f"${{file:{token}}}"})
    apply_storage_settings(settings.storage)
    before = store_access("s3://bucket")
    token.write_text("second")
    assert dict(before.options)["AWS_SESSION_TOKEN"] == "first"
    assert dict(store_access("s3://bucket").options)["AWS_SESSION_TOKEN"] == "second"


def test_a_literal_secret_in_a_setting_is_refused() -> None:
    settings = settings_from({"storage.aws_secret_access_key": "hidden"})
    with pytest.raises(UserError, match=r"storage\.aws_secret_access_key.*literal") as caught:
        apply_storage_settings(settings.storage)
    assert "hidden" not in str(caught.value)
