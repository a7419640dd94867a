"""`aotc fleet build`: every model of a file with every profile for every target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aotc.base.errors import EXIT_YES
from aotc.cli.grammar import examples
from aotc.cli.options import Json


@examples("aotc fleet build fleet.yaml")
def build(
    fleet: Annotated[
        Path, typer.Argument(metavar="FLEET", parser=Path, help="file of the fleet, in YAML")
    ],
    *,
    json: Json = False,
) -> int:
    """Build every model of a file with every profile for every target."""
    return EXIT_YES
