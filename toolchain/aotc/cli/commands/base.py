"""Arguments that several commands take, and how a command is made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from aotc.errors import AotcError

ArtifactArgument = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="The NAME.aotc folder.", show_default=False)
]
TrustOption = Annotated[
    Path | None,
    typer.Option("--trust", metavar="FILE", help="Public keys to trust, instead of the default."),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="PUB", help="The public key to trust, instead of the default."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else.")
]


def new_app(help_text: str | None = None) -> typer.Typer:
    """An application of one command or of several, with plain help and no completion."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, help=help_text)


def pairs(words: Iterable[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` words as a mapping; raises AOTC-I027."""
    found: dict[str, str] = {}
    for word in words:
        # A dim's name may hold '='; a value never does.
        name, equals, value = word.rpartition("=")
        if not equals or not name or not value:
            raise AotcError("AOTC-I027", f"{option} takes NAME=VALUE", where=option, found=word)
        if name in found:
            raise AotcError("AOTC-I027", f"{name!r} is given twice", where=option, found=word)
        found[name] = value
    return found
