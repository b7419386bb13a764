"""A class-data archive of the classes that Spark loads: Java maps it instead of loading each class.

Class loading is much of a start. An archive belongs to one Java and one set of jars. It is built
once, in the background, by a process that runs a small Spark job and records which classes that
needs. It only saves time: without an archive, with a damaged one or after a failed build, the start
is the same, only slower.

The builder runs in its own session, so that it survives the worker that started it, at lowest
priority. While it builds it holds a lock on the cache folder, which ends with the process. All its
files are in one directory there, which the next builder deletes. A failed build leaves its log, and
is not retried within the hour.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from resurgence.cache_folder import cache_folder
from resurgence.engine.spark.java import JAVA_OPTIONS, QUIET, Java, class_path, find_java, jars

_UNUSED_LIMIT = timedelta(days=7)
_RETRY_AFTER = timedelta(hours=1)
_BUILD_WITHIN = timedelta(minutes=30)
_LOWEST_PRIORITY = 19
_BUILDING = "building-"
_PROBED_WITHIN = timedelta(seconds=2)
"""A process that only checks for a running build holds the lock for less than this."""


def archive_path(java: Java) -> Path:
    """Return the path of the archive for this Java and these jars.

    Its name is a digest over path, size and time of each jar, because Java compares those as well.
    """
    digest = hashlib.sha256(java.version.encode())
    for jar in jars():
        status = jar.stat()
        digest.update(f"\n{jar} {status.st_size} {status.st_mtime_ns}".encode())
    return cache_folder() / f"classes-{digest.hexdigest()[:16]}.jsa"


def failure_log(archive: Path) -> Path:
    """Return the path of the last build's log, which exists if the build failed."""
    return archive.with_suffix(".failed.log")


def is_being_built(archive: Path) -> bool:
    """Return whether a process is building an archive in this cache."""
    if not archive.parent.is_dir():
        return False
    lock = os.open(archive.parent, os.O_RDONLY)
    try:
        return not _locked(lock, fcntl.LOCK_SH, timedelta(0))
    finally:
        os.close(lock)


_BUILDERS: list[subprocess.Popen[bytes]] = []
"""Never waited for. The references stop Python from warning about a child that still runs."""


def build_archive_in_background(archive: Path) -> None:
    """Start a process that builds the archive, unless one is running or failed within the hour.
    Never raises.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        failed = failure_log(archive)
        if is_being_built(archive) or (failed.exists() and age(failed) < _RETRY_AFTER):
            return
        builder = subprocess.Popen(
            [sys.executable, "-m", __name__, "--give-way", "--build-archive", str(archive)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _BUILDERS.append(builder)
    except OSError:
        return


def build_archive(archive: Path) -> bool:
    """Build the archive unless another process does; return whether it exists now."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with _build_lock(archive.parent) as is_ours:
        if is_ours and not archive.exists():
            # Their builder was killed, or it would still hold the lock.
            for left in archive.parent.glob(f"{_BUILDING}*"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_BUILDING) as directory:
                _build(archive, Path(directory))
            for old in archive.parent.glob("classes-*.*"):
                if age(old) > _UNUSED_LIMIT:
                    old.unlink(missing_ok=True)
    return archive.exists()


def _build(archive: Path, directory: Path) -> None:
    """Build the archive in `directory`. A failure leaves a log beside the archive."""
    log_file, elsewhere = directory / "log", tempfile.tempdir
    tempfile.tempdir = str(directory)
    try:
        unfinished = _archived_classes(directory, log_file)
        with unfinished.open("rb") as finished:
            os.fsync(finished.fileno())
        unfinished.replace(archive)
        failure_log(archive).unlink(missing_ok=True)
    except Exception:
        with log_file.open("a") as log:
            traceback.print_exc(file=log)
        log_file.replace(failure_log(archive))
    finally:
        tempfile.tempdir = elsewhere


def _archived_classes(directory: Path, log_file: Path) -> Path:
    """Run a small Spark job, and archive the classes that it loaded.

    The archive is built from a list of all classes, rather than on top of the JDK's archive,
    because some JDKs do not have one.
    """
    # The session module imports this one; only the builder needs it here.
    from resurgence.engine.spark.session import run_typical_job

    class_list, unfinished = directory / "classes.lst", directory / "classes.jsa"
    # At lowest priority, beside jobs that use the whole machine, a start can take very long.
    run_typical_job(log_file, [f"-XX:DumpLoadedClassList={class_list}"], _BUILD_WITHIN)
    with log_file.open("ab") as log:
        subprocess.run(
            [
                find_java().executable,
                *JAVA_OPTIONS,
                *QUIET,
                f"-Djava.io.tmpdir={directory}",
                "-XX:-UsePerfData",
                "-Xshare:dump",
                f"-XX:SharedClassListFile={class_list}",
                f"-XX:SharedArchiveFile={unfinished}",
                *class_path(),
            ],
            check=True,
            stdout=log,
            stderr=log,
            timeout=_BUILD_WITHIN.total_seconds(),
        )
    return unfinished


@contextlib.contextmanager
def _build_lock(cache: Path) -> Iterator[bool]:
    """Hold the lock on the cache folder unless another process builds there; yield whether this
    process holds it.
    """
    lock = os.open(cache, os.O_RDONLY)
    try:
        yield _locked(lock, fcntl.LOCK_EX, _PROBED_WITHIN)
    finally:
        os.close(lock)


def _locked(lock: int, kind: int, patience: timedelta) -> bool:
    give_up_at = time.monotonic() + patience.total_seconds()
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(0.05)
        else:
            return True


def _lower_priority() -> None:
    """Run this process and its children at lowest priority."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
        # Linux divides the processor between sessions first; this is the niceness of the session.
        Path("/proc/self/autogroup").write_text(str(_LOWEST_PRIORITY))


def age(path: Path) -> timedelta:
    return timedelta(seconds=time.time() - path.stat().st_mtime)


if __name__ == "__main__":
    if "--give-way" in sys.argv:
        _lower_priority()
    # A build that hangs ends here and releases its lock, so that the next start can try again.
    signal.alarm(int(_BUILD_WITHIN.total_seconds()))
    paths = (
        sys.argv[sys.argv.index("--build-archive") + 1 :] if "--build-archive" in sys.argv else []
    )
    wanted = Path(paths[0]) if paths else archive_path(find_java())
    if not wanted.exists():
        print("building the class-data archive, once: about half a minute", flush=True)
    sys.exit(0 if build_archive(wanted) else 1)
