"""Reads a topic by Spark in a process of its own: `python -m tests.kafka.read_topic BOOTSTRAP TOPIC`,
with Spark's settings as JSON on standard input. Prints the values as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from resurgence.engine.spark.session import start_session


def main(bootstrap: str, topic: str) -> None:
    conf = json.load(sys.stdin)
    spark, jvm = start_session(
        app_name="reads a topic",
        master=conf.pop("spark.master"),
        memory=conf.pop("spark.driver.memory", "1g"),
        shuffle_partitions=2,
        conf=conf,
        log_file=Path(os.devnull),
    )
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).load().selectExpr("string(value) AS value")
    print(json.dumps(sorted(row.value for row in rows.collect())))
    spark.stop()
    jvm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
