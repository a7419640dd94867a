"""Fuzz the readers of untrusted files: `python tests/fuzz [TARGET...] --seconds N`.

What reaches new code goes to `.fuzz/corpus`, where the next run begins, and what breaks a target
to `.fuzz/crashes`.  With `--grow`, inputs that reach new code are kept in the repository.  With
`--merge`, the corpus kept there is minimized instead; with `--replay FILE`, a target gets one
input.

`--checkouts N` tries so many whole checkouts instead, in one process with commands that read, or
with `--builds` with `aotc build`, each in a process of its own; `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from pathlib import Path

import fuzz_run
from fuzz_target import KEPT, NAMES, load


def main() -> int:
    """The exit status: 1 if an input broke a reader."""
    words = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    words.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(NAMES)}")
    words.add_argument("--seconds", type=int, default=600, help="for all targets together")
    words.add_argument("--grow", action="store_true", help="keep what reached more code")
    words.add_argument("--merge", action="store_true", help="minimise the kept corpus")
    words.add_argument("--replay", type=Path, metavar="FILE", help="one input, without the fuzzer")
    words.add_argument("--checkouts", type=int, metavar="N", help="so many whole checkouts")
    words.add_argument("--builds", action="store_true", help="of them, builds")
    words.add_argument("--seed", type=int, help="of the checkouts")
    chosen = words.parse_args()
    if chosen.checkouts:
        return _checkouts(chosen)
    names = chosen.targets or NAMES
    unknown = sorted({*names} - {*NAMES})
    if unknown:
        words.error(f"no such target: {', '.join(unknown)}")
    if chosen.replay and chosen.replay.suffix == ".json":
        return _replay(chosen.replay)
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
    for outcome in fuzz_run.fuzz(names, chosen.seconds, grow=chosen.grow, keep=KEPT):
        print(outcome, flush=True)
        crashed |= outcome.crash is not None
    return int(crashed)


def _checkouts(chosen: argparse.Namespace) -> int:
    """Many whole checkouts."""
    import checkout_run

    commands = ("build",) if chosen.builds else checkout_run.WEIGHED
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    found = checkout_run.run(
        commands, chosen.checkouts, chosen.seconds, seed=seed, keep=KEPT / "crashes"
    )
    print(f"seed {seed}: {found}")
    return int(bool(found.broken))


def _replay(path: Path) -> int:
    """One checkout that a run has kept."""
    import checkouts

    with tempfile.TemporaryDirectory(prefix="aotc-fuzz-", ignore_cleanup_errors=True) as place:
        ground = checkouts.Ground(Path(place))
        print("yes" if checkouts.tried(ground, json.loads(path.read_text())) else "no")
    return 0


if __name__ == "__main__":
    sys.exit(main())
