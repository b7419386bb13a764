"""Core cases on a cluster: `python -m tests.sql.on_cluster MASTER PYTHON`, where PYTHON is that of
the executors. In a process of its own, as one may have a single session.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from resurgence.engine.spark.session import start_session
from tests.sql.case_run import CaseRun
from tests.sql.cases import load_cases, load_combined
from tests.sql.test_cases import CRASHED

NAMES = (
    "basic",
    "percentiles",
    "asof_left",
    "interval_join",
    "lookup_left",
    "changes_left_right",
    "semi_exists",
    "python_function",
    "python_aggregate",
    "late_rows",
    "many_keys_updating",
    "top_three_by_key",
    "hop_by_key",
    "session_keyed",
    "tumble_by_key",
)


def main(master: str, python: str) -> int:
    chosen = [each for each in load_cases() if each.name in NAMES]
    assert len(chosen) == len(NAMES)
    cases = load_combined(chosen)
    different = []
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="core cases",
            master=master,
            memory="1g",
            shuffle_partitions=4,
            conf={"spark.pyspark.python": python, "spark.executor.memory": "512m"},
            log_file=Path(folder, "jvm.log"),
        )
        for number, case in enumerate(cases):
            place = Path(folder, str(number))
            place.mkdir()
            difference = CaseRun(spark, case, place).difference(CRASHED)
            print(f"{case.name}: {'differs' if difference else 'same'}", flush=True)
            if difference:
                different.append(f"{case.name}:\n{difference}")
        spark.stop()
        jvm.close()
    print("\n".join(different))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
