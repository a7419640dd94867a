"""Builds of the zoo: each with no flags, and its answers at five sizes beside the framework's.

`python zoo_runs.py --results FILE [NAME…]` adds a line for each; with `--table`, it prints theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from zoo_models import ENTRIES, Entry

# Of float32, as beside the largest value of an output.
ALLOWED = 1e-3
_COMMAND = "from aotc.cli.main import main; raise SystemExit(main())"
Arrays = dict[str, np.ndarray[Any, Any]]
Calls = Callable[[Mapping[str, int]], tuple[Arrays, Sequence[np.ndarray[Any, Any]] | Arrays]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an entry: at how many of its sizes it is right, and else why not."""

    name: str
    source: str
    inputs: str = ""
    right: int = 0
    sizes: int = 0
    error: float = 0.0
    code: str = ""
    message: str = ""
    findings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.code and self.right == self.sizes


def outcome_of(entry: Entry, folder: Path) -> Outcome:
    """Write the source of `entry`, build it without a flag, and call it at its sizes."""
    source = entry.write(folder / entry.name)
    artifact = folder / f"{entry.name}.aotc"
    asked = ["build", str(source), "-o", str(artifact), "--json"]
    if isinstance(source, str):
        kind, asked = "callable", [*asked, "--trust-source"]
    else:
        kind = "folder" if source.is_dir() else source.suffix
    run = subprocess.run(
        [sys.executable, "-c", _COMMAND, *asked],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    report = json.loads(run.stdout)
    findings = tuple(
        f"{each['code']} {each['what']} ({each['where']})"
        for each in report.get("findings", ())
        if each["code"] in ("AOTC-I123", "AOTC-I124", "AOTC-I129")
    )
    if run.returncode:
        error = report["errors"][0]
        return Outcome(
            name=entry.name,
            source=kind,
            code=error["code"],
            message=f"{error['what']}; {error['where']}; {error['found']}"[:400],
        )
    return _called(entry, Path(source), artifact, kind, findings)


def _called(
    entry: Entry, source: Path, artifact: Path, kind: str, findings: tuple[str, ...]
) -> Outcome:
    """The artifact's answers at the entry's sizes."""
    import aotc

    calls = _folder_calls(source) if kind == "folder" else _program_calls(entry)
    right, worst, message = 0, 0.0, ""
    with contextlib.ExitStack() as stack:
        model = aotc.load(artifact)
        stack.callback(getattr(model, "close", lambda: None))
        names = [each.name for each in model.inputs]
        inputs = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
        for sizes in entry.sizes:
            arrays, wanted = calls(sizes)
            try:
                found = model.run({name: arrays[name] for name in names})
            except Exception as error:
                message = message or f"{dict(sizes)}: {error}"[:300]
                continue
            if not isinstance(wanted, dict):
                wanted = dict(zip(found, wanted, strict=True))
            error = max(_error(found[name], wanted[name]) for name in found)
            worst = max(worst, error)
            right += error <= ALLOWED
            if error > ALLOWED:
                message = message or f"{dict(sizes)}: error {error:.2g}"
    return Outcome(
        name=entry.name,
        source=kind,
        inputs=inputs,
        right=right,
        sizes=len(entry.sizes),
        error=worst,
        message=message,
        findings=findings,
    )


def _error(found: Any, wanted: Any) -> float:
    """The largest difference, beside the largest value; infinite where shapes differ."""
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    scale = float(np.abs(wanted).max())
    return float(np.abs(found.astype(np.float64) - wanted).max()) / (scale or 1.0)


def _folder_calls(source: Path) -> Calls:
    from aotc.sources.hugging_face_folder import read_hub_folder
    from aotc.sources.hugging_face_models import load_model, model_call

    model = load_model(read_hub_folder(source), tried=False)

    def call(sizes: Mapping[str, int]) -> tuple[Arrays, Arrays]:
        arrays = model.described.arrays(sizes, seed=5)
        return arrays, model_call(model, arrays)

    return call


def _program_calls(entry: Entry) -> Calls:
    import torch
    import zoo_modules

    made = getattr(zoo_modules, entry.name)
    torch.manual_seed(0)
    module = made(entry.sizes[0])[0].eval()

    def call(sizes: Mapping[str, int]) -> tuple[Arrays, list[Any]]:
        inputs = made(sizes)[1]
        with torch.no_grad():
            answer = module(**inputs)
        leaves = torch.utils._pytree.tree_leaves(answer)
        return {n: t.numpy() for n, t in inputs.items()}, [each.numpy() for each in leaves]

    return call


def table(outcomes: Sequence[Outcome]) -> str:
    """The table of the guide: what was run, and what came of it."""
    lines = ["| architecture | source | inputs | sizes right | largest error, or why not |"]
    lines.append("|---|---|---|---|---|")
    for each in sorted(outcomes, key=lambda each: (not each.passed, each.name)):
        error = f"{each.error:.0e}" if each.right else ""
        why = (f"{each.code} {each.message}".strip(), *each.findings)
        text = "; ".join(filter(None, (error, *why))).replace("|", "/")
        count = f"{each.right} of {each.sizes}" if each.sizes else "refused"
        lines.append(f"| {each.name} | {each.source} | {each.inputs} | {count} | {text} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the entries that are named, or all; those that ran before are in a file of results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, help="a line of JSON for each that ran")
    parser.add_argument("--table", action="store_true", help="print the table of all results")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    known: dict[str, Outcome] = {}
    if asked.results and asked.results.exists():
        for line in asked.results.read_text().splitlines():
            fields = json.loads(line)
            fields["findings"] = tuple(fields["findings"])
            known[fields["name"]] = Outcome(**fields)
    for entry in ENTRIES:
        if (asked.names and entry.name not in asked.names) or (asked.table and not asked.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            known[entry.name] = outcome_of(entry, Path(folder))
        line = json.dumps(asdict(known[entry.name]))
        print(line, flush=True)
        if asked.results:
            with asked.results.open("a") as file:
                file.write(line + "\n")
    if asked.table:
        print(table([*known.values()]), end="")


if __name__ == "__main__":
    main()
