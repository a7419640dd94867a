"""`aotc target`: the built-in targets, and this host as one."""

from __future__ import annotations

import sys

from aotc.cli.commands.base import Command, Group, Parser, add_json
from aotc.contract.builtin import builtin_targets, load_target
from aotc.contract.codec.strict_yaml import yaml_text
from aotc.contract.results.command_reports import ListReport
from aotc.contract.target import Target
from aotc.errors import EXIT_YES


def list_targets(*, json: bool) -> int:
    """List the built-in targets."""
    items = {"host": "this machine, probed"}
    items |= {name: load_target(name).description for name in builtin_targets()}
    if json:
        from aotc.cli.json_document import write_document

        write_document(ListReport(kind="target", items=items))
    else:
        from aotc.cli.render import write_lines

        width = max(len(name) for name in items)
        write_lines(f"{name:<{width}}  {text}" for name, text in items.items())
    return EXIT_YES


def _show_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME|FILE", help="host, a built-in target or a file")
    add_json(parser)


def show(*, name: str, json: bool) -> int:
    """Show a target as YAML; 'host' is this machine."""
    return _write(_host() if name == "host" else load_target(name), json)


def probe(*, json: bool) -> int:
    """Describe this machine as YAML, which --target takes when it is saved to a file."""
    return _write(_host(), json)


def _host() -> Target:
    from aotc.host.probe import probe as probe_host

    return probe_host()


def _write(target: Target, json: bool) -> int:
    if json:
        from aotc.cli.json_document import write_document

        write_document(target)
    else:
        sys.stdout.write(yaml_text(target))
    return EXIT_YES


command = Group(
    "List and show targets; describe this host.",
    {
        "list": ("List the built-in targets.", Command(list_targets, add_json)),
        "show": ("Show a target.", Command(show, _show_arguments)),
        "probe": ("Describe this host.", Command(probe, add_json)),
    },
)
