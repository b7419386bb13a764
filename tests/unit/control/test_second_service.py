"""A SQLite file has one service at a time; a second one says so and does not start."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from resurgence.control import service
from resurgence.control.service import open_service
from resurgence.control.store.metadata import MetadataStore
from resurgence.errors import ConfigError


def test_a_second_service_on_a_sqlite_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_HOLD_TIMEOUT", timedelta(seconds=0.3))
    database = tmp_path / "service.db"

    async def serve(metadata: MetadataStore) -> None:
        state = str(tmp_path / "state")
        async with open_service(metadata, state_url=state, folder=tmp_path, values={}, url=""):
            pass

    with closing(MetadataStore(database)) as first, closing(MetadataStore(database)) as second:
        assert first.hold()
        with pytest.raises(ConfigError, match="another service uses this metadata database") as it:
            asyncio.run(serve(second))
        assert "Several services can share a Postgres database" in it.value.hint
    with closing(MetadataStore(database)) as third:
        asyncio.run(serve(third))
