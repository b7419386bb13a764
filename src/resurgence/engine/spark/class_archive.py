"""An archive of the classes that Spark loads, which Java maps instead of loading them.

Much of a start is loading classes. An archive belongs to one Java and one set of jars; it is built
once, in the background, by a process that runs a small Spark job and notes which classes that
needs. It only ever saves time: with no archive, a damaged one or one that could not be built, the
start is the same, only slower.

The process that builds is in a session of its own, so that it survives the worker that started it, at
lowest priority. While it builds it holds a lock on the cache folder, which is gone when it is killed, and
all its files are in one directory there, which the next one deletes. A build that fails leaves its log,
and is not tried again within the hour.
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

from resurgence.engine.spark.java import JAVA_OPTIONS, QUIET, Java, class_path, find_java, jars

_UNUSED_LIMIT = timedelta(days=7)
_RETRY_AFTER = timedelta(hours=1)
_BUILD_WITHIN = timedelta(minutes=30)
_LOWEST_PRIORITY = 19
_BUILDING = "building-"
_LOOKED_WITHIN = timedelta(seconds=2)
"""Whoever only looks whether someone builds holds the lock for less than that."""


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


def failure_log(archive: Path) -> Path:
    """What the last build printed, if it failed."""
    return archive.with_suffix(".failed.log")


def is_being_built(archive: Path) -> bool:
    """Whether some process builds an archive in this cache now."""
    if not archive.parent.is_dir():
        return False
    lock = os.open(archive.parent, os.O_RDONLY)
    try:
        return not _locked(lock, fcntl.LOCK_SH, timedelta(0))
    finally:
        os.close(lock)


_BUILDERS: list[subprocess.Popen[bytes]] = []
"""Nobody waits for them; they are held so that Python does not complain of a child left running."""


def build_archive_in_background(archive: Path) -> None:
    """Starts a process that builds the archive, unless one does so already, or failed within the
    hour. Never raises.
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
    """Builds the archive, if nobody else does; whether it is there now."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with _build_lock(archive.parent) as is_ours:
        if is_ours and not archive.exists():
            # Whoever made them was killed, or the lock would not be ours.
            for left in archive.parent.glob(f"{_BUILDING}*"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_BUILDING) as directory:
                _build(archive, Path(directory))
            for old in archive.parent.glob("classes-*.*"):
                if age(old) > _UNUSED_LIMIT:
                    old.unlink(missing_ok=True)
    return archive.exists()


def _build(archive: Path, directory: Path) -> None:
    """All files of the build are in `directory`. A failure leaves a log beside the archive."""
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
    """Runs a small Spark job, and archives the classes that it needed.

    First a list of the classes, then an archive of them all, rather than an addition to the archive
    of the JDK: some JDKs come without one.
    """
    # The session module builds on this one; only this process needs it here.
    from resurgence.engine.spark.session import run_typical_job

    class_list, unfinished = directory / "classes.lst", directory / "classes.jsa"
    # At lowest priority, beside jobs that use all of the machine, a start may take very long.
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
    """Holds the lock on the cache folder, if nobody else builds there; whether this process has
    it.
    """
    lock = os.open(cache, os.O_RDONLY)
    try:
        yield _locked(lock, fcntl.LOCK_EX, _LOOKED_WITHIN)
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


def _give_way() -> None:
    """Lowest priority for this process and its children."""
    with contextlib.suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
        # Linux shares the processor between sessions first; this is the niceness of the session.
        Path("/proc/self/autogroup").write_text(str(_LOWEST_PRIORITY))


def age(path: Path) -> timedelta:
    return timedelta(seconds=time.time() - path.stat().st_mtime)


if __name__ == "__main__":
    if "--give-way" in sys.argv:
        _give_way()
    # Should it hang, it ends: the lock goes with it, and the next start tries again.
    signal.alarm(int(_BUILD_WITHIN.total_seconds()))
    given = (
        sys.argv[sys.argv.index("--build-archive") + 1 :] if "--build-archive" in sys.argv else []
    )
    sys.exit(0 if build_archive(Path(given[0]) if given else archive_path(find_java())) else 1)
