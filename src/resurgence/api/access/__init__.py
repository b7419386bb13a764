"""Who may call: keys, roles, limits."""
