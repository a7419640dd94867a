"""The ranges that a build finds if none is stated, what finding them costs, and calls of owners.

`python -m benchmarks.ranges FOLDER… [--names NAME…] [--against PYTHON_OR_TREE] [--write]` builds
every model of the folders without options, each time with a home of its own, and prints a table:
the range, relations and codes that were found; the seconds of the analysis, and of one run of the
original at the largest claimed sizes; the processor time of the build; and which calls of an owner
are answered.  Those are in NAME.json beside the model, or in `benchmarks/data/calls` (`Calls` tells
the form).  With `--against`, a checkout or the interpreter of another environment, each round
builds with both, one after the other.  Processor time of builds is compared instead of wall time,
because other work on the machine disturbs it less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.fresh import ROOT, fresh_command
from benchmarks.table import machine, markdown

PAGE: Final = ROOT / "docs" / "benchmarks-ranges.md"
CALLS: Final = ROOT / "benchmarks" / "data" / "calls"
SEED: Final = 5
# What an analysis may take: seconds, or runs at the largest claimed sizes where these are longer.
ANALYSIS_SECONDS: Final = 20.0
ANALYSIS_RUNS: Final = 12.0
_TOLERANCE: Final = 1e-3
_BUILD_SECONDS: Final = "1800"
_COMMAND: Final = "import sys; from aotc.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An interpreter, and the toolchain of a checkout if it is not the installed one."""

    name: str
    python: str = sys.executable
    toolchain: Path | None = None

    @classmethod
    def of(cls, name: str, path: Path) -> Side:
        """The checkout `path`, run by this interpreter, or the interpreter `path`."""
        if path.is_dir():
            return cls(name=name, toolchain=(path / "toolchain").resolve())
        return cls(name=name, python=str(path.absolute()))

    def environment(self, home: Path) -> dict[str, str]:
        """As an owner has it who set nothing."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AOTC_", "XDG_")) and name != "PYTHONPATH"
        }
        found = {**kept, "HOME": str(home)}
        return found | ({"PYTHONPATH": str(self.toolchain)} if self.toolchain else {})

    def ask(self, function: str, request: Any, home: Path) -> Any:
        """What `function` of this module says in a process of this side; None if it ended badly."""
        _, *command = fresh_command(f"ranges:{function}", request)
        process = subprocess.run(
            [self.python, *command],
            cwd=ROOT,
            env=self.environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if process.returncode:
            failed = f"{function} of {request['model']} ended with {process.returncode}"
            print(failed, file=sys.stderr)
            return None
        return json.loads(process.stdout.splitlines()[-1])


THIS: Final = Side(name="now", toolchain=ROOT / "toolchain")


@dataclass(slots=True, kw_only=True)
class Found:
    """The results of one side for one model; `seconds`, `wall` and `analyze` have one per round."""

    model: str
    side: str
    status: int = 0
    ranges: list[dict[str, Any]] = field(default_factory=list)
    """By dim, of the range and each further one."""
    relations: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    analyze: list[float] = field(default_factory=list)
    run: float | None = None
    """Seconds of one run of the original at the largest claimed sizes."""
    calls: list[list[bool]] | None = None
    """Of each call: answered by ONNX Runtime, alike by the artifact, in its range."""

    def runs(self) -> float | None:
        """The analysis as a multiple of one run."""
        return median(self.analyze) / self.run if self.analyze and self.run else None


class Calls:
    """The calls that an owner makes of a model.

    A file has `inputs` and `calls`.  A call gives sizes by name.  `inputs` has, by the name of an
    input or a pattern such as `past_*`, its `shape`: of each axis a size, the name of one, a sum
    such as `past + sequence`, or null for what the model states; and its `values`: a number or a
    list that is repeated, `{"below": 9}`, `{"uniform": [0, 255]}`, or `{"from": "past"}`, positions
    that begin there.  Unset, they are normal.  A call may give values by an input's name instead.
    """

    def __init__(self, model: Path, document: Mapping[str, Any]) -> None:
        graph = onnx.load(model, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        self._declared = [value for value in graph.input if value.name not in weights]
        self._inputs: Mapping[str, Any] = document["inputs"]
        self._calls: Sequence[Mapping[str, Any]] = document["calls"]

    @classmethod
    def of(cls, model: Path) -> Calls | None:
        """Those in the file beside `model`, or in that of its name in `CALLS`; None without."""
        for path in (model.with_suffix(".json"), CALLS / f"{model.stem}.json"):
            if path.exists():
                return cls(model, json.loads(path.read_bytes()))
        return None

    def drawn(self) -> Iterator[dict[str, Any]]:
        """The arrays of each call, by input."""
        for call in self._calls:
            rng = np.random.default_rng(SEED)
            yield {value.name: self._array(value, call, rng) for value in self._declared}

    def _array(self, value: Any, call: Mapping[str, Any], rng: np.random.Generator) -> Any:
        matching = (s for name, s in self._inputs.items() if fnmatchcase(value.name, name))
        stated = next(matching, None)
        if stated is None:
            raise ValueError(f"the file of calls says nothing of the input {value.name}")
        tensor = value.type.tensor_type
        shape = [
            tensor.shape.dim[axis].dim_value if size is None else _size(size, call)
            for axis, size in enumerate(stated["shape"])
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn: Any
        match call.get(value.name, stated.get("values")):
            case None:
                drawn = rng.standard_normal(shape, np.float32)
            case {"below": below}:
                drawn = rng.integers(0, below, shape)
            case {"uniform": [low, high]}:
                drawn = rng.uniform(low, high, shape)
            case {"from": first}:
                start = _size(first, call)
                drawn = np.broadcast_to(np.arange(start, start + shape[-1]), shape)
            case given:
                drawn = np.resize(given, shape)
        return drawn.astype(dtype)


def _size(size: int | str, call: Mapping[str, Any]) -> int:
    if isinstance(size, int):
        return size
    return sum(int(call[term.strip()]) for term in size.split("+"))


# What runs in a process of its own: the memory of large runs is given back, and another side has
# other modules.


def largest_run(request: Any) -> float | None:
    """Seconds of one run of `model` at the largest sizes that `manifest` claims.

    The quicker of two runs in one thread without optimizations, and the longest of the range and
    its further ranges; None if it runs with no generated inputs.
    """
    from aotc.graph.model import read_model
    from aotc.sizes.inputs.fixtures import alternatives, generate
    from aotc.sizes.inputs.hints import hints_of
    from aotc.spec.codec import decode
    from aotc.spec.json import strict_json
    from aotc.spec.manifest import Manifest

    manifest = decode(Manifest, strict_json(Path(request["manifest"]).read_bytes()))
    values, domain = manifest.inputs, manifest.domain
    model = Path(request["model"])
    session, hints = _plain_session(model), hints_of(read_model(model))
    longest = []
    for each in (domain, *domain.further()):
        for tried in (hints, *(other.hints for other in alternatives(values, hints))):
            inputs = generate(values, each.corner("max"), tried, SEED)
            try:
                longest.append(min(_seconds(session, inputs) for _ in range(2)))
            except Exception:  # ONNX Runtime raises many types: other values are tried.
                continue
            break
    return max(longest, default=None)


def answered(request: Any) -> list[list[bool]]:
    """Of each call in the folder `calls`: answered by `model`, and `artifact`, alike, in range."""
    import aotc

    session = _plain_session(Path(request["model"]))
    names = [output.name for output in session.get_outputs()]
    told = []
    with aotc.load(request["artifact"]) as model:
        for path in sorted(Path(request["calls"]).iterdir()):
            with np.load(path) as stored:
                inputs = dict(stored)
            try:
                expected = dict(zip(names, session.run(names, inputs), strict=True))
            except Exception:  # ONNX Runtime raises many types: this is no call that it answers.
                told.append([False, False, False])
                continue
            outside = model.telemetry.to_dict()["out_of_domain"]
            try:
                alike = _alike(expected, model.run(inputs))
            except aotc.AotcError:
                told.append([True, False, False])
                continue
            told.append([True, alike, model.telemetry.to_dict()["out_of_domain"] == outside])
    return told


def _plain_session(model: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _seconds(session: ort.InferenceSession, inputs: Mapping[str, Any]) -> float:
    started = time.perf_counter()
    session.run(None, dict(inputs))
    return time.perf_counter() - started


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    return bool(np.allclose(one, other, _TOLERANCE, _TOLERANCE, equal_nan=True))


def measure(models: Sequence[Path], sides: Sequence[Side], rounds: int) -> Iterator[list[Found]]:
    """Of each model the results of `sides`, which build it by turns, `rounds` times."""
    for model in models:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            here = {side: Found(model=model.stem, side=side.name) for side in sides}
            for side in sides:
                (folder / side.name).mkdir()
            for number in range(rounds):
                for side in sides if number % 2 == 0 else reversed(sides):
                    print(f"… {model.stem}, {side.name}, round {number + 1}", file=sys.stderr)
                    _build_once(model, side, folder / side.name, here[side])
            (folder / "calls").mkdir()
            calls = Calls.of(model)
            for number, inputs in enumerate(calls.drawn() if calls else ()):
                np.savez(folder / "calls" / f"{number:03}.npz", **inputs)
            for side, found in here.items():
                if not found.status:
                    _try(model, side, folder, found, calls is not None)
            yield list(here.values())


def _build_once(model: Path, side: Side, folder: Path, found: Found) -> None:
    """Build once into `folder`, with a new home there, and add the results to `found`."""
    output, said, home = folder / "built.aotc", folder / "said.json", folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    options = ["--output", str(output), "--force", "--json", "--no-cache"]
    started = time.monotonic()
    with said.open("wb") as stream:
        process = subprocess.Popen(
            ["timeout", _BUILD_SECONDS, side.python, "-c", _COMMAND, "build", str(model), *options],
            env=side.environment(home),
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
    found.codes = sorted({each["code"].removeprefix("AOTC-") for each in found.findings})
    if found.status:
        return
    found.analyze.append(answer["stages"]["analyze"])
    domain = json.loads((output / "payload" / "aotc.json").read_bytes()).get("domain", {})
    found.ranges = [domain.get("dims", {}), *domain.get("also", [])]
    found.relations = [_relation(each) for each in domain.get("relations", [])]


def _try(model: Path, side: Side, folder: Path, found: Found, has_calls: bool) -> None:
    """One run of the original by this toolchain's inputs, and the calls by that of `side`."""
    artifact, home = folder / side.name / "built.aotc", folder / side.name / "home"
    manifest = artifact / "payload" / "aotc.json"
    request = {"model": str(model.resolve()), "manifest": str(manifest)}
    found.run = THIS.ask("largest_run", request, home)
    if has_calls:
        request |= {"artifact": str(artifact), "calls": str(folder / "calls")}
        found.calls = side.ask("answered", request, home)


def _relation(relation: Mapping[str, Any]) -> str:
    """A relation such as `total = past + sequence`, from the manifest's record."""
    constant = relation.get("constant", 0)
    terms = [*relation["terms"], *([str(constant)] if constant else [])]
    return f"{relation['dim']} = {' + '.join(terms)}"


def range_text(dims: Mapping[str, Any]) -> str:
    """`batch 1..8 (4), height 32..640:32 (224)`: sizes, step, and the optimum in parentheses."""
    parts = []
    for name, dim in dims.items():
        step = f":{dim['multiple_of']}" if dim.get("multiple_of", 1) != 1 else ""
        bounds = f"{dim['min']}..{dim['max']}" if dim["min"] != dim["max"] else str(dim["min"])
        ended = dim.get("stopped_by", "")
        why = f", {ended}" if ended not in ("", "error") else ""
        parts.append(f"{name} {bounds}{step} ({dim['opt']}{why})")
    return ", ".join(parts) or "none"


_HEAD: Final = (
    *("Model", "Side", "Range (optimum, end)", "Relations", "Codes", "Analysis s", "Run s"),
    *("Ratio", "Build CPU s", "Calls", "Alike", "In range"),
)


def table(found: Sequence[Found]) -> str:
    """Markdown: a row for each model and side."""
    return markdown(_HEAD, [_row(each) for each in found])


def _row(found: Found) -> tuple[str, ...]:
    ranges = "; also ".join(range_text(dims) for dims in found.ranges)
    runs = found.runs()
    counts: tuple[str, ...] = ("", "", "")
    if found.calls is not None:
        answered, alike, inside = (sum(each) for each in zip(*found.calls, strict=True))
        counts = (f"{answered} of {len(found.calls)}", str(alike), str(inside))
    return (
        found.model,
        found.side,
        f"exit status {found.status}" if found.status else ranges,
        "; ".join(found.relations),
        " ".join(found.codes),
        f"{median(found.analyze):.1f}" if found.analyze else "",
        f"{found.run:.3f}" if found.run is not None else "",
        f"{runs:.1f}" if runs is not None else "",
        f"{median(found.seconds):.1f}",
        *counts,
    )


def missed(found: Sequence[Found], most_cpu: float = math.inf) -> list[str]:
    """A line for each limit that this toolchain did not keep to.

    `most_cpu` is that of the ratio of a build's processor time to the other side's.
    """
    lines = []
    others = {each.model: each for each in found if each.side != THIS.name}
    for each in (each for each in found if each.side == THIS.name):
        most = max(ANALYSIS_SECONDS, ANALYSIS_RUNS * (each.run or 0))
        if each.analyze and median(each.analyze) > most:
            lines.append(f"{each.model}: analysis {median(each.analyze):.1f} s, limit {most:.1f} s")
        other = others.get(each.model)
        if other and median(each.seconds) > most_cpu * median(other.seconds):
            ratio = median(each.seconds) / median(other.seconds)
            lines.append(f"{each.model}: {ratio:.2f} times the processor time of before")
    return lines


_INTRODUCTION = f"""\
# Benchmark of ranges

Written by `python -m benchmarks.ranges FOLDER… --write`. Each model is built without options, with
a home of its own and without the cache. The range is what the build claims, with each dim's optimum
and why the search for larger sizes ended; `also` are further ranges. `Run s` is one run of the
original, at the largest claimed sizes, in one thread, without optimizations; `Ratio` is the
analysis as a multiple of it. The limit is {ANALYSIS_SECONDS:.0f} s, or {ANALYSIS_RUNS:.0f} runs
where these are longer. `Calls` are those that an owner makes (`benchmarks/data/calls`) and plain
ONNX Runtime answers; of these, `Alike` are answered by the artifact within 0.001, and `In range`
lie in what it claims.

The networks are those of `benchmarks/networks/exports.py` and `benchmarks/networks/called.py`, and
models of others, whose files are not in the repository.
"""


def page(found: Sequence[Found], before: str = "") -> str:
    """The page, with the date and the machine; `before` is the revision that was built against."""
    told = {"date": time.strftime("%Y-%m-%d"), **machine()}
    told |= {"before": f"revision {before}"} if before else {}
    lines = [f"- {what}: {text}" for what, text in told.items()]
    over = [f"- {line}" for line in missed(found)]
    over = ["Over a limit:\n", *over, ""] if over else []
    return "\n".join((_INTRODUCTION, "Measured on:\n", *lines, "", *over, table(found), ""))


def _revision(tree: Path | None) -> str:
    """The commit of a checkout; "" for an interpreter."""
    if tree is None or not tree.is_dir():
        return ""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return told.stdout.strip()


def main() -> int:
    """0; 1 if a limit was missed, 2 for a wrong name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranges", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--names", nargs="*", metavar="NAME", help="models; all of the folders")
    parser.add_argument("--against", type=Path, metavar="PYTHON_OR_TREE")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--most-cpu",
        type=float,
        default=math.inf,
        metavar="RATIO",
        help="of a build's processor time to that of the other side; more is a missed limit",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all that was found")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    models = [path for folder in arguments.folders for path in sorted(folder.glob("*.onnx"))]
    for name in arguments.names or ():
        if name not in {model.stem for model in models}:
            parser.error(
                f"no model is named {name!r}; there are: {', '.join(m.stem for m in models)}"
            )
    if arguments.names:
        models = [model for model in models if model.stem in arguments.names]
    sides = [Side.of("before", arguments.against)] if arguments.against else []
    found: list[Found] = []
    for results in measure(models, [*sides, THIS], arguments.rounds):
        found += results
        print(table(results), file=sys.stderr, flush=True)
        if arguments.json:
            kept = [asdict(result) for result in found]
            arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    over = missed(found, arguments.most_cpu)
    print("\n".join(over))
    if arguments.write:
        PAGE.write_text(page(found, _revision(arguments.against)), encoding="utf-8")
        print(f"Wrote {PAGE.relative_to(ROOT)}.")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
