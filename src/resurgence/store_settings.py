"""Applies the settings `storage.*` to the stores of this process.

A setting stays a reference wherever it is stored or sent. It is resolved whenever a Spark job or a
request needs it, so a file with a token can be replaced while a job runs.
"""

from __future__ import annotations

from resurgence.config import StorageSettings
from resurgence.errors import ConfigError
from resurgence.secrets import open_options, shown_value
from resurgence.storage.access import AccessOverrides, Deadlines, override_access


def apply_storage_settings(settings: StorageSettings) -> None:
    """Use these settings for all stores of this process. Raise ConfigError for a literal secret."""
    variables = settings.variables()
    for name, value in variables.items():
        if shown_value(name, value) != value:
            raise ConfigError(
                f"setting 'storage.{name.lower()}' contains a literal secret",
                hint="Write a reference to it, ${env:NAME} or ${file:PATH}.",
            )
    override_access(
        AccessOverrides(
            lambda: open_options("storage", variables).values,
            Deadlines(request=settings.timeout, retries=settings.retry_timeout),
        )
    )
