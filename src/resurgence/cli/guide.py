"""The help of the commands: the group under which each is listed, and an example of each."""

from __future__ import annotations

from collections.abc import Iterator

import typer

PIPELINE, JOBS, STATE, SERVICE, MACHINE = "Pipeline", "Jobs", "State", "Service", "Machine"

GROUPS = {
    "init": PIPELINE,
    "check": PIPELINE,
    "preview": PIPELINE,
    "explain": PIPELINE,
    "run": PIPELINE,
    "create": JOBS,
    "list": JOBS,
    "show": JOBS,
    "edit": JOBS,
    "stop": JOBS,
    "start": JOBS,
    "restart": JOBS,
    "rescale": JOBS,
    "delete": JOBS,
    "logs": JOBS,
    "events": JOBS,
    "incidents": JOBS,
    "checkpoints": STATE,
    "state": STATE,
    "dead-letters": STATE,
    "ledger": STATE,
    "rollback": STATE,
    "serve": SERVICE,
    "keys": SERVICE,
    "workers": SERVICE,
    "doctor": MACHINE,
    "connectors": MACHINE,
}
"""The commands in the order of the help."""

EXAMPLES = {
    "init": "resurgence init rides",
    "check": "resurgence check rides.sql",
    "preview": "resurgence preview rides.sql --sql 'SELECT kind, count(*) FROM rides GROUP BY kind'",
    "explain": "resurgence explain restore rides.sql --state-dir .resurgence",
    "run": "resurgence run rides.sql --epoch-rows 10000 --events events.jsonl",
    "create": "resurgence create rides.sql --name rides --parallelism 4",
    "list": "resurgence list --json",
    "show": "resurgence show rides",
    "edit": "resurgence edit rides rides.sql",
    "stop": "resurgence stop rides --wait",
    "start": "resurgence start rides",
    "restart": "resurgence restart rides --force",
    "rescale": "resurgence rescale rides 8",
    "delete": "resurgence delete rides --with-state --yes",
    "logs": "resurgence logs rides --lines 50 --follow",
    "events": "resurgence events rides --follow",
    "incidents": "resurgence incidents rides --json",
    "checkpoints list": "resurgence checkpoints list",
    "checkpoints show": "resurgence checkpoints show 12",
    "checkpoints verify": "resurgence checkpoints verify --all --sql rides.sql",
    "state tables": "resurgence state tables --epoch 12",
    "state schema": "resurgence state schema",
    "state query": "resurgence state query 'SELECT count(*) FROM hourly' --format json",
    "dead-letters list": "resurgence dead-letters list --epoch 12 --json",
    "dead-letters show": "resurgence dead-letters show 12-0",
    "dead-letters query": "resurgence dead-letters query 'SELECT error, count(*) FROM dead_letters GROUP BY error'",
    "dead-letters replay": "resurgence dead-letters replay --file corrected.jsonl",
    "ledger": "resurgence ledger --last 20",
    "rollback": "resurgence rollback --to-epoch 12 --dry-run",
    "serve": "resurgence serve --port 7070 --state-dir s3://bucket/resurgence",
    "keys create": "resurgence keys create grafana --role read",
    "keys import": "resurgence keys import deploy key.txt --role write",
    "keys list": "resurgence keys list",
    "keys remove": "resurgence keys remove grafana",
    "workers": "resurgence workers --json",
    "doctor": "resurgence doctor --state-dir s3://bucket/resurgence",
    "connectors install": "resurgence connectors install kafka avro",
    "connectors list": "resurgence connectors list",
}
"""An example of each command, by its name."""


def add_guide(app: typer.Typer) -> None:
    """Group the commands of an application in its help, and show an example with each."""
    for group in app.registered_groups:
        group.rich_help_panel = GROUPS.get(str(group.name))
    for name, command in _commands(app):
        if " " not in name:
            command.rich_help_panel = GROUPS.get(name)
        if name in EXAMPLES:
            command.epilog = f"Example: {EXAMPLES[name]}"
    order = {name: place for place, name in enumerate(GROUPS)}
    app.registered_commands.sort(key=lambda each: order.get(_name(each), len(order)))


def _commands(app: typer.Typer, prefix: str = "") -> Iterator[tuple[str, typer.models.CommandInfo]]:
    for command in app.registered_commands:
        yield f"{prefix}{_name(command)}", command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _commands(group.typer_instance, f"{prefix}{group.name} ")


def _name(command: typer.models.CommandInfo) -> str:
    if command.name is not None:
        return command.name
    return command.callback.__name__ if command.callback is not None else ""
