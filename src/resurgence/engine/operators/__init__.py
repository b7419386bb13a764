"""The operators, one module each; sub-packages for windows, aggregates and changelogs."""
