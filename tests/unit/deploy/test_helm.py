"""Helm renders the chart as it is stored, and refuses wrong values."""

from __future__ import annotations

import json

import pytest
from tests.helm import CHART, VARIANTS, Refused, Values, build, one, render, run, stored
from tests.servers.builds import NoServer

# To build Helm takes minutes; `make test-all` builds it before the tests.
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("_helm")]

PLAIN = VARIANTS["plain"]


@pytest.fixture(scope="module")
def _helm() -> None:
    try:
        build()
    except NoServer as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_renders_what_is_stored(variant: str) -> None:
    assert render(VARIANTS[variant]) == stored(variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_helm_lint_finds_no_fault(variant: str) -> None:
    output = run("lint", "--strict", str(CHART), values=VARIANTS[variant])
    assert "0 chart(s) failed" in output


def test_a_change_of_settings_restarts_the_controllers() -> None:
    checksums = {
        json.dumps(one(render(each), "Deployment")["spec"]["template"]["metadata"]["annotations"])
        for each in (PLAIN, PLAIN | {"settings": {"pipeline.parallelism": 8}}, PLAIN)
    }
    assert len(checksums) == 2


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "stateDir is required"),
        (PLAIN | {"settings": {"pipeline.stop_timeout": "5m"}}, "stop_timeout"),
        (PLAIN | {"env": {"AWS_SECRET_ACCESS_KEY": "a"}}, "AWS_SECRET_ACCESS_KEY"),
        (PLAIN | {"replica": 3}, "replica"),
    ],
)
def test_helm_refuses_wrong_values(values: Values, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        render(values)
