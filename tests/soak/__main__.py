"""`python -m tests.soak --minutes N [--seed N]`: random pipelines under random faults, each
compared with Spark's batch answer, until the time is up or one differs.

Exit 1 and the seed on the first difference. `--seed N --once` runs that pipeline alone.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from resurgence.engine.spark.session import start_session
from tests.soak.disturbances import DisturbedJob, Step, random_steps, run_in_processes
from tests.soak.pipelines import RandomPipeline, described, random_pipeline
from tests.sql.case_run import CaseRun

PROCESSES_EVERY = 12
"""One of so many pipelines is run by real processes."""


def difference(
    spark: SparkSession, pipeline: RandomPipeline, steps: list[Step] | None, folder: Path
) -> str:
    """What is wrong with a pipeline's output, or what it failed with. Steps None: in processes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    case_run = CaseRun(spark, pipeline.case(), folder, may_be_empty=True)
    job = case_run.job("soak")
    disturbed = DisturbedJob(job, random.Random(f"life {pipeline.seed}"))
    try:
        if steps is None:
            disturbed.happened.append(run_in_processes(job, pipeline.seed, pipeline.rows))
        else:
            disturbed.live(steps)
        found = case_run.compared("soak")
    except Exception:
        found = traceback.format_exc()
    return "\n".join([*disturbed.happened, found]) if found else ""


def minimised(
    spark: SparkSession, pipeline: RandomPipeline, steps: list[Step] | None, folder: Path
) -> tuple[RandomPipeline, list[Step] | None, str]:
    """A smaller pipeline with less happening to it that is still wrong: parts are left out one at a
    time, for as long as that can be done.
    """
    found = difference(spark, pipeline, steps, folder)
    for query in pipeline.queries:
        fewer = [each for each in pipeline.queries if each is not query]
        if fewer and (text := difference(spark, pipeline.with_queries(fewer), steps, folder)):
            pipeline, found = pipeline.with_queries(fewer), text
    while pipeline.rows > 10:
        smaller = replace(pipeline, rows=pipeline.rows // 2)
        if not (text := difference(spark, smaller, steps, folder)):
            break
        pipeline, found = smaller, text
    for step in list(steps or ()):
        assert steps is not None
        fewer_steps = [each for each in steps if each is not step]
        if text := difference(spark, pipeline, fewer_steps, folder):
            steps, found = fewer_steps, text
    return pipeline, steps, found


def soak(minutes: float, seed: int, *, once: bool) -> int:
    """Exit status."""
    deadline = time.monotonic() + minutes * 60
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    session, jvm = start_session(
        app_name="soak",
        master="local[2]",
        memory="2g",
        shuffle_partitions=4,
        conf={},
        log_file=folder / "jvm.log",
    )
    count = 0
    try:
        while count == 0 or (not once and time.monotonic() < deadline):
            pipeline = random_pipeline(seed + count)
            is_in_processes = count % PROCESSES_EVERY == PROCESSES_EVERY - 1
            steps = None if is_in_processes else random_steps(seed + count, pipeline.rows)
            kinds = ", ".join(each.kind for each in pipeline.queries)
            print(f"SEED={seed + count}: {kinds}", flush=True)
            if text := difference(session, pipeline, steps, folder / "run"):
                print(text, flush=True)
                print("making it smaller", flush=True)
                pipeline, steps, text = minimised(session, pipeline, steps, folder / "run")
                (folder / "pipeline.sql").write_text(described(pipeline), encoding="utf-8")
                print(f"{described(pipeline)}\n{steps}\n{text}")
                print(f"make soak MINUTES=1 SEED={seed + count}  # differs; see {folder}")
                return 1
            count += 1
    finally:
        session.stop()
        jvm.close()
    print(f"{count} pipelines in {minutes:g} minutes, all equal to the batch answer")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    seed = random.randrange(10**6) if given.seed is None else given.seed
    return soak(given.minutes, seed, once=given.once)


if __name__ == "__main__":
    sys.exit(main())
