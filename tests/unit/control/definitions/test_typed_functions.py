"""The functions of pipelines that are of no job: typed in an editor, or previewed."""

from __future__ import annotations

import os
import time
from pathlib import Path

from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.jobs.job_record import PipelineRecord
from resurgence.ids import JobName

NO_JOB = JobName("-")
SQL = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT doubled(counter) FROM ticks"""
FUNCTIONS = """from resurgence import udf

@udf
def doubled(number: int) -> int:
    return {} * number
"""


def compiled(environment: JobEnvironment, factor: int) -> Path:
    """Compile functions; return their file."""
    pipeline = PipelineRecord(SQL, "file:///state", FUNCTIONS.format(factor))
    definition = environment.define(NO_JOB, pipeline)
    definition.compile(SQL)
    assert definition.functions_file is not None
    return definition.functions_file


def test_functions_that_were_not_compiled_for_a_while_are_removed(tmp_path: Path) -> None:
    environment = JobEnvironment("file:///state", tmp_path)
    old, used = compiled(environment, 2), compiled(environment, 3)
    hour_ago = time.time() - 3600
    for each in (old, used):
        os.utime(each, (hour_ago, hour_ago))
    compiled(environment, 3)
    environment.tidy_functions(NO_JOB)
    assert [old.exists(), used.exists()] == [False, True]


def test_there_is_nothing_to_tidy_before_the_first_functions(tmp_path: Path) -> None:
    JobEnvironment("file:///state", tmp_path).tidy_functions(NO_JOB)
    assert [*tmp_path.iterdir()] == []
