"""A stand-in for Java with Ivy: it answers from a repository in a JSON file, which tests write.

As Ivy does, it copies the newest version in a range, writes what that requires as XML, and reports
an artifact that is not there differently from a server that does not answer.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any

VERSION = 'openjdk version "17.0.1" stand-in'
REPOSITORY = "STAND_IN_REPOSITORY"
CALLS = "calls.txt"


def make_java_home(folder: Path) -> Path:
    """Return a folder for JAVA_HOME whose Java runs this module."""
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder / "java"


def order(version: str) -> tuple[list[int], bool]:
    numbers, _, qualifier = version.partition("-")
    return [int(part) for part in re.findall(r"\d+", numbers)], not qualifier


def _matches(version: str, revision: str) -> bool:
    if "," not in revision:
        return version == revision
    low, high = revision[1:-1].split(",")
    above = order(version) > order(low) or (revision[0] == "[" and order(version) == order(low))
    below = order(version) < order(high) or (revision[-1] == "]" and order(version) == order(high))
    return above and below


def _answer(arguments: list[str], repository: dict[str, Any]) -> int:
    at = arguments.index("-dependency")
    group, name, revision = arguments[at + 1 : at + 4]
    if repository.get("hangs"):
        time.sleep(60)
    if repository.get("refuses"):
        print(":::: ERRORS\n\tServer access error at url x (java.net.ConnectException: refused)")
        print("UNRESOLVED DEPENDENCIES")
        return 1
    published: dict[str, dict[str, str]] = repository["published"].get(f"{group}:{name}", {})
    found = [each for each in published if _matches(each, revision)]
    if not found:
        print("UNRESOLVED DEPENDENCIES")
        return 1
    version = max(found, key=order)
    for option in ("-retrieve", "-ivypattern"):
        text = arguments[arguments.index(option) + 1]
        for field, value in (
            ("[organisation]", group),
            ("[module]", name),
            ("[artifact]", name),
            ("[revision]", version),
            ("[ext]", "jar"),
        ):
            text = text.replace(field, value)
        Path(text).parent.mkdir(parents=True, exist_ok=True)
        Path(text).write_text(
            f"{name} {version}" if option == "-retrieve" else _xml(published[version])
        )
    return 0


def _xml(requires: dict[str, str]) -> str:
    lines = [
        '<dependency org="org.apache.spark" name="spark-sql_2.13" rev="9" conf="provided->master"/>'
    ]
    for module, version in requires.items():
        group, name = module.split(":")
        conf = "compile->compile(*);test->runtime(*)"
        lines.append(f'<dependency org="{group}" name="{name}" rev="{version}" conf="{conf}"/>')
    return f"<ivy-module><dependencies>{''.join(lines)}</dependencies></ivy-module>"


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["-version"]:
        print(VERSION, file=sys.stderr)
        return 0
    file = Path(os.environ[REPOSITORY])
    with (file.parent / CALLS).open("a") as calls:
        calls.write(f"{arguments[arguments.index('-dependency') + 2]}\n")
    return _answer(arguments, json.loads(file.read_text()))


if __name__ == "__main__":
    sys.exit(main())
