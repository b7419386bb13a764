"""`resurgence connectors`: the jars that Spark needs for connectors and formats."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from resurgence.cli.completion import jar_sets
from resurgence.cli.output.plain_table import table_lines
from resurgence.cli.output.waiting import waiting
from resurgence.cli.state_dir import AsJson, Debug, run_and_exit
from resurgence.engine.spark.connector_jars import folder_of, install, installed
from resurgence.engine.spark.jar_sets import JAR_SETS, jar_set

commands = typer.Typer(
    no_args_is_help=True, help="Install the jars that Spark needs for connectors and formats."
)


@commands.command("install")
def install_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help=f"Any of {', '.join(JAR_SETS)}.", autocompletion=jar_sets
        ),
    ],
    debug: Debug = False,
) -> None:
    """Download jars into the cache, unless they are installed, and print the folder of each set."""

    def command() -> int:
        for name in names:
            jar_set(name)  # refuse a wrong name before the first download
        for name in names:
            with waiting(f"looking for the jars for {name}") as wait:
                install(name, wait.now)
            print(folder_of(name))
        return 0

    run_and_exit(debug, command)


@commands.command("list")
def list_command(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the sets of jars and what is installed of them."""

    def command() -> int:
        found = {name: installed(name) for name in JAR_SETS}
        if as_json:
            sets = [
                {
                    "name": name,
                    "installed": each is not None,
                    "folder": str(folder_of(name)),
                    "jars": [jar.coordinates for jar in each.jars] if each is not None else [],
                }
                for name, each in found.items()
            ]
            print(json.dumps(sets, indent=2))
            return 0
        rows = [
            (
                name,
                each is not None,
                ", ".join(jar.file for jar in each.jars) if each is not None else None,
                folder_of(name) if each is not None else None,
            )
            for name, each in found.items()
        ]
        print("\n".join(table_lines(("name", "installed", "jars", "folder"), rows)))
        return 0

    run_and_exit(debug, command)
