"""Run all benchmarks, or the named ones, and write the table: `python -m benchmarks [NAME…]`."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks import table
from benchmarks.fresh import ROOT
from benchmarks.workshop import Workshop

# In this order: later benchmarks use what earlier ones built.
TITLES = {
    "memory": "Memory",
    "verify": "Verification",
    "build": "Build time",
    "load": "Loading",
    "first_answer": "The first answer of a process",
    "packed_load": "Loading what is packed",
    "system_store": "Loading from a system-wide store",
    "latency": "Latency",
    "variants": "Many variants",
    "plans": "Plans for traffic",
    "openvino_latency": "Latency with OpenVINO",
    "openvino_load": "Loading with OpenVINO",
    "openvino_lengths": "Lengths that vary, with OpenVINO",
    "partitioning": "Partitioning",
    "cached_build": "Builds from the cache",
    "tuned": "Tuning",
    "int8_latency": "Int8",
    "digits_int8": "Accuracy of int8",
    "trained": "Accuracy of trained networks",
    "blame": "Nodes to blame",
    "auto_half": "Precision found by trials",
    "calls": "Cost of a call",
    "bound_calls": "Cost of a bound call",
    "listeners": "Logs, metrics and traces of a call",
    "startup": "Start of the command",
    "records": "Records",
    "pages": "Pages and comparisons",
    "foreign_files": "Files of others",
    "int4_decoder": "Int4 of a decoder",
}

# In the folder `precision`; the others are in `rows`.
PRECISION = frozenset(
    {"int8_latency", "digits_int8", "trained", "int4_decoder", "blame", "auto_half"}
)


def main() -> int:
    """0 if all limits were met, 1 if one was not, 2 for a wrong name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TITLES))
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="small models and few rounds, to try the programs; writes no page",
    )
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in TITLES:
            parser.error(f"no benchmark is named {name!r}; there are: {', '.join(TITLES)}")
    folder = ROOT / "build" / ("bench-smoke" if arguments.smoke else "bench")
    return _run(arguments.names or list(TITLES), folder, smoke=arguments.smoke)


def _run(names: list[str], folder: Path, *, smoke: bool) -> int:
    missed = 0
    for name in (known for known in TITLES if known in names):
        started = time.monotonic()
        print(f"== {TITLES[name]}", flush=True)
        workshop = Workshop(folder, smoke, lambda text: print(f"   … {text}", flush=True))
        folder_of_row = "precision" if name in PRECISION else "rows"
        result = import_module(f"benchmarks.{folder_of_row}.{name}").run(workshop)
        table.keep_result(folder / "results", name, TITLES[name], result)
        for row in result.rows:
            verdict = {True: "yes", False: "NO ", None: "   "}[row.held]
            missed += row.held is False
            print(f"{verdict} {row.what}: {row.measured} {row.asked}", flush=True)
        print(f"   {time.monotonic() - started:.0f} s", flush=True)
    if smoke:
        return 0
    table.write_page(folder / "results", list(TITLES))
    print(f"Wrote {table.PAGE.relative_to(ROOT)}.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
