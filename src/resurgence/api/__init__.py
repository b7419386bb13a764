"""The REST API of a service."""
