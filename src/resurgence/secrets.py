"""Secrets in table options: references, masking, and the point at which they are resolved.

A value may contain references, `${env:NAME}` and `${file:PATH}`; `$${` is a literal `${`.
Everything that is compiled, shown, stored or sent contains the reference. Only `open_options`
resolves it, when a connector is created, in the process that creates it.

A literal secret travels with the graph, because the worker needs it, but is shown as `***`. It is
recognised by the name of its option or by its place in a URL. A value that consists of references
alone reveals nothing and is shown unchanged.

A `Concealer` masks secrets in texts that connectors and libraries produce, such as their errors. It
finds a value verbatim, quoted or percent-encoded, but not one that a library has split.
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
"""Lower-case name patterns of options and URL parameters whose values are secret."""

_KINDS = ("env", "file")
_HINT = "Write ${env:NAME} or ${file:PATH}. Write a literal ${ as $${."
_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<kind>[^:{}]*):(?P<name>[^{}]+)\}|\$\{")
_ONLY_REFERENCES = re.compile(r"(?:\$\{(?:env|file):[^{}]+\})*")
_USER_INFO = re.compile(
    r"""://(?:\$\{[^{}]*\}|[^\s/:@])*+:        # the user
    (?P<secret>(?:\$\{[^{}]*\}|[^\s/?\#])+(?=@)  # up to the last @ before the path
    |(?!\d+[/?\#])\S+(?=@))                    # or after it, unless that is host and port""",
    re.VERBOSE,
)
_PARAMETER = re.compile(r"[?&;](?P<name>[\w.-]+)=(?P<secret>[^&;\s]+)")
_SHORT = 4
"""Values with fewer characters are matched as whole words only."""


def is_secret(name: str) -> bool:
    """Return whether an option of that name holds a secret."""
    name = name.lower()
    # Names the class that provides credentials, not the credentials.
    if name.endswith(".provider"):
        return False
    return any(fnmatchcase(name, each) for each in SECRET_NAMES)


def shown_value(name: str, value: str) -> str:
    """Return an option's value with its literal secrets masked, for display and records."""
    parts, end = [], 0
    for start, stop in sorted(_secret_spans(name, value)):
        if start >= end:
            parts += [value[end:start], MASK]
        end = max(end, stop)
    return "".join([*parts, value[end:]])


def is_masked(name: str, value: str) -> bool:
    """Return whether a secret in this value has been masked."""
    return any(value[start:stop] == MASK for start, stop in _secret_spans(name, value))


def has_references(value: str) -> bool:
    """Return whether a value changes when its references are resolved."""
    return _REFERENCE.search(value) is not None


def reference_fault(name: str, value: str) -> tuple[str, str] | None:
    """Return the message and hint for an invalid reference in a value, or None."""
    for match in _REFERENCE.finditer(value):
        kind = match["kind"]
        if match[0] == "$${" or kind in _KINDS:
            continue
        if kind is None or is_secret(name):
            # A password may contain such characters by chance, so it is not quoted.
            return f"option '{name}' has an invalid reference", _HINT
        close = did_you_mean(kind, _KINDS)
        message = f"option '{name}' has a reference of unknown kind '{kind}'"
        return message, close if close.startswith("Perhaps") else _HINT
    return None


class Concealer:
    """Masks secrets in texts. Created from a mapping of secret values to their replacements."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        self._shown = {form: text for value, text in shown.items() for form in _forms(value)}
        longest_first = sorted(self._shown, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_search, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        """Return the text with its secrets masked."""
        return shown_value("", self._pattern.sub(lambda match: self._shown[match[0]], text))

    @contextmanager
    def over_errors(self) -> Iterator[None]:
        """Mask secrets in errors that leave this context. A masked error loses its causes."""
        try:
            yield
        except Exception as error:
            text = "".join([*traceback.format_exception(error), *map(str, vars(error).values())])
            if self.text(text) == text:
                raise
            raise self._masked(error) from None

    def _masked(self, error: Exception) -> Exception:
        if not isinstance(error, ResurgenceError):
            return ResurgenceError(self.text(f"{type(error).__name__}: {error}"))
        error.args = tuple(self.text(str(each)) for each in error.args)
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, self.text(value))
        return error


@dataclass(frozen=True)
class OpenedOptions:
    """Options with their references resolved. Must not be shown, stored or sent."""

    values: dict[str, str]
    concealer: Concealer

    def __repr__(self) -> str:
        return f"OpenedOptions({', '.join(self.values)})"


def open_options(table: str, options: Mapping[str, str]) -> OpenedOptions:
    """Resolve the references in a table's options. Raise UserError if one cannot be resolved."""
    values: dict[str, str] = {}
    shown: dict[str, str] = {}
    for name, value in options.items():
        place = f"table '{table}', option '{name}'"
        if is_masked(name, value):
            raise UserError(
                f"{place}: the secret is masked as {MASK}",
                hint="Write a reference to the secret, ${env:NAME} or ${file:PATH}, or the secret.",
            )
        values[name] = _opened(value, place)
        shown.update(_concealed(name, value))
    return OpenedOptions(values, Concealer(shown))


def concealer_for(tables: Iterable[Mapping[str, str]]) -> Concealer:
    """Return a concealer for the secrets in the options of several tables, except for references
    that cannot be resolved.
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
    """Yield the spans of the literal secrets in a value."""
    found = [(0, len(value))] if is_secret(name) else []
    found += [match.span("secret") for match in _USER_INFO.finditer(value)]
    found += [
        match.span("secret") for match in _PARAMETER.finditer(value) if is_secret(match["name"])
    ]
    return (each for each in found if not _ONLY_REFERENCES.fullmatch(value, *each))


def _opened(value: str, place: str = "") -> str:
    return _REFERENCE.sub(lambda match: _read(match, place), value)


def _concealed(name: str, value: str) -> dict[str, str]:
    """Return each secret of a value with its replacement."""
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
        reason, hint = f"environment variable '{name}' is not set", f"Set {name} for this command."
    elif kind != "file":
        reason, hint = f"unknown reference kind '{kind}'", _HINT
    else:
        try:
            text = Path(name).expanduser().read_bytes().decode()
        except (OSError, ValueError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            reason, hint = f"cannot read the file: {why}", "Check its path and its permissions."
        else:
            return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
    raise UserError(f"{place}: {match[0]}: {reason}", hint=hint)


def _forms(value: str) -> set[str]:
    """Return the forms in which a text may quote a value, or a line of it."""
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
