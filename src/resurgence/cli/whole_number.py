"""Numbers in flags and arguments, refused in the words of a user and not of a library."""

from __future__ import annotations

from collections.abc import Callable

import typer


def whole_number(least: int = 0, most: int | None = None) -> Callable[[str], int]:
    """A parser for `typer.Option` and `typer.Argument`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError as error:
            raise typer.BadParameter(f"'{text}' is not a whole number.") from error
        if number < least:
            raise typer.BadParameter(f"{number} is too small; the least is {least}.")
        if most is not None and number > most:
            raise typer.BadParameter(f"{number} is too large; the most is {most}.")
        return number

    return parse
