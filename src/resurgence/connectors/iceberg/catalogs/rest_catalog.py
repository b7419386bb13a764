"""A REST catalog whose requests have a deadline: pyiceberg's own would wait for ever.

Only `catalog` imports this module, when a table of such a catalog is opened.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0


class DeadlineRestCatalog(RestCatalog):
    """A REST catalog."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _DeadlineAdapter())
        return session


class _DeadlineAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        options["timeout"] = (CONNECT_SECONDS, ANSWER_SECONDS)
        return super().send(request, *args, **options)
