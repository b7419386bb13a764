"""What the shell offers for an argument: the jobs of a service, and sets of jars. `state_dir` offers
the jobs of a state directory, and the shell itself files.

A completion must be quick and silent: it has a short deadline, and no errors.
"""

from __future__ import annotations

import contextlib

import typer

_ANSWER_SECONDS = 1.0


def service_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs of the service that begin with what is typed."""
    import httpx

    from resurgence.cli.service_client import DEFAULT_SERVER
    from resurgence.cli.service_flags import api_key

    server = context.params.get("server") or DEFAULT_SERVER
    with contextlib.suppress(Exception):
        key = api_key(context.params.get("key_file"))
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        answer = httpx.get(f"{server}/v1/jobs", headers=headers, timeout=_ANSWER_SECONDS)
        names = [str(each["name"]) for each in answer.raise_for_status().json()["jobs"]]
        return [each for each in names if each.startswith(incomplete)]
    return []


def jar_sets(incomplete: str) -> list[str]:
    """Return the sets of jars that begin with what is typed."""
    from resurgence.engine.spark.jar_sets import JAR_SETS

    return [each for each in JAR_SETS if each.startswith(incomplete)]
