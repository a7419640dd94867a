"""`aotc profile`: the built-in profiles, and checks of one's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aotc.cli.commands.base import JsonOption, new_app
from aotc.contract.answers import CheckAnswer, ListAnswer
from aotc.contract.documents import builtin_profiles, load_profile, yaml_text
from aotc.errors import EXIT_YES

app = new_app("List, show and check build profiles.")


@app.command("list")
def list_profiles(json: JsonOption = False) -> int:
    """List the built-in profiles."""
    items = {name: load_profile(name).description for name in builtin_profiles()}
    if json:
        from aotc.cli.document import write_document

        write_document(ListAnswer(kind="profile", items=items))
    else:
        width = max(len(name) for name in items)
        sys.stdout.writelines(f"{name:<{width}}  {text}\n" for name, text in items.items())
    return EXIT_YES


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", show_default=False)],
    json: JsonOption = False,
) -> int:
    """Show a profile with every default written out, as YAML that can be saved and changed."""
    profile = load_profile(name)
    if json:
        from aotc.cli.document import write_document

        write_document(profile)
    else:
        sys.stdout.write(yaml_text(profile))
    return EXIT_YES


@app.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    json: JsonOption = False,
) -> int:
    """Check a profile file; every problem is listed with its path."""
    profile = load_profile(path)
    if json:
        from aotc.cli.document import write_document

        write_document(CheckAnswer(path=str(path), valid=True, profile=profile))
    else:
        sys.stdout.write(f"{path}: profile {profile.name!r} is valid\n")
    return EXIT_YES
