"""Freezes a state dir in today's format: three of the four epochs of `pipeline.sql`, and its output.

    python tests/samples/make_sample.py

creates `format-{version}` beside this file. Run it once, in the change that raises the version. A
sample is never created again: it represents the state that a release left on disk, and
`tests/engine/tables/test_state_formats.py` restores every one of them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.spark.session import start_session
from resurgence.graph.model import Graph
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.state.records import FORMAT_VERSION
from resurgence.storage.object_store import ObjectStore

HERE = Path(__file__).resolve().parent
JOB = JobName("totals")
EPOCH_ROWS, EPOCHS = 150, 3
PARALLELISM = 2


def sample_graph(folder: Path) -> Graph:
    """The pipeline, with its sink in the sample's folder."""
    sql = (HERE / "pipeline.sql").read_text(encoding="utf-8")
    assert "path = 'out'" in sql
    return compile_pipeline(sql.replace("path = 'out'", f"path = '{folder}/out'"), CONNECTORS)


def make_sample(folder: Path) -> None:
    """Run the first epochs in a folder."""
    session, jvm = start_session(
        app_name="sample",
        master="local[2]",
        memory="1g",
        shuffle_partitions=PARALLELISM,
        conf={},
        log_file=folder.parent / "jvm.log",
    )
    try:
        settings = {
            "pipeline.epoch_rows": str(EPOCH_ROWS),
            "pipeline.parallelism": str(PARALLELISM),
        }
        engine = open_engine(
            session, sample_graph(folder), ObjectStore(str(folder)), JOB, settings_from(settings)
        )
        for _ in range(EPOCHS):
            engine.run_epoch()
    finally:
        session.stop()
        jvm.close()


def main() -> None:
    """Make the sample elsewhere, then put it into its place as a whole."""
    target = HERE / f"format-{FORMAT_VERSION}"
    if target.exists():
        sys.exit(f"{target} exists: a frozen sample is never made again")
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "sample"
        make_sample(made)
        shutil.copytree(made, target)


if __name__ == "__main__":
    main()
