"""Measure both error rates of the judge: `python -m benchmarks.judge [--networks NAME…]`.

Faults from a seed are put into the answers of honest variants, and both are judged.  A rule is
tuned on other seeds than those that this measures with.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path

from benchmarks.fresh import ROOT
from benchmarks.judge import table
from benchmarks.judge.networks import all_networks
from benchmarks.judge.shipped import FORMS, PRECISIONS, shipped
from benchmarks.judge.trials import measured

PAGE = ROOT / "docs" / "benchmarks-judge.md"
BEFORE = ROOT / "benchmarks" / "data" / "judge-before.json"
SEEDS = range(100, 110)
MOST_REFUSED = 0.02


def main() -> int:
    """0 if no fault was missed, at most 2 % of honest variants refused, and no detector destroyed.

    1 otherwise, and 2 for a wrong name.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=SEEDS, metavar="FIRST..LAST")
    parser.add_argument("--networks", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--large", action="store_true", help="full sizes too, at one seed each")
    parser.add_argument("--jobs", type=int, default=2, help="networks at a time")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "judge")
    parser.add_argument("--quiet", action="store_true", help="the table alone, without each miss")
    parser.add_argument("--builds", action="store_true", help="build detectors in 8 bits as well")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument(
        "--before", action="store_true", help="keep the figures as those of the judge before"
    )
    arguments = parser.parse_args()
    known = all_networks()
    for name in arguments.networks:
        if name not in known:
            parser.error(f"no network is named {name!r}; there are: {', '.join(known)}")
    names = arguments.networks or [
        name for name, network in known.items() if arguments.large or not network.large
    ]
    outcomes = measured(names, arguments.folder, arguments.seeds, arguments.jobs, _say)
    if not arguments.quiet:
        print("\n".join(line for outcome in outcomes for line in outcome.lines))
    print(table.report(outcomes))
    builds = []
    for form, precision in product(FORMS, PRECISIONS) if arguments.builds else ():
        builds.append(shipped(form, precision, arguments.folder / "builds"))
        print(f"{form} {precision}: {builds[-1].found}", flush=True)
    found = {**table.totals(outcomes), "seeds": [arguments.seeds[0], arguments.seeds[-1]]}
    if arguments.before:
        BEFORE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        before = json.loads(BEFORE.read_bytes()) if BEFORE.exists() else {}
        PAGE.write_text(table.page(outcomes, found, before, builds), encoding="utf-8")
        print(f"Wrote {PAGE.relative_to(ROOT)}.")
    missed, refused = found["missed"], found["refused"] / max(found["honest"], 1)
    destroyed = any(not each.held for each in builds)
    return 1 if missed or destroyed or refused > MOST_REFUSED else 0


def _say(network: str) -> None:
    print(f"… {network}", file=sys.stderr, flush=True)


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
