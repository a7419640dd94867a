"""A first profile for a model: its inputs as they are, and its free dims for the user to bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from aotc.contract.codec.parsing import decode
from aotc.contract.codec.strict_yaml import strict_yaml, yaml_text
from aotc.contract.manifest.interface import Value
from aotc.contract.profile import InputSpec, Profile
from aotc.escaping import printable

_SCHEMA: Final = "aotc.profile/1"
_MAX_NAME: Final = 64
# Positions of a dim that its comment lists.
_MAX_POSITIONS: Final = 4


def proposed_profile(name: str, inputs: Sequence[Value]) -> Profile:
    """The profile that states dtype and shape of every tensor input, and nothing else.

    `name` is that of the model's file; what a profile's name cannot hold becomes `-`.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:_MAX_NAME]
    return Profile(
        schema=_SCHEMA,
        name=plain or "model",
        inputs={
            value.name: InputSpec(shape=value.shape, dtype=value.dtype)
            for value in inputs
            if value.kind == "tensor"
        },
    )


def free_dims(inputs: Sequence[Value]) -> dict[str, tuple[str, ...]]:
    """The positions `INPUT.AXIS` of every dim that the model leaves free, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for value in inputs:
        # An input of unknown rank is taken as a vector.
        shape = (f"{value.name}.0",) if value.shape is None else value.shape
        for axis, dim in enumerate(shape):
            if isinstance(dim, str) and value.kind == "tensor":
                found[dim] = (*found.get(dim, ()), f"{value.name}.{axis}")
    return found


def profile_text(profile: Profile, inputs: Sequence[Value], model: PurePath, file: PurePath) -> str:
    """The profile as YAML, with what may be stated of its dims in comments.

    Names are the model's and may hold anything, so each is written as one quoted word.
    """
    lines = [
        f"# What 'aotc build {_comment(str(model))} --profile {_comment(str(file))}' builds.",
        "# 'aotc profile show edge' prints every field; 'aotc profile check FILE' checks a file.",
        yaml_text(profile, full=False).rstrip("\n"),
        *_dim_lines(inputs),
    ]
    text = "\n".join(lines) + "\n"
    # A comment that a name could end would be read as something else.
    assert decode(Profile, strict_yaml(text.encode("utf-8"))) == profile
    return text


def _dim_lines(inputs: Sequence[Value]) -> list[str]:
    dims = free_dims(inputs)
    if not dims:
        return ["", "# No dim is free: the inputs have exactly these sizes."]
    rows = [(f"#   {_word(name)}: 1..8", positions) for name, positions in dims.items()]
    width = max(len(row) for row, _ in rows)
    return [
        "",
        "# Free dims. A build finds by running at which sizes the model works, and counts calls",
        "# outside of them. A size (8) or a range (1..8) that stands here is proven and promised,",
        "# and any other size is refused: remove the '# ' and correct the sizes.",
        "# dims:",
        *(f"{row:<{width}}  # {_listed(positions)}" for row, positions in rows),
    ]


def _listed(positions: Sequence[str]) -> str:
    shown = ", ".join(_comment(each) for each in positions[:_MAX_POSITIONS])
    more = len(positions) - _MAX_POSITIONS
    return f"{shown} and {more} more" if more > 0 else shown


def _word(name: str) -> str:
    """A name as a key of YAML on one line; plain where that reads back as the same text."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) and name.lower() not in (
        "null",
        "true",
        "false",
    ):
        return name
    import yaml

    quoted = yaml.safe_dump(name, default_style='"', width=float("inf"), allow_unicode=False)
    return str(quoted).rstrip("\n")


def _comment(text: str) -> str:
    """Foreign text in a comment: one line, with nothing that changes how it looks."""
    return printable(text)
