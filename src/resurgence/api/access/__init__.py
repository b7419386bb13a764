"""Access control: API keys, roles, limits."""
