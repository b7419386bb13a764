"""Window operators: one module per window kind."""
