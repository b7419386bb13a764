"""`resurgence keys`: the API keys of a service. The commands access its database directly, because
the first key cannot be created with a key.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from resurgence.api.access.api_keys import imported_key, new_key
from resurgence.cli.commands.serve import Database, opened_metadata
from resurgence.cli.output.plain_table import table_lines
from resurgence.cli.state_dir import DEFAULT_STATE_DIR, AsJson, Debug, StateDir, run_and_exit
from resurgence.clock import SystemClock, instant_text
from resurgence.control.store.metadata import KeyRole
from resurgence.errors import ConfigError, did_you_mean

commands = typer.Typer(no_args_is_help=True, help="Create and remove the API keys of a service.")

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")]
Role = Annotated[KeyRole, typer.Option(help="read allows reading, write everything.")]


@commands.command("create")
def create_command(
    name: KeyName,
    role: Role = KeyRole.READ,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Create a key and print it. It is not shown again: only its digest is stored."""

    def command() -> int:
        text, key = new_key(name, role, SystemClock().now())
        with opened_metadata(state_dir, database) as metadata:
            metadata.add_key(key)
        print(f"key '{name}' ({role}); it is not shown again:", file=sys.stderr, flush=True)
        print(text)
        return 0

    run_and_exit(debug, command)


@commands.command("import")
def import_command(
    name: KeyName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with the key.")],
    role: Role = KeyRole.READ,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Store a key that you generated, in place of an earlier one of that name. Only its digest is
    stored.
    """

    def command() -> int:
        try:
            text = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read key '{name}' from {file}: {error}") from error
        key = imported_key(name, role, text, SystemClock().now())
        with opened_metadata(state_dir, database) as metadata:
            metadata.put_key(key)
        print(f"key '{name}' ({role}) is imported")
        return 0

    run_and_exit(debug, command)


@commands.command("list")
def list_command(
    state_dir: StateDir = DEFAULT_STATE_DIR,
    database: Database = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List the keys."""

    def command() -> int:
        with opened_metadata(state_dir, database) as metadata:
            keys = metadata.keys()
        rows = [(each.name, str(each.role), instant_text(each.created_at)) for each in keys]
        header = ("name", "role", "created_at")
        if as_json:
            print(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=2))
        elif not rows:
            print("there are no keys")
        else:
            print("\n".join(table_lines(header, rows)))
        return 0

    run_and_exit(debug, command)


@commands.command("remove")
def remove_command(
    name: KeyName,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    database: Database = None,
    debug: Debug = False,
) -> None:
    """Remove a key. It becomes invalid within seconds."""

    def command() -> int:
        with opened_metadata(state_dir, database) as metadata:
            keys = metadata.keys()
            if not metadata.remove_key(name):
                hint = did_you_mean(name, (each.name for each in keys))
                raise ConfigError(f"there is no key '{name}'", hint=hint)
        print(f"key '{name}' is removed")
        return 0

    run_and_exit(debug, command)
