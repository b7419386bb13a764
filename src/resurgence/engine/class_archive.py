"""An archive of the classes that Spark loads, which Java maps instead of loading them.

Much of a start is loading classes. An archive belongs to one Java and one set of jars; it is built
once, in the background, by a process that runs a small Spark job and notes which classes that
needs. It only ever saves time: with no archive, a damaged one or one that could not be built, the
start is the same, only slower.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from resurgence.engine.java import JAVA_OPTIONS, QUIET, Java, class_path, find_java, jars

_UNUSED_LIMIT = timedelta(days=7)
_RETRY_AFTER = timedelta(hours=1)


def archive_path(java: Java) -> Path:
    """Where the archive of this Java and these jars is.

    The name stands for path, size and time of each jar, because Java compares those too.
    """
    digest = hashlib.sha256(java.version.encode())
    for jar in jars():
        status = jar.stat()
        digest.update(f"\n{jar} {status.st_size} {status.st_mtime_ns}".encode())
    cache = (
        os.environ.get("RESURGENCE_CACHE_DIR")
        or os.environ.get("XDG_CACHE_HOME")
        or Path.home() / ".cache"
    )
    return Path(cache, "resurgence", f"classes-{digest.hexdigest()[:16]}.jsa")


_BUILDERS: list[subprocess.Popen[bytes]] = []
"""Nobody waits for them; they are held so that Python does not complain of a child left running."""


def build_archive_in_background(archive: Path) -> None:
    """Starts a process that builds the archive, unless one did so within the hour. Never raises.

    The log is also the lock and the memory of a failure: whoever creates it builds, and success
    deletes it.
    """
    log_file = archive.with_suffix(".log")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        if log_file.exists() and age(log_file) > _RETRY_AFTER:
            log_file.unlink(missing_ok=True)
        with log_file.open("xb") as log:
            builder = subprocess.Popen(
                [
                    "nice",
                    "-n",
                    "19",
                    sys.executable,
                    "-m",
                    __name__,
                    "--build-archive",
                    str(archive),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Not a session of its own: Linux shares the processor between sessions, whatever
                # their niceness, and the build would take half of it from the start that it runs
                # beside.
            )
            _BUILDERS.append(builder)
    except OSError:
        return


def build_archive(archive: Path) -> None:
    """Runs a small Spark job, archives the classes that it needed, deletes archives unused for
    days.

    First a list of the classes, then an archive of them all, rather than an addition to the archive
    of the JDK: some JDKs come without one.
    """
    java = find_java()
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="classes-") as directory:
        class_list = Path(directory, "classes.lst")
        log_file = archive.with_suffix(".log")
        # The session module builds on this one; only this process needs it here.
        from resurgence.engine.session import run_typical_job

        run_typical_job(log_file, [f"-XX:DumpLoadedClassList={class_list}"])
        unfinished = Path(directory, "classes.jsa")
        subprocess.run(
            [
                java.executable,
                *JAVA_OPTIONS,
                *QUIET,
                "-Xshare:dump",
                f"-XX:SharedClassListFile={class_list}",
                f"-XX:SharedArchiveFile={unfinished}",
                *class_path(),
            ],
            check=True,
        )
        with unfinished.open("rb") as finished:
            os.fsync(finished.fileno())
        unfinished.replace(archive)
    log_file.unlink()
    for old in archive.parent.glob("classes-*.*"):
        if age(old) > _UNUSED_LIMIT:
            old.unlink(missing_ok=True)


def age(path: Path) -> timedelta:
    return timedelta(seconds=time.time() - path.stat().st_mtime)


if __name__ == "__main__":
    build_archive(Path(sys.argv[sys.argv.index("--build-archive") + 1]))
