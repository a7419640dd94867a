"""What is said of arguments that a class of records does not take: what Python says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aotc.records.fields import fields


def wrong_arguments(cls: type[Any], args: tuple[Any, ...], values: Mapping[str, Any]) -> TypeError:
    """The error for arguments of which one is unknown, given twice, missing or too many."""
    arguments = [item for item in fields(cls) if item.init]
    positional = [item.name for item in arguments if not item.kw_only]
    known = {item.name for item in arguments}
    unknown = [name for name in values if name not in known]
    twice = [name for name in positional[: len(args)] if name in values]
    if unknown:
        what = f"got an unexpected keyword argument {unknown[0]!r}"
    elif twice:
        what = f"got multiple values for argument {twice[0]!r}"
    elif len(args) > len(positional):
        # Python counts `self` as well.
        taken = f"{len(positional) + 1} positional argument{'s'[: len(positional)]}"
        what = f"takes {taken} but {len(args) + 1} were given"
    else:
        missing = [
            item.name for item in arguments if item.name not in values and not item.is_optional
        ]
        kind = "positional" if missing[0] in positional else "keyword-only"
        names = [name for name in missing if (name in positional) == (kind == "positional")]
        what = f"missing {len(names)} required {kind} argument{'s'[: len(names) - 1]}: "
        what += _listed(names)
    return TypeError(f"{cls.__qualname__}.__init__() {what}")


def _listed(names: list[str]) -> str:
    """Names as Python lists them: 'a', 'b', and 'c'."""
    quoted = [repr(name) for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
