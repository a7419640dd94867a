"""The page docs/benchmarks-gpu.md, from the kept results and a part that is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.fresh import ROOT
from benchmarks.gpu.results import Record, marked, why_failed
from benchmarks.gpu.tables import SECTIONS, calls_table, summary

PAGE = ROOT / "docs" / "benchmarks-gpu.md"
BY_HAND = ROOT / "benchmarks" / "data" / "gpu-missed.md"

_INTRODUCTION = """\
# Benchmarks on a GPU

Written by `python -m benchmarks.gpu --table` from `benchmarks/data/gpu.jsonl`, which keeps every
sample. Cases, sides and limits are those of [ADR 99](adr/0099-gpu-cases.md). The sides of a ratio
take turns within one process and wait for the device after each call, whose outputs stay there;
medians. Inputs stay on the device, or come from page-locked memory of the host, which each side
copies in its own types. torch's side is the better of `torch.compile` in the mode
`reduce-overhead`, for each shape, and eager, with half inputs for half precision. Kernels alone are
recorded by CUPTI in another process. A row of older sources than the newest names them and its
date, and one of another GPU than most names that. The plain session is ONNX Runtime's CUDA provider
with its default options on the same exported model, for fp16 converted by
`onnxruntime.transformers.float16`, inputs and outputs bound on the device. Where processes are
timed from their start, those of aotc and of plain sessions find byte code, as pip leaves it, and
aotc finds the artifact in its store, as in every load but a machine's first.

<!-- not run: they need a GPU, and minutes -->
```sh
{commands}
```
"""
_COMMANDS = (
    "ci/gpu.sh WHEELS                        # the tests of tests/gpu",
    "python -m benchmarks.gpu --artifacts --models build/gpu/models      # all builds at once",
    "python -m benchmarks.gpu --models build/gpu/models --out build/gpu",
    "python -m benchmarks.gpu --table build/gpu/gpu.jsonl",
)
_MACHINE = ("gpu", "capability", "driver", "cuda", "cudnn", "python")


def write(records: Sequence[Record], page: Path = PAGE, by_hand: Path = BY_HAND) -> None:
    """Write the page."""
    missed = by_hand.read_text(encoding="utf-8") if by_hand.exists() else ""
    page.write_text(text(records, missed), encoding="utf-8")


def text(records: Sequence[Record], missed: str = "") -> str:
    """The whole page; `missed` is its last section."""
    if not records:
        return _INTRODUCTION.format(commands="\n".join(_COMMANDS)) + "\nNothing is measured yet.\n"
    records = marked(records)
    parts = [_INTRODUCTION.format(commands="\n".join(_COMMANDS)), *_machines(records)]
    limits = summary(records)
    if limits:
        parts += ["## Limits\n", _table(("What", "Asked", "Measured", ""), limits)]
    measured = calls_table(records)
    if measured:
        header: Sequence[str] = (
            "Case", "aotc", "torch.compile", "eager", "plain session", "to the better of torch",
            "kernels, aotc / Inductor", "of Inductor's",
        )  # fmt: skip
        title = "## Calls, ms: of tensors that stay / with new inputs\n"
        parts += [title, _table(header, measured)]
    for title, columns, rows in SECTIONS:
        lines = rows(records)
        if lines:
            parts += [f"## {title}\n", _table(columns, lines)]
    failed = [
        (f"{record['row']} {record['case']}{record.get('mark', '')}", why.replace("|", "\\|"))
        for record in records
        if (why := why_failed(record))
    ]
    if failed:
        parts += ["## Not measured, or wrong\n", _table(("What", "Why"), failed)]
    if missed:
        parts.append(missed)
    return "\n".join(parts)


def _machines(records: Iterable[Record]) -> list[str]:
    """Date, machine and versions; more than one where results come from several."""
    days: dict[str, set[str]] = {}
    for record in records:
        machine = record["machine"]
        shown = [f"{name} {machine[name]}" for name in _MACHINE if name in machine]
        shown += [
            f"{name} {value}" for name, value in sorted(machine.items()) if name not in _MACHINE
        ]
        days.setdefault(", ".join(shown), set()).add(record["at"][:10])
    return [f"- {', '.join(sorted(found))}: {machine}" for machine, found in days.items()] + [""]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
