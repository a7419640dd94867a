"""Lower precision by this toolchain, and by ONNX Runtime's own quantizers, in one run.

`python -m benchmarks.precision.quantizers [NETWORK…] [--quick] [--write]` lowers each network with
both, on the same seeded data, and measures the processor time of calls in one thread, by turns in
one process.  Of ONNX Runtime's settings the quickest counts, for `quantize_static` and
`quantize_dynamic` each.  `--quick` takes few settings and calls; `--write` writes the page from all
results in the folder, those of earlier runs too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.fresh import ROOT, run_fresh
from benchmarks.networks.lowered import NETWORKS
from benchmarks.result import paired_interval
from benchmarks.workshop import Workshop, sources_digest

PAGE: Final = ROOT / "docs" / "benchmarks-precision.md"
FOLDER: Final = ROOT / "build" / "bench" / "quantizers"
SEED: Final = 11
# Of our time to that of ONNX Runtime's quickest, to that of float32 without a finding, and of
# `auto` to the quickest single form.
MOST: Final[Mapping[str, float]] = {"theirs": 1.1, "float32": 1.0, "auto": 1.05}
# Processor seconds of a build in `auto`: as many times those in `keep`, and as many more.
AUTO_FACTOR: Final = 3
AUTO_SECONDS: Final = 10
# Of static int8 to float32, on CPUs with VNNI.
SHARES: Final[Mapping[str, float]] = {"bert": 0.42, "resnet": 0.58}
NOISE: Final = 0.03
FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "keep": {},
    "static": {"precision": "int8", "quantization": {"form": "static"}},
    "dynamic": {"precision": "int8", "quantization": {"form": "dynamic"}},
    "weights": {"precision": "int8", "quantization": {"form": "weights"}},
    "int4": {"precision": "int4"},
    "auto": {"precision": "auto"},
}
# Findings that a form is slower.
SLOWER: Final = frozenset({"AOTC-N075", "AOTC-N077"})
_SINGLE: Final = ("keep", "static", "dynamic", "weights", "int4")


class Comparison:
    """One network: its files in a folder, what was built, and what was measured."""

    def __init__(self, name: str, folder: Path, *, quick: bool) -> None:
        self.name, self.network, self.quick = name, NETWORKS[name], quick
        self.folder, self.store = folder / name, folder / "store"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = Workshop(folder, smoke=False, progress=print).key()
        self.model = self.folder / "model.onnx"
        self.data = self.folder / "calibration.npz"
        self.judged = self.folder / "judged.npz"
        if not self.judged.exists():
            self.network.write_fixed(self.model)
            np.savez(self.data, **self.network.draw(self.model, self.network.samples, SEED))
            np.savez(self.judged, **self.network.draw(self.model, 4, SEED + 1))

    def measured(self, forms: Sequence[str]) -> dict[str, Any]:
        """All that was found, as JSON-like data."""
        failed = self._theirs()
        labels = [label for label, wrong in failed.items() if not wrong]
        rough = self._timed({label: self._session(self._path(label)) for label in labels}, 5)
        best = {
            kind: min(
                (label for label in labels if label.startswith(kind)),
                key=lambda label: median(rough["seconds"][label]),
            )
            for kind in ("static", "dynamic")
        }
        built = {form: self._ours(form) for form in forms}
        sides = {"float32": self._session(self.model)}
        sides |= {f"their {kind}": self._session(self._path(label)) for kind, label in best.items()}
        plain = {}
        for form, each in built.items():
            if each.get("no"):
                continue
            artifact = self._artifact(form)
            sides[form] = {"kind": "artifact", "path": str(artifact), "key": str(self.key[1])}
            sides[f"{form}, bound"] = {**sides[form], "kind": "bound"}
            plain[form] = self._plain(form, artifact)
            sides[f"{form}, its graph"] = self._session(plain[form])
        found = self._timed(sides, 8 if self.quick else 0)
        models = {f"their {kind}": str(self._path(label)) for kind, label in best.items()}
        models |= {form: str(path) for form, path in plain.items()}
        return {
            "title": self.network.title,
            "best": best,
            "failed": {label: wrong for label, wrong in failed.items() if wrong},
            "settings": {label: median(rough["seconds"][label]) for label in labels},
            "built": built,
            **found,
            "graphs": run_fresh("precision.lowering:graphs", {"models": models}),
        }

    def _theirs(self) -> dict[str, str]:
        request = {
            "model": str(self.model),
            "data": str(self.data),
            "folder": str(self.folder),
            "quick": self.quick,
        }
        found: dict[str, str] = run_fresh("precision.lowering:theirs", request)
        return found

    def _ours(self, form: str) -> dict[str, Any]:
        kept = self._artifact(form).with_suffix(".json")
        if kept.exists():
            found: dict[str, Any] = json.loads(kept.read_bytes())
            return found
        fields = {**FORMS[form], "parity": {"random_shapes": 0}}
        if form in ("static", "auto"):
            fields["calibration"] = {"data": str(self.data)}
        print(f"   … build {self.name}, {form}", file=sys.stderr, flush=True)
        found = run_fresh(
            "precision.lowering:ours",
            {
                "model": str(self.model),
                "fields": fields,
                "profile": str(self.folder / f"{form}.yaml"),
                "key": str(self.key[0]),
                "output": str(self._artifact(form)),
            },
            store=self.store,
        )
        kept.write_text(json.dumps(found), encoding="utf-8")
        return found

    def _artifact(self, form: str) -> Path:
        digest = hashlib.sha256(sources_digest().encode()).hexdigest()[:12]
        return self.folder / f"{form}-{digest}.aotc"

    def _path(self, label: str) -> Path:
        return self.folder / f"{label}.onnx"

    def _plain(self, form: str, artifact: Path) -> Path:
        """The artifact's only graph, with its weights beside it."""
        payload = artifact / "payload"
        (source,) = payload.rglob("*.onnx")
        folder = self.folder / "plain" / form
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for path in (source, *(payload / "shared_assets").glob("*/*")):
            # An artifact whose files have further links is refused.
            shutil.copyfile(path, folder / path.name)
        return folder / source.name

    @staticmethod
    def _session(path: Path) -> dict[str, str]:
        return {"kind": "session", "path": str(path)}

    def _timed(self, sides: Mapping[str, Mapping[str, str]], rounds: int) -> dict[str, Any]:
        request = {"data": str(self.judged), "sides": sides, "rounds": rounds}
        found: dict[str, Any] = run_fresh("precision.lowering:timed", request, store=self.store)
        return found


def rows(found: Mapping[str, Any], name: str) -> list[tuple[str, str, str, bool | None]]:
    """What was compared, the limit, what was measured, and whether the limit was kept to."""
    seconds, errors = found["seconds"], found["errors"]

    def times(side: str) -> str:
        spent = median(seconds[side])
        shown = f"{spent * 1e6:.0f} µs" if spent < 1e-3 else f"{spent * 1e3:.1f} ms"
        return f"{shown}, error {errors[side]:.2g}"

    def row(side: str, other: str, limit: float | None, told: bool = False, note: str = "") -> Any:
        ratio, low, high = paired_interval(seconds[side], seconds[other])
        text = f"{ratio:.2f} ({low:.2f} to {high:.2f}; {times(side)}; {times(other)}{note})"
        asked = "" if limit is None else f"≤ {limit:g}"
        held = None if limit is None else told or low <= limit * (1 + NOISE)
        return (f"{side} / {other}", asked, text, held)

    lines: list[tuple[str, str, str, bool | None]] = []
    for form, each in found["built"].items():
        if form not in seconds:
            lines.append((form, "", f"refused: {each['refused']}", None))
            continue
        told = [code for code, _ in each["findings"] if code in SLOWER]
        note = f"; told: {' '.join(told) or 'nothing'}; built in {each['seconds']:.0f} s"
        if each["refused"]:
            note += f"; refused by default: {each['refused']}"
        if form == "keep" or "keep" not in seconds:
            lines.append(row(form, "float32", None, note=note))
        else:
            lines.append(row(form, "keep", MOST["float32"], bool(told), note))
        lines.append(row(f"{form}, bound", "float32", None))
        lines.append(row(f"{form}, its graph", "float32", None))
        if form in found["best"]:
            # Like with like: a call of an artifact checks its inputs, which costs microseconds.
            note = f"; {found['best'][form]}"
            lines.append(row(f"{form}, its graph", f"their {form}", MOST["theirs"], note=note))
    if "static" in seconds and name in SHARES:
        lines.append(row("static", "float32", SHARES[name]))
    lines += [row(f"their {kind}", "float32", None) for kind in found["best"]]
    if "auto" in seconds:
        single = [s for s in _SINGLE if s in seconds and not found["built"][s]["refused"]]
        if single:
            quickest = min(single, key=lambda side: median(seconds[side]))
            lines.append(row("auto", quickest, MOST["auto"]))
        best = min((f"their {kind}" for kind in found["best"]), key=lambda s: median(seconds[s]))
        lines.append(row("auto, its graph", best, MOST["theirs"]))
        if "keep" in seconds:
            spent, limit = (found["built"][form]["seconds"] for form in ("auto", "keep"))
            limit = AUTO_FACTOR * limit + AUTO_SECONDS
            lines.append(("build of auto", f"≤ {limit:.0f} s", f"{spent:.0f} s", spent <= limit))
    return lines


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, with the date and the machine of each network's run."""
    from benchmarks.table import markdown

    lines = [_INTRODUCTION]
    last: object = None
    for name, found in results.items():
        told = {"date": found["date"], **found["machine"]}
        if told != last:
            last = told
            lines += ["Measured on:\n", *(f"- {what}: {text}" for what, text in told.items()), ""]
        verdicts = {True: "yes", False: "**no**", None: ""}
        table = [
            (what, asked, measured, verdicts[held])
            for what, asked, measured, held in rows(found, name)
        ]
        lines += [f"## {found['title']}\n", markdown(("What", "Asked", "Measured", ""), table), ""]
    return "\n".join(lines)


_INTRODUCTION = """\
# Benchmark of lower precision

Written by `python -m benchmarks.precision.quantizers --write`. Each network is lowered by this
toolchain in each form, and by ONNX Runtime's `quantize_static` and `quantize_dynamic` with the
settings that are quickest of all that were tried, on the same seeded data
(`benchmarks/networks/lowered.py`). Times are processor time of calls in one thread, by turns in one
process: medians of the ratios of each round, with their 95 % interval. `its graph` is the graph of
the artifact in a plain session, `bound` a bound call. The error is the largest of four answers, by
float32's largest value. A limit is missed where the whole interval is above it by more than 3 %.
"""


def cpu() -> str:
    """The processor's name, as the system tells it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""


def main() -> int:
    """0; 1 if a limit was missed, 2 for a wrong name."""
    from benchmarks.table import machine

    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision.quantizers")
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--forms", nargs="*", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="what is made and measured")
    parser.add_argument("--quick", action="store_true", help="few settings of theirs, few calls")
    parser.add_argument("--graphs", action="store_true", help="count the operators that run")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NETWORKS:
            parser.error(f"no network is named {name!r}; there are: {', '.join(NETWORKS)}")
    missed, folder = 0, arguments.folder.resolve()
    for name in arguments.names or NETWORKS:
        found = Comparison(name, folder, quick=arguments.quick).measured(arguments.forms)
        found |= {"date": time.strftime("%Y-%m-%d"), "machine": {"cpu": cpu(), **machine()}}
        (folder / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"== {found['title']}")
        for what, asked, measured, held in rows(found, name):
            missed += held is False
            verdict = {True: "yes", False: "NO ", None: "   "}[held]
            print(f"{verdict} {what} {asked}: {measured}", flush=True)
        if arguments.graphs:
            for side, graph in found["graphs"].items():
                counts = " ".join(f"{op}:{n}" for op, n in graph["operators"].items())
                unpacked = graph["unpacked"] and f"; unpacked: {' '.join(graph['unpacked'])}"
                print(f"    {side}: {counts}{unpacked or ''}")
    if arguments.write:
        kept = {name: folder / f"{name}.json" for name in NETWORKS}
        results = {n: json.loads(path.read_bytes()) for n, path in kept.items() if path.exists()}
        PAGE.write_text(page(results), encoding="utf-8")
        print(f"Wrote {PAGE.relative_to(ROOT)}.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
