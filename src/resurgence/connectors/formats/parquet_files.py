"""The format `parquet`, encoded by `storage.parquet`."""

from __future__ import annotations

import functools

from resurgence.connectors.formats.contract import Compression, Format
from resurgence.graph.connector_spec import FormatSpec
from resurgence.storage.parquet import ParquetEncoder, all_batches

PARQUET = Format(
    FormatSpec("parquet"),
    suffix="parquet",
    is_columnar=True,
    encoder=ParquetEncoder,
    compressions={
        name: Compression(functools.partial(ParquetEncoder, compression=codec))
        for name, codec in {
            "uncompressed": "none",
            "snappy": "snappy",
            "gzip": "gzip",
            "zstd": "zstd",
            "lz4": "lz4",
        }.items()
    },
    batches=all_batches,
)
