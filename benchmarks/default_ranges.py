"""The ranges that a build finds if none is stated, and the cost of finding them.

`python benchmarks/default_ranges.py FOLDER [NAME…] [--against PYTHON] [--rounds N]` builds every
model of a folder (such as one written by `benchmarks/networks/exports.py`), and prints a table:
the range, the relations and the codes that were found, and the processor time in seconds, user and
system, of the complete build.  With `--against`, the interpreter of another environment with the
toolchain, each round builds with both, one after the other, and the ratio of the medians is shown.
Processor time is compared instead of wall time, because other work on the machine disturbs it less.
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
    """The results of one side for one model; `seconds` and `wall` have an entry per round."""

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
    """Build each model with each of `sides` (a name and a Python), alternating, `rounds` times."""
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            here = {side: Found(model=model.stem, side=side) for side in sides}
            for index in range(rounds):
                for side in list(sides) if index % 2 == 0 else reversed(sides):
                    print(f"… {model.stem}, {side}, round {index + 1}", file=sys.stderr)
                    _build_once(model, sides[side], Path(folder), profile, here[side])
            found += here.values()
    return found


def _build_once(model: Path, python: Path, folder: Path, profile: str, found: Found) -> None:
    """Build once, with a key in `folder`, and add the results to `found`."""
    output = folder / "built.aotc"
    options = ["--output", str(output), "--force", "--json", "--no-cache", "--profile", profile]
    command = [str(python.with_name("aotc")), "build", str(model), *options]
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    output_json = folder / "said.json"
    started = time.monotonic()
    with output_json.open("wb") as stream:
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
        answer = json.loads(output_json.read_bytes())
    except ValueError:
        found.codes = ["no answer"]
        return
    found.findings = answer.get("findings") or answer.get("errors") or []
    found.codes = [finding["code"].removeprefix("AOTC-") for finding in found.findings]
    if found.status == 0:
        found.analyze.append(answer["stages"]["analyze"])
        manifest = json.loads((output / "payload" / "aotc.json").read_bytes())
        found.dims = manifest["domain"]["dims"]
        found.relations = [
            _relation(relation) for relation in manifest["domain"].get("relations", [])
        ]


def _relation(relation: Any) -> str:
    """A relation such as `total = past + sequence`, from the manifest's record."""
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
    """`batch 1..8 (4), height 32..640:32 (224)`: sizes, step, and the optimum in parentheses."""
    parts = []
    for name, dim in dims.items():
        step = f":{dim['multiple_of']}" if dim.get("multiple_of", 1) != 1 else ""
        bounds = f"{dim['min']}..{dim['max']}" if dim["min"] != dim["max"] else str(dim["min"])
        ended = dim.get("stopped_by", "")
        why = f", {ended}" if ended not in ("", "error") else ""
        parts.append(f"{name} {bounds}{step} ({dim['opt']}{why})")
    return ", ".join(parts) or "none"


def table(found: Sequence[Found], sides: Sequence[str]) -> str:
    """Markdown: a row for each model and side, with the ratio in the first one."""
    lines = ["| Model | Side | Range (optimum, end) | Relations | Codes | CPU s | Ratio |"]
    lines.append("|---|---|---|---|---|---|---|")
    by_model: dict[str, list[Found]] = {}
    for result in found:
        by_model.setdefault(result.model, []).append(result)
    for model, results in by_model.items():
        for index, result in enumerate(results):
            ratio = ""
            if index == 0 and len(results) == 2:
                ratio = f"{median(results[0].seconds) / median(results[1].seconds):.2f}"
            ranges = (
                range_text(result.dims) if not result.status else f"exit status {result.status}"
            )
            cells = [
                model if index == 0 else "",
                result.side if len(sides) > 1 else "",
                ranges,
                "; ".join(result.relations),
                " ".join(f"{code}" for code in sorted(set(result.codes))),
                f"{median(result.seconds):.1f}",
                ratio,
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def too_slow(found: Sequence[Found]) -> list[str]:
    """Models that took more than `LIMIT` times the other side's processor time."""
    sides: dict[str, list[Found]] = {}
    for result in found:
        sides.setdefault(result.model, []).append(result)
    return [
        model
        for model, results in sides.items()
        if len(results) == 2 and median(results[0].seconds) > LIMIT * median(results[1].seconds)
    ]


def main() -> int:
    """0; 1 if a model took more than `LIMIT` times the other side's time."""
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
        arguments.json.write_text(json.dumps([asdict(result) for result in found], indent=1) + "\n")
    print(table(found, list(sides)))
    slow = too_slow(found)
    if slow:
        print(f"more than {LIMIT} times the other side's processor time: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
