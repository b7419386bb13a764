"""What executors that cannot run our tasks report, as errors that say what they lack."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from resurgence.engine.spark.errors import translate
from resurgence.errors import ClusterUnavailable, ExecutorsUnfit

LOST = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure:"
    " Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
)
TRACEBACK = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "worker.py", line 3, in main\n    run()\n'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{LOST}{TRACEBACK}ModuleNotFoundError: No module named 'obstore'\n\n\tat java.Thread",
            "the executors lack the Python package obstore",
        ),
        (
            f"{LOST}{TRACEBACK}pyspark.serializers.SerializationError: Caused by Traceback (most"
            ' recent call last):\n  File "x.py", line 1, in loads\n'
            "ModuleNotFoundError: No module named 'numpy.core'\n",
            "the executors lack the Python package numpy",
        ),
        (
            f"{LOST}{TRACEBACK}pyspark.errors.exceptions.base.PySparkImportError:"
            " [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not"
            " found.\n",
            "the executors lack the Python package pyarrow",
        ),
        (
            f"{LOST}{TRACEBACK}pyspark.errors.exceptions.base.PySparkRuntimeError:"
            " [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in"
            " driver: 3.11, PySpark cannot run with different minor versions.\n",
            "the executors run Python 3.10, but the driver runs 3.11",
        ),
        (
            f'{LOST}java.io.IOException: Cannot run program "/opt/python3": error=2, No such file'
            " or directory\n\tat java.lang.ProcessBuilder",
            "the executors cannot run /opt/python3: No such file or directory",
        ),
        (
            f'{LOST}java.io.IOException: Cannot run program "/opt/python3": error=13, Permission'
            " denied\n\tat java.lang.ProcessBuilder",
            "the executors cannot run /opt/python3: Permission denied",
        ),
    ],
)
def test_the_error_says_what_is_missing(text: str, message: str) -> None:
    failure = translate(PySparkException(text))
    assert (type(failure), failure.message) == (ExecutorsUnfit, message)
    assert "spark.pyspark.python" in failure.hint


def test_an_application_that_the_master_removed_is_a_failure_of_the_cluster() -> None:
    failure = translate(PySparkException("Master removed our application: FAILED"))
    assert type(failure) is ClusterUnavailable
    assert "Master removed our application: FAILED" in failure.message
