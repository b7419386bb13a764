"""Dead letters as the engine commits them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.state.real_state import SOURCE, RealJob

AT = datetime(2030, 1, 1, tzinfo=UTC)


def letter(epoch: int, offset: int, raw: bytes | None = b"{", **other: Any) -> dict[str, Any]:
    return {
        "operator": str(SOURCE),
        "source": str(SOURCE),
        "epoch": epoch,
        "position": f"rides.json, line {offset + 1}",
        "error": "not JSON",
        "raw": raw,
        "at": AT,
        "partition": "rides.json",
        "offset": offset,
        "key": None,
        "headers": None,
        "record_timestamp": None,
        **other,
    }


def write_letters(job: RealJob, *letters: dict[str, Any]) -> None:
    """One file for each epoch."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    instant = pa.timestamp("us", tz="UTC")
    kinds = {"at": instant, "record_timestamp": instant, "headers": headers}
    kinds |= {"raw": pa.binary(), "key": pa.binary()}
    for epoch in sorted({each["epoch"] for each in letters}):
        rows = [each for each in letters if each["epoch"] == epoch]
        table = pa.table(
            {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}
        )
        data = pa.BufferOutputStream()
        pq.write_table(table, data)
        name = f"{job.claim.job}-{epoch:010}-00000.parquet"
        path = f"{job.backend.paths.dead_letters}/{name}"
        assert job.backend.store.create(path, data.getvalue().to_pybytes())
