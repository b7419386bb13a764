"""A model of options is their only declaration: what is parsed, refused, secret, required."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import Field, SecretStr

from resurgence.errors import UserError
from resurgence.graph.connector_spec import FormatSpec, Role, RoleSpec
from resurgence.graph.table_options import OptionFault, TableOptions, option


class Size(StrEnum):
    BIG = "big"
    SMALL = "small"


class StoreOptions(TableOptions):
    path: str = option("where it is")
    size: Size = option(default=Size.BIG)
    is_open: bool | None = option(name="store.open", default=None)
    depth: Annotated[int, Field(ge=1)] | None = option(default=None, hint="give a number from 1")
    unit: Literal["m", "ft"] | None = option(default=None, per_column=True)
    password: SecretStr | None = option(default=None)


GIVEN = {"path": "x", "store.open": "true", "depth": "3", "unit.width": "ft", "password": "hunter2"}


def test_texts_become_values() -> None:
    read = StoreOptions.read(GIVEN)
    assert (read.path, read.size, read.is_open, read.depth) == ("x", Size.BIG, True, 3)
    assert (read.unit, read.by_column) == (None, {"unit.width": "ft"})
    assert "hunter2" not in repr(read)


def test_a_declaration_says_what_the_planner_must_know() -> None:
    declared = StoreOptions.declared()
    assert [*declared] == ["path", "size", "store.open", "depth", "unit", "password"]
    assert [name for name, each in declared.items() if each.required] == ["path"]
    assert {name: each.choices for name, each in declared.items() if each.choices} == {
        "size": ("big", "small"),
        "store.open": ("true", "false"),
        "unit": ("m", "ft"),
    }
    assert {name: each.default for name, each in declared.items() if each.default} == {
        "size": "big"
    }
    assert [name for name, each in declared.items() if each.is_secret] == ["password"]


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"size": "bog"},
            "'bog' is not a valid value for option 'size'",
            "Perhaps you meant 'big'.",
        ),
        (
            {"store.open": "yes"},
            "'yes' is not a valid value for option 'store.open'",
            "Use one of: false, true.",
        ),
        ({"depth": "0"}, "'0' is not a valid value for option 'depth'", "give a number from 1"),
        (
            {"depth": "deep"},
            "'deep' is not a valid value for option 'depth'",
            "give a number from 1",
        ),
        (
            {"unit.width": "in"},
            "'in' is not a valid value for option 'unit.width'",
            "Use one of: ft, m.",
        ),
        ({"pasword": "x"}, "there is no option 'pasword'", "Perhaps you meant 'password'."),
        ({"size.width": "big"}, "there is no option 'size.width'", "Use one of:"),
    ],
)
def test_an_invalid_value_is_refused(options: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        StoreOptions.read({"path": "x", **options})
    assert caught.value.message == message
    assert caught.value.hint.startswith(hint)


def test_a_missing_required_option_is_named() -> None:
    with pytest.raises(UserError, match="the option 'path' is missing"):
        StoreOptions.read({})


def test_a_secret_is_not_shown() -> None:
    class LockOptions(TableOptions):
        token: Literal["open"] | None = option(default=None)

    fault = LockOptions.declared()["token"].fault("hunter2")
    assert fault == OptionFault(
        "'***' is not a valid value for option 'token'", "Use one of: open."
    )


def test_the_name_of_a_secret_must_say_so() -> None:
    with pytest.raises(TypeError, match="'opener' is a secret, but its name does not match"):

        class HiddenOptions(TableOptions):
            opener: SecretStr = option()


def test_formats_are_the_choices_of_one_more_option() -> None:
    text, changes = FormatSpec("text"), FormatSpec("changes", is_changelog=True)
    role = RoleSpec(Role.SINK, StoreOptions, (text, changes))
    assert [*role.own_options][:3] == ["path", "format", "size"]
    assert role.own_options["format"].choices == ("text", "changes")
    assert role.own_options["format"].default == "text"
    assert role.format_named(None) is text
    assert role.format_named("changes") is changes
    assert role.format_named("other") is None
    assert RoleSpec(Role.SINK, StoreOptions).format_named(None) is None
