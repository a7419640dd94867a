"""Fuzz the readers of untrusted files: `python tests/fuzz [TARGET...] --seconds N`.

With `--grow`, inputs that reach new code are kept.  With `--merge`, the kept corpus is minimized
instead; with `--replay FILE`, a target gets one input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import fuzz_run
from fuzz_target import NAMES, load


def main() -> int:
    """The exit status: 1 if an input broke a reader."""
    words = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    words.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(NAMES)}")
    words.add_argument("--seconds", type=int, default=600, help="for all targets together")
    words.add_argument("--grow", action="store_true", help="keep what reached more code")
    words.add_argument("--merge", action="store_true", help="minimise the kept corpus")
    words.add_argument("--replay", type=Path, metavar="FILE", help="one input, without the fuzzer")
    chosen = words.parse_args()
    names = chosen.targets or NAMES
    unknown = sorted({*names} - {*NAMES})
    if unknown:
        words.error(f"no such target: {', '.join(unknown)}")
    if chosen.replay:
        data = chosen.replay.read_bytes()
        for name in names:
            print(f"{name}: {'accepted' if load(name).check(data) else 'refused'}")
        return 0
    if not fuzz_run.can_fuzz():
        print("The fuzzer, atheris, is not installed.", file=sys.stderr)
        return 2
    if chosen.merge:
        for name in names:
            fuzz_run.merge(name)
        return 0
    crashed = False
    for outcome in fuzz_run.fuzz(names, chosen.seconds, grow=chosen.grow):
        print(outcome, flush=True)
        crashed |= outcome.crash is not None
    return int(crashed)


if __name__ == "__main__":
    sys.exit(main())
