"""A function in a fresh process, so that no sample finds what an earlier one left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AOTC = Path(sys.executable).with_name("aotc")


def pinned(command: list[str], cpus: Collection[int] | None) -> list[str]:
    """`command`, kept to the processors `cpus` (None: wherever it likes)."""
    if cpus is None:
        return command
    return ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in sorted(cpus)), *command]


def fresh(function: str, request: Any, *, store: Path | None = None) -> Any:
    """What `module:function` of this package returns for `request`; both are JSON-like data."""
    result = subprocess.run(
        child(function, request),
        cwd=ROOT,
        env=environment(store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def child(function: str, request: Any) -> list[str]:
    """The command that `fresh` runs."""
    return [sys.executable, "-m", "benchmarks.fresh", function, json.dumps(request)]


def import_all(names: Iterable[str]) -> None:
    """Import modules before a clock starts; those made at run time are not found, and left out."""
    for name in names:
        with suppress(ImportError):
            import_module(name)


def processor_seconds() -> float:
    """Of this process so far, and of all that it started and that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def environment(store: Path | None = None) -> dict[str, str]:
    """This process's environment, with `store` as the store."""
    return dict(os.environ) if store is None else {**os.environ, "AOTC_STORE": str(store)}


def main() -> None:
    """Call the function that the command line names, and print what it returns."""
    module, _, name = sys.argv[1].partition(":")
    print(json.dumps(getattr(import_module(f"benchmarks.{module}"), name)(json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
