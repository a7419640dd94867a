"""Ranges that a build finds where nothing is stated, and what finding them costs.

`python benchmarks/default_ranges.py FOLDER [NAME…] [--against PYTHON] [--rounds N]` builds every
model of a folder (such as one that `benchmarks/networks/exports.py` wrote), and prints a table: the range,
the relations and the codes that were found, and seconds of processor time, user and system, of the
whole build.  With `--against`, the interpreter of another environment that has the toolchain, each
round builds by both, one after the other, and the ratio of the medians is shown.  Processor time
is compared, and not the clock, as other work on the machine disturbs it less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 3
LIMIT = 1.5
SECONDS = 1800


@dataclass(slots=True, kw_only=True)
class Found:
    """What one side found in one model; `seconds` and `wall` have an entry for each round."""

    model: str
    side: str
    status: int = 0
    dims: dict[str, Any] = field(default_factory=dict)
    relations: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    analyze: list[float] = field(default_factory=list)


def measure(
    models: Sequence[Path], sides: dict[str, Path], rounds: int, profile: str
) -> list[Found]:
    """Build each model by each of `sides` (a name and a Python), by turns, `rounds` times."""
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            here = {side: Found(model=model.stem, side=side) for side in sides}
            for index in range(rounds):
                for side in list(sides) if index % 2 == 0 else reversed(sides):
                    print(f"… {model.stem}, {side}, round {index + 1}", file=sys.stderr)
                    _build(model, sides[side], Path(folder), profile, here[side])
            found += here.values()
    return found


def _build(model: Path, python: Path, folder: Path, profile: str, found: Found) -> None:
    """Build once, with a key of `folder`, and add to `found` what came of it."""
    output = folder / "built.aotc"
    options = ["--output", str(output), "--force", "--json", "--no-cache", "--profile", profile]
    command = [str(python.with_name("aotc")), "build", str(model), *options]
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    said = folder / "said.json"
    started = time.monotonic()
    with said.open("wb") as stream:
        process = subprocess.Popen(
            ["timeout", str(SECONDS), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    found.wall.append(time.monotonic() - started)
    found.seconds.append(usage.ru_utime + usage.ru_stime)
    found.status = process.returncode
    try:
        answer = json.loads(said.read_bytes())
    except ValueError:
        found.codes = ["no answer"]
        return
    found.findings = answer.get("findings") or answer.get("errors") or []
    found.codes = [each["code"].removeprefix("AOTC-") for each in found.findings]
    if found.status == 0:
        found.analyze.append(answer["stages"]["analyze"])
        manifest = json.loads((output / "payload" / "aotc.json").read_bytes())
        found.dims = manifest["domain"]["dims"]
        found.relations = [_relation(each) for each in manifest["domain"].get("relations", [])]


def _relation(relation: Any) -> str:
    """`total = past + sequence`, from the manifest's record."""
    if not isinstance(relation, dict):
        return str(relation)
    terms = []
    for term in relation.get("terms", []):
        if isinstance(term, str):
            terms.append(term)
            continue
        factor = term.get("factor", 1)
        terms.append(term["dim"] if factor == 1 else f"{factor}*{term['dim']}")
    constant = relation.get("constant", 0)
    terms += [str(constant)] if constant else []
    return f"{relation.get('dim', '?')} = {' + '.join(terms) or '?'}"


def range_text(dims: dict[str, Any]) -> str:
    """`batch 1..8 (4), height 32..640:32 (224)`: sizes, step, and the optimum in brackets."""
    parts = []
    for name, dim in dims.items():
        step = f":{dim['multiple_of']}" if dim.get("multiple_of", 1) != 1 else ""
        bounds = f"{dim['min']}..{dim['max']}" if dim["min"] != dim["max"] else str(dim["min"])
        ended = dim.get("stopped_by", "")
        why = f", {ended}" if ended not in ("", "error") else ""
        parts.append(f"{name} {bounds}{step} ({dim['opt']}{why})")
    return ", ".join(parts) or "none"


def table(found: Sequence[Found], sides: Sequence[str]) -> str:
    """Markdown: a line for each model and side, the ratio beside the first."""
    lines = ["| Model | Side | Range (optimum, end) | Relations | Codes | CPU s | Ratio |"]
    lines.append("|---|---|---|---|---|---|---|")
    by_model: dict[str, list[Found]] = {}
    for each in found:
        by_model.setdefault(each.model, []).append(each)
    for model, both in by_model.items():
        for index, each in enumerate(both):
            ratio = ""
            if index == 0 and len(both) == 2:
                ratio = f"{median(both[0].seconds) / median(both[1].seconds):.2f}"
            ranges = range_text(each.dims) if not each.status else f"exit status {each.status}"
            cells = [
                model if index == 0 else "",
                each.side if len(sides) > 1 else "",
                ranges,
                "; ".join(each.relations),
                " ".join(f"{code}" for code in sorted(set(each.codes))),
                f"{median(each.seconds):.1f}",
                ratio,
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def too_slow(found: Sequence[Found]) -> list[str]:
    """Models that took more than `LIMIT` times the other side's processor time."""
    sides: dict[str, list[Found]] = {}
    for each in found:
        sides.setdefault(each.model, []).append(each)
    return [
        model
        for model, both in sides.items()
        if len(both) == 2 and median(both[0].seconds) > LIMIT * median(both[1].seconds)
    ]


def main() -> int:
    """0; 1 where a model took more than `LIMIT` times the other side's time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all of the folder")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--against", type=Path, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--profile", default="edge")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found")
    arguments = parser.parse_args()
    models = sorted(arguments.folder.glob("*.onnx"))
    if arguments.names:
        models = [model for model in models if model.stem in arguments.names]
    sides = {"this": arguments.python}
    if arguments.against:
        sides["other"] = arguments.against
    found = measure(models, sides, arguments.rounds, arguments.profile)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    print(table(found, list(sides)))
    slow = too_slow(found)
    if slow:
        print(f"more than {LIMIT} times the other side's processor time: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
