"""`aotc profile`: the built-in profiles, and checks of one's own."""

from __future__ import annotations

import sys
from pathlib import Path

from aotc.cli.commands.base import Command, Group, Parser, add_json
from aotc.contract.answers import CheckAnswer, ListAnswer
from aotc.contract.documents import builtin_profiles, load_profile, yaml_text
from aotc.errors import EXIT_YES


def list_profiles(*, json: bool) -> int:
    """List the built-in profiles."""
    items = {name: load_profile(name).description for name in builtin_profiles()}
    if json:
        from aotc.cli.document import write_document

        write_document(ListAnswer(kind="profile", items=items))
    else:
        width = max(len(name) for name in items)
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in items.items())
    return EXIT_YES


def _show_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME|FILE", help="a built-in profile or a file")
    add_json(parser)


def show(*, name: str, json: bool) -> int:
    """Show a profile with every default written out, as YAML that can be saved and changed."""
    profile = load_profile(name)
    if json:
        from aotc.cli.document import write_document

        write_document(profile)
    else:
        sys.stdout.write(yaml_text(profile))
    return EXIT_YES


def _check_arguments(parser: Parser) -> None:
    parser.add_argument("path", metavar="FILE", type=Path, help="a profile in YAML")
    add_json(parser)


def check(*, path: Path, json: bool) -> int:
    """Check a profile file; every problem is listed with its path."""
    profile = load_profile(path)
    if json:
        from aotc.cli.document import write_document

        write_document(CheckAnswer(path=str(path), valid=True, profile=profile))
    else:
        sys.stdout.write(f"{path}: profile {profile.name!r} is valid\n")
    return EXIT_YES


command = Group(
    "List, show and check build profiles.",
    {
        "list": ("List the built-in profiles.", Command(list_profiles, add_json)),
        "show": ("Show a profile with every default.", Command(show, _show_arguments)),
        "check": ("Check a profile file.", Command(check, _check_arguments)),
    },
)
