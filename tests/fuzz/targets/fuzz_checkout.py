"""A whole checkout, and `inspect` or `verify` in it: configuration, policies, links, special files.

`tests/fuzz/checkout_run.py` tries `check-models` and `build` too, which start processes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import checkouts
from edited_artifact import make_place
from fuzz_target import Target
from structured import mutated

COMMANDS = ("inspect", "verify")
_FIELDS = frozenset({"words", "entries", *COMMANDS, *checkouts.KINDS})
WORDS = frozenset({*checkouts.PLACES, *checkouts.LINKS, *checkouts.PROFILES} | _FIELDS)
GROUND = checkouts.Ground(make_place())


def check(data: bytes) -> bool:
    """Whether the command says yes; that nothing outside is touched holds whatever it says."""
    try:
        case: Any = json.loads(data.decode("utf-8"))
        named = case["words"][0]
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        return False
    return named in COMMANDS and checkouts.tried(GROUND, case)


def seeds() -> Iterator[bytes]:
    """Some of each command."""
    for number in range(12):
        yield json.dumps(checkouts.made(random.Random(number), COMMANDS)).encode()


def mutate(data: bytes, size: int, seed: int) -> bytes | None:
    """The checkout with a part changed, or another one."""
    if seed % 8:
        return mutated(data, size, seed)
    made = json.dumps(checkouts.made(random.Random(seed), COMMANDS)).encode()
    return made if len(made) <= size else None


TARGET = Target("checkout", check, seeds, WORDS, 16384, mutate)
