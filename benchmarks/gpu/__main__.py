"""Measure CUDA: `python -m benchmarks.gpu [ROW…] --models FOLDER --out FOLDER`.

Exports, artifacts, compiled code and results stay in the folder of models: a run goes on where the
last one ended.  `--table [FILE…]` merges results into benchmarks/data/gpu.jsonl and writes
docs/benchmarks-gpu.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from benchmarks.fresh import ROOT
from benchmarks.gpu import page, results
from benchmarks.gpu.cases import GROUPS, NAMED_ROWS, NETWORKS, PRECISIONS, ROWS, Only, Settings
from benchmarks.gpu.child import OutOfTimeError, end_after, one_record
from benchmarks.gpu.run import Run


def main() -> int:
    """0 if all was measured, 1 if something failed, 2 for a wrong name, 75 if time ran out."""
    arguments = _parse()
    if arguments.table is not None:
        records = results.keep(arguments.table)
        page.write(records)
        print(f"Wrote {page.PAGE.relative_to(ROOT)} from {len(records)} results.")
        return 0
    models = (arguments.models or ROOT / "build" / "gpu" / "models").resolve()
    settings = Settings(
        folder=models, small=arguments.small, cpu=arguments.cpu, opset=arguments.opset
    )
    # The caches of torch.compile and of the build, for this run and its processes.
    os.environ |= settings.compiled()
    os.environ["AOTC_STORE"] = str(settings.store)
    rows = arguments.rows or [row for row in ROWS if row not in NAMED_ROWS]
    return _run(settings, arguments, rows)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--models", type=Path, help="folder that is kept between runs")
    parser.add_argument("--out", type=Path, help="folder for gpu.jsonl (build/gpu)")
    parser.add_argument("--networks", help=f"with commas: {', '.join((*GROUPS, *NETWORKS))}")
    parser.add_argument("--precisions", help=f"of calls, with commas: {', '.join(PRECISIONS)}")
    parser.add_argument("--batches", help="of calls and lengths, with commas")
    parser.add_argument("--seconds", type=float, default=1e6, help="end after this time")
    parser.add_argument("--opset", type=int, default=18, help="of the exports (18 or 23)")
    parser.add_argument("--again", action="store_true", help="measure also what is there")
    parser.add_argument("--exports", action="store_true", help="only export the networks")
    parser.add_argument(
        "--artifacts",
        action="store_true",
        help="only export, build for the rows, and compile ahead: much of it side by side",
    )
    parser.add_argument("--small", action="store_true", help="small networks, few rounds: a trial")
    parser.add_argument("--cpu", action="store_true", help="without a GPU: a trial")
    parser.add_argument("--table", nargs="*", type=Path, metavar="FILE", help="write the page")
    arguments = parser.parse_args()
    for row in arguments.rows:
        if row not in ROWS:
            parser.error(f"no row is named {row!r}; there are: {', '.join(ROWS)}")
    arguments.networks = _networks(parser, arguments)
    arguments.only = Only(
        precisions=_precisions(parser, arguments), batches=_batches(parser, arguments)
    )
    return arguments


def _networks(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Of networks and groups; small trials take one network, and other runs all."""
    stated = arguments.networks or ("bert" if arguments.small else ",".join(GROUPS))
    found: list[str] = []
    for name in stated.split(","):
        if name not in NETWORKS and name not in GROUPS:
            parser.error(f"no network or group is named {name!r}; there are: {', '.join(NETWORKS)}")
        found += [
            network.name for network in NETWORKS.values() if name in (network.name, network.group)
        ]
    return tuple(dict.fromkeys(found))


def _precisions(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> tuple[str, ...]:
    names = tuple(arguments.precisions.split(",")) if arguments.precisions else ()
    for name in names:
        if name not in PRECISIONS:
            parser.error(f"no precision is named {name!r}; there are: {', '.join(PRECISIONS)}")
    return names


def _batches(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in (arguments.batches or "").split(",") if size)
    except ValueError:
        parser.error(f"{arguments.batches!r} is not a list of batches, such as 1,8")


def _run(settings: Settings, arguments: argparse.Namespace, rows: list[str]) -> int:
    from benchmarks.gpu.exporting import export
    from benchmarks.workshop import sources_digest

    started = time.monotonic()
    end_after(arguments.seconds)
    failed = export(settings, arguments.networks)
    print(f"exports: {time.monotonic() - started:.0f} s", flush=True)
    for name, line in failed.items():
        print(f"export of {name} failed: {line}", flush=True)
    if arguments.exports:
        return 1 if failed else 0
    if arguments.artifacts:
        exported = [name for name in arguments.networks if name not in failed]
        wrong = _prepare(settings, arguments.only, exported, rows)
        for line in wrong:
            print(f"FAILED {line}", flush=True)
        return 1 if failed or wrong else 0
    run = Run(
        settings=settings,
        out=(arguments.out or ROOT / "build" / "gpu").resolve(),
        networks=tuple(name for name in arguments.networks if name not in failed),
        machine=one_record("machine:describe", {}, seconds=120),
        sources=sources_digest()[:12],
        again=arguments.again,
        only=arguments.only,
        failed=list(failed),
    )
    print(", ".join(f"{name} {value}" for name, value in run.machine.items()), flush=True)
    if "gpu" not in run.machine and not settings.cpu:
        print("There is no GPU here; --small --cpu tries the programs without one.")
        return 1
    try:
        for row in (known for known in ROWS if known in rows):
            begun = time.monotonic()
            import_module(f"benchmarks.gpu.rows.{row}").run(run)
            print(f"== {row}: {time.monotonic() - begun:.0f} s", flush=True)
    except OutOfTimeError:
        print("The time is over; the same command goes on from here.", flush=True)
        return 75
    for line in run.failed:
        print(f"FAILED {line}", flush=True)
    return 1 if run.failed else 0


def _prepare(settings: Settings, only: Only, networks: list[str], rows: list[str]) -> list[str]:
    """Build and compile what the rows need; returns what failed."""
    from benchmarks.gpu.building import build_all
    from benchmarks.gpu.precompiling import compile_ahead

    compiles = not {"calls", "kernels"}.isdisjoint(rows)
    with ThreadPoolExecutor(1) as pool:
        built = pool.submit(build_all, settings, networks, rows, only)
        compiled = compile_ahead(settings, networks, only) if compiles else []
        return built.result() + compiled


if __name__ == "__main__":
    sys.exit(main())
