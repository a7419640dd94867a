"""Targets of fuzzing, and the list of them.

A target reads any bytes with one of the readers of untrusted files.  Its `check` tells whether they
were accepted, and raises (an assertion, or whatever the reader raises) if the reader breaks its
promise.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FUZZ = Path(__file__).resolve().parent
CORPUS = FUZZ / "corpus"
# What `make fuzz` found, for its next run: inputs that reach more code, and crashes.
KEPT = FUZZ.parents[1] / ".fuzz"
# Targets write files, some of them thousands a minute.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
# The fuzzer and its children run without pytest, and find targets and what those use by this.
SUPPORT = FUZZ.parent / "support"
sys.path.extend(map(str, (FUZZ / "targets", SUPPORT, SUPPORT / "keyless")))
NAMES = (
    "archive",
    "bundle",
    "certificate",
    "checkout",
    "configuration",
    "inputs",
    "keyless",
    "keys",
    "layer",
    "loaded",
    "manifest",
    "measured",
    "policy",
    "profile",
    "program",
    "references",
    "samples",
    "signer",
    "state",
    "statement",
    "traffic",
    "yaml",
)


@dataclass(frozen=True)
class Target:
    """One reader, and what must be true for any input.

    `seeds` are initial inputs, some of which are accepted; `words` are likely parts of inputs.
    `mutate` makes another input (from an input, a size, and a seed) for formats where changing
    bytes would rarely get far.
    """

    name: str
    check: Callable[[bytes], bool]
    seeds: Callable[[], Iterable[bytes]]
    words: frozenset[str] = frozenset()
    max_bytes: int = 8192
    mutate: Callable[[bytes, int, int], bytes | None] | None = None

    def kept(self) -> Iterator[Path]:
        """The kept corpus."""
        yield from sorted((CORPUS / self.name).glob("*"))


def load(name: str) -> Target:
    """A target by its name; only its own modules are imported."""
    target: Target = importlib.import_module(f"fuzz_{name}").TARGET
    assert target.name == name
    return target
