"""Running a function in a fresh process, so that samples do not influence each other."""

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


def pinned_command(command: list[str], cpus: Collection[int] | None) -> list[str]:
    """`command`, restricted to the processors `cpus` (None: no restriction)."""
    if cpus is None:
        return command
    return ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in sorted(cpus)), *command]


def run_fresh(function: str, request: Any, *, store: Path | None = None) -> Any:
    """The result of this package's `module:function` for `request`; both are JSON-like data."""
    result = subprocess.run(
        fresh_command(function, request),
        cwd=ROOT,
        env=environment(store),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


def fresh_command(function: str, request: Any) -> list[str]:
    """The command that `run_fresh` executes."""
    return [sys.executable, "-m", "benchmarks.fresh", function, json.dumps(request)]


def import_all(names: Iterable[str]) -> None:
    """Import modules before a clock starts; modules made at run time are skipped."""
    for name in names:
        with suppress(ImportError):
            import_module(name)


def processor_seconds() -> float:
    """Processor time of this process and of all its ended child processes, in seconds."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def environment(store: Path | None = None) -> dict[str, str]:
    """This process's environment, with `store` as the store."""
    return dict(os.environ) if store is None else {**os.environ, "AOTC_STORE": str(store)}


def main() -> None:
    """Call the function named on the command line, and print its result."""
    module, _, name = sys.argv[1].partition(":")
    print(json.dumps(getattr(import_module(f"benchmarks.{module}"), name)(json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()
