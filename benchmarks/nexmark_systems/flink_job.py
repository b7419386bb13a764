"""Executes the statements of a run in Flink. It runs in Flink's own environment, so it imports
nothing of ours that needs a package.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.processes import cpu_seconds
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    configuration = Configuration()
    for key, value in job["settings"].items():
        configuration.set_string(key, value)
    mode = EnvironmentSettings.new_instance().in_streaming_mode()
    environment = TableEnvironment.create(mode.with_configuration(configuration).build())
    for statement in job["tables"]:
        environment.execute_sql(statement)
    runs = zip(job["inserts"], job["outputs"], strict=True)
    for number, (statement, output) in enumerate(runs):
        used = cpu_seconds(os.getpid())
        result = environment.execute_sql(statement)
        result.wait()
        job_result = result.get_job_client().get_job_execution_result().result()
        found = {
            "seconds": job_result.get_net_runtime() / 1000,
            "cpu_seconds": cpu_seconds(os.getpid()) - used,
            "output": output,
            "is_warm": number > 0,
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
