"""The first rows of a query, computed from a sample of its real input, before there is a job."""

from resurgence.engine.preview.process import preview
from resurgence.engine.preview.request import Preview, PreviewedTable, PreviewRequest
from resurgence.engine.preview.selection import QueryError, selected_graph

__all__ = [
    "Preview",
    "PreviewRequest",
    "PreviewedTable",
    "QueryError",
    "preview",
    "selected_graph",
]
