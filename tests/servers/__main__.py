"""Builds the named servers, and Helm, before the tests: a build takes longer than a test may."""

from __future__ import annotations

import sys

from tests import helm
from tests.servers import azure, gcs, s3
from tests.servers.builds import NoServer

_BUILDS = {"s3": s3.build, "gcs": gcs.build, "azure": azure.build, "helm": helm.build}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            _BUILDS[name]()
        except NoServer as error:
            print(f"tests with a real {name} will be skipped: {error}")
