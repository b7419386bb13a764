"""The grammar: dialect, parsing, types, intervals."""
