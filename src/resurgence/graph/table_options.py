"""The options of a table, declared once: one model per connector and role.

The model defines how a value is parsed, which values are valid, which are secrets, and the purpose
of each option. The planner checks CREATE TABLE against it, connectors are configured from it, and
the option tables in the docs are generated from it.

Whether a value is masked depends only on the name of its option (`secrets`), because texts are
masked also where no connector is known. So an option whose value is a secret must have such a name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from resurgence.errors import UserError, did_you_mean
from resurgence.secrets import is_secret, shown_value

FORMAT = "format"
BAD_DATA = "bad_data"
TIMESTAMP_UNIT = "timestamp_unit"
"""The unit of whole numbers that are timestamps; `timestamp_unit.column` is that of one column."""
TIMESTAMP_FORMAT = "json.timestamp_format"
UNSTRUCTURED = "json.unstructured"
"""If true, a record is not parsed: its text is the column `value`."""


@dataclass(frozen=True)
class OptionFault:
    """The reason why a value is refused."""

    message: str
    hint: str


@dataclass(frozen=True)
class OptionSpec:
    """One option of a model."""

    name: str
    description: str = ""
    """Markdown, for the docs."""
    required: bool = False
    choices: tuple[str, ...] | None = None
    """The valid values, or None for all that can be parsed."""
    default: str | None = None
    per_column: bool = False
    """`option.column` sets it for one column, which holds timestamps."""
    is_secret: bool = False
    hint: str = ""
    """The hint for an invalid value."""
    parse: Callable[[str], object] = str
    """Raises ValueError for an invalid value."""

    def fault(self, value: str, name: str | None = None) -> OptionFault | None:
        """Return why a value is invalid, or None if it is valid. `name` is the option as written,
        if it is set for one column.
        """
        name = name or self.name
        shown = shown_value(name, value)
        if self.choices is not None:
            if value in self.choices:
                return None
            message = f"'{shown}' is not a valid value for option '{name}'"
            return OptionFault(message, did_you_mean(value, self.choices))
        try:
            self.parse(value)
        except ValueError:
            message = f"'{shown}' is not a valid value for option '{name}'"
            return OptionFault(message, self.hint)
        return None


def option(
    description: str = "",
    *,
    default: Any = ...,
    name: str | None = None,
    hint: str = "",
    per_column: bool = False,
) -> Any:
    """Declare a field of `TableOptions`. It is required unless it has a default. `name` is for
    names that are not Python identifiers; `hint` is the hint for an invalid value.
    """
    return Field(
        default,
        alias=name,
        description=description,
        json_schema_extra={"hint": hint, "per_column": per_column},
    )


class TableOptions(BaseModel):
    """The parsed options of a table in one role. Each field is an option, declared by `option`. A
    secret is of type SecretStr.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    by_column: dict[str, str] = Field(default_factory=dict)
    """Not an option: the values set for single columns by `option.column`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for each in cls.declared().values():
            if each.is_secret and not is_secret(each.name):
                raise TypeError(
                    f"{cls.__name__}: option '{each.name}' is a secret, but its name does not match"
                    " SECRET_NAMES in resurgence.secrets"
                )

    @classmethod
    @functools.cache
    def declared(cls) -> Mapping[str, OptionSpec]:
        """Return every option by name."""
        return {
            spec.name: spec
            for field, info in cls.model_fields.items()
            if field != "by_column"
            for spec in [_option_spec(field, info)]
        }

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Self:
        """Parse options, with references to secrets resolved. Raise UserError for invalid ones."""
        declared = cls.declared()
        whole: dict[str, object] = {}
        by_column: dict[str, str] = {}
        for name, value in options.items():
            base, _, column = name.partition(".")
            if name in declared:
                spec, whole[name] = declared[name], value
            elif column and base in declared and declared[base].per_column:
                spec, by_column[name] = declared[base], value
            else:
                raise UserError(f"there is no option '{name}'", hint=did_you_mean(name, declared))
            if fault := spec.fault(value, name):
                raise UserError(fault.message, hint=fault.hint)
        for name, spec in declared.items():
            if spec.required and name not in options:
                raise UserError(
                    f"the option '{name}' is missing", hint=f"Add {name} = '...' to WITH (...)."
                )
        return cls.model_validate({**whole, "by_column": by_column})


def _option_spec(field: str, info: FieldInfo) -> OptionSpec:
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    kinds = [*_kinds(info.annotation)]
    # Annotated requires at least one more argument; pydantic ignores strings.
    annotated: Any = Annotated[info.annotation, *info.metadata, field]
    # Built on demand: every worker imports all models and uses few.
    adapter: Callable[[], TypeAdapter[object]] = functools.cache(lambda: TypeAdapter(annotated))
    has_default = not info.is_required() and info.default is not None
    return OptionSpec(
        name=info.alias or field,
        description=info.description or "",
        required=info.is_required(),
        choices=_choices(kinds),
        default=str(info.default) if has_default else None,
        per_column=bool(extra.get("per_column", False)),
        is_secret=SecretStr in kinds,
        hint=str(extra.get("hint", "")),
        parse=lambda text: adapter().validate_python(text),
    )


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the possible types of a value, without None."""
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif annotation is not type(None):
        yield annotation


def _choices(kinds: list[Any]) -> tuple[str, ...] | None:
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    if kind is bool:
        return ("true", "false")
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(each.value for each in kind)
    return None
