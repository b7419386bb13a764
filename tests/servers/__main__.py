"""Builds the named servers, and Helm, before the tests: a build takes longer than a test may."""

from __future__ import annotations

import sys

from tests import helm
from tests.servers import (
    azure,
    chromium,
    debezium,
    duckdb_reader,
    gcs,
    iceberg,
    kafka,
    s3,
    schema_registry,
    spark_jars,
)
from tests.servers.builds import NoServer

_BUILDS = {
    "s3": s3.build,
    "gcs": gcs.build,
    "azure": azure.build,
    "kafka": kafka.build,
    "iceberg": iceberg.build,
    "schema-registry": schema_registry.build,
    "debezium": debezium.build,
    "duckdb": duckdb_reader.build,
    "chromium": chromium.build,
    "spark-jars": spark_jars.build,
    "helm": helm.build,
}

_ALSO = {"kafka": ["spark-jars", "debezium"], "iceberg": ["duckdb"]}
"""What the tests of a server need besides it."""

if __name__ == "__main__":
    for name in [part for each in sys.argv[1:] for part in (each, *_ALSO.get(each, []))]:
        try:
            _BUILDS[name]()
        except NoServer as error:
            print(f"tests that need {name} will be skipped: {error}")
