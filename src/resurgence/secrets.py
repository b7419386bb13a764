"""Secrets in the options of a table: what is never shown, and when it is read.

A value may hold references, `${env:NAME}` and `${file:PATH}`; `$${` is a literal `${`. Whatever is
compiled, shown, stored or sent holds the reference. Only `open_options` reads what it stands for:
where a connector is made, in the process that makes it.

A literal secret travels with the graph, because the worker needs it, but is shown as `***`. It is
told by the name of its option, or by its place in a URL. What consists of references alone gives
nothing away and is shown as it is.

A `Concealer` takes secrets out of texts that connectors and libraries make: their errors, say.
Values are found as they are, quoted or percent-encoded; no one finds what a library has taken
apart.
"""

from __future__ import annotations

import json
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from resurgence.errors import ResurgenceError, UserError, did_you_mean

MASK = "***"

SECRET_NAMES = (
    "*password*",
    "*secret*",
    "*token*",
    "*credentials*",
    "*.key",
    "*_key",
    "*-key",
    "*apikey",
    "sasl.*",
    "*.sasl.*",
)
"""Names, in lower case, of options and of parameters in URLs whose values are secret."""

_KINDS = ("env", "file")
_HINT = "write ${env:NAME} or ${file:PATH}; a literal ${ is written $${"
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<kind>[^:{}]*):(?P<name>[^{}]+)\}|\$\{")
_ONLY_REFERENCES = re.compile(r"(?:\$\{(?:env|file):[^{}]+\})*")
_USER_INFO = re.compile(
    r"""://(?:\$\{[^{}]*\}|[^\s/:@])*+:        # the user
    (?P<secret>(?:\$\{[^{}]*\}|[^\s/?\#])+(?=@)  # up to the last @ before the path
    |(?!\d+[/?\#])\S+(?=@))                    # or after it, unless host and port stand there""",
    re.VERBOSE,
)
_PARAMETER = re.compile(r"[?&;](?P<name>[\w.-]+)=(?P<secret>[^&;\s]+)")
_SHORT = 4
"""Values with fewer characters are looked for as whole words only."""


def is_secret(name: str) -> bool:
    """Whether an option of that name holds a secret."""
    name = name.lower()
    # Names the class that finds credentials, not the credentials.
    if name.endswith(".provider"):
        return False
    return any(fnmatchcase(name, each) for each in SECRET_NAMES)


def shown_value(name: str, value: str) -> str:
    """An option's value for people and records."""
    parts, end = [], 0
    for start, stop in sorted(_secret_spans(name, value)):
        if start >= end:
            parts += [value[end:start], MASK]
        end = max(end, stop)
    return "".join([*parts, value[end:]])


def is_masked(name: str, value: str) -> bool:
    """Whether a secret was taken out of this value."""
    return any(value[start:stop] == MASK for start, stop in _secret_spans(name, value))


def has_references(value: str) -> bool:
    """Whether a value is another one when it is opened."""
    return _REFERENCE.search(value) is not None


def reference_fault(name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with the references in a value, and what to do; None if nothing is."""
    for match in _REFERENCE.finditer(value):
        kind = match["kind"]
        if match[0] == "$${" or kind in _KINDS:
            continue
        if kind is None or is_secret(name):
            # A password may hold such characters by chance: it is not quoted.
            return f"option '{name}' has a reference that cannot be read", _HINT
        close = did_you_mean(kind, _KINDS)
        message = f"option '{name}' has a reference of unknown kind '{kind}'"
        return message, close if close.startswith("did you") else _HINT
    return None


class Concealer:
    """Takes secrets out of texts. Made from what must not be seen, and what is seen instead."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        self._shown = {form: text for value, text in shown.items() for form in _forms(value)}
        longest_first = sorted(self._shown, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_search, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        """The text without secrets."""
        return shown_value("", self._pattern.sub(lambda match: self._shown[match[0]], text))

    @contextmanager
    def over_errors(self) -> Iterator[None]:
        """Errors leave this without secrets; one that holds any loses its causes, too."""
        try:
            yield
        except Exception as error:
            told = "".join([*traceback.format_exception(error), *map(str, vars(error).values())])
            if self.text(told) == told:
                raise
            raise self._told_anew(error) from None

    def _told_anew(self, error: Exception) -> Exception:
        if not isinstance(error, ResurgenceError):
            return ResurgenceError(self.text(f"{type(error).__name__}: {error}"))
        error.args = tuple(self.text(str(each)) for each in error.args)
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.text(value))
        return error


@dataclass(frozen=True)
class OpenedOptions:
    """Options as a connector needs them. Not to be shown, stored or sent."""

    values: dict[str, str]
    concealer: Concealer

    def __repr__(self) -> str:
        return f"OpenedOptions({', '.join(self.values)})"


def open_options(table: str, options: Mapping[str, str]) -> OpenedOptions:
    """Read what the references of a table's options stand for; a UserError if one cannot be."""
    values: dict[str, str] = {}
    shown: dict[str, str] = {}
    for name, value in options.items():
        place = f"table '{table}', option '{name}'"
        if is_masked(name, value):
            raise UserError(
                f"{place}: {MASK} stands where a secret was taken out",
                hint="write the secret, or better a reference to it: ${env:NAME} or ${file:PATH}",
            )
        values[name] = _opened(value, place)
        shown.update(_concealed(name, value))
    return OpenedOptions(values, Concealer(shown))


def concealer_for(tables: Iterable[Mapping[str, str]]) -> Concealer:
    """Takes the secrets in the options of several tables out of texts, as far as they can be
    read.
    """
    shown: dict[str, str] = {}
    for options in tables:
        for name, value in options.items():
            try:
                shown.update(_concealed(name, value))
            except UserError:
                continue
    return Concealer(shown)


def _secret_spans(name: str, value: str) -> Iterator[tuple[int, int]]:
    """Where a value has literal secrets."""
    found = [(0, len(value))] if is_secret(name) else []
    found += [match.span("secret") for match in _USER_INFO.finditer(value)]
    found += [
        match.span("secret") for match in _PARAMETER.finditer(value) if is_secret(match["name"])
    ]
    return (each for each in found if not _ONLY_REFERENCES.fullmatch(value, *each))


def _opened(value: str, place: str = "") -> str:
    return _REFERENCE.sub(lambda match: _read(match, place), value)


def _concealed(name: str, value: str) -> dict[str, str]:
    """Each secret of a value, and what is seen instead."""
    spans = _secret_spans(name, value)
    literal = {_opened(value[start:stop]): MASK for start, stop in spans}
    references = {_read(match): match[0] for match in _REFERENCE.finditer(value) if match["kind"]}
    return {**literal, **references}


def _read(match: re.Match[str], place: str = "") -> str:
    kind, name = match["kind"], match["name"]
    if kind is None:
        return "${"
    if kind == "env":
        if name in os.environ:
            return os.environ[name]
        reason, hint = f"there is no environment variable '{name}'", f"set {name} for this command"
    elif kind != "file":
        reason, hint = "references of this kind are unknown", _HINT
    else:
        try:
            text = Path(name).expanduser().read_bytes().decode()
        except (OSError, ValueError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "it is no text in UTF-8"
            reason, hint = f"the file cannot be read: {why}", "check its path and its permissions"
        else:
            return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
    raise UserError(f"{place}: {match[0]}: {reason}", hint=hint)


def _forms(value: str) -> set[str]:
    """The ways in which a text may quote a value, or a line of it."""
    lines = [value, *(each for each in value.splitlines() if len(each) >= _SHORT)]
    forms = {
        form
        for line in lines
        for form in (
            line,
            repr(line)[1:-1],
            json.dumps(line)[1:-1],
            quote(line),
            quote(line, safe=""),
        )
    }
    return {each for each in forms if each.strip()}


def _search(form: str) -> str:
    return re.escape(form) if len(form) >= _SHORT else rf"(?<!\w){re.escape(form)}(?!\w)"
