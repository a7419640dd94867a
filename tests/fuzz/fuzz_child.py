"""One target under libFuzzer, until it is stopped.  Usage: fuzz_child.py TARGET [OPTION...]"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["aotc"]):
    from fuzz_target import load

    TARGET = load(sys.argv[1])


def mutate(data: bytes, size: int, seed: int) -> bytes:
    """Half of the time by the target's mutator, else by libFuzzer's."""
    made = TARGET.mutate(data, size, seed >> 1) if TARGET.mutate and seed % 2 else None
    return bytes(atheris.Mutate(data, size)) if made is None else made


def main() -> None:
    """Run; does not return."""
    # When it merges, libFuzzer starts itself again through a shell.
    itself = shlex.join([sys.executable, str(Path(__file__).resolve()), TARGET.name])
    atheris.Setup(
        [itself, *sys.argv[2:]],
        lambda data: TARGET.check(bytes(data)) and None,
        custom_mutator=mutate if TARGET.mutate else None,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
