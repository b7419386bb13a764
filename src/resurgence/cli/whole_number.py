"""Integer flags and arguments, with error messages for users."""

from __future__ import annotations

from collections.abc import Callable

import typer


def whole_number(minimum: int = 0, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser for `typer.Option` and `typer.Argument`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError as error:
            raise typer.BadParameter(f"'{text}' is not a whole number.") from error
        if number < minimum:
            raise typer.BadParameter(f"{number} is too small; the minimum is {minimum}.")
        if maximum is not None and number > maximum:
            raise typer.BadParameter(f"{number} is too large; the maximum is {maximum}.")
        return number

    return parse
