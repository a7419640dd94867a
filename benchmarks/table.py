"""The results page, docs/benchmarks.md, from the results in build/bench/results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT
from benchmarks.result import Result

PAGE = ROOT / "docs" / "benchmarks.md"

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`. Every number is a ratio of medians within one run, in which both sides
take turns, so that a noisy machine disturbs both alike; what is in parentheses depends on the
machine. Models are generated from a seed (`benchmarks/networks/models.py`). The raw samples lie in
`build/bench/results` after a run.
"""


def machine() -> dict[str, str]:
    """The machine of the measurement, without host names."""
    from aotc.host.probe import probe

    host = probe(gpus=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    packages = ", ".join(f"{name} {version(name)}" for name in ("aotc", "onnx", "onnxruntime"))
    return {
        "processor": f"{host.architecture}, {len(os.sched_getaffinity(0))} cores",
        "features": " ".join(host.isa or ()),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{host.os}, {host.libc.name} {host.libc.version}" if host.libc else host.os,
        "versions": f"Python {platform.python_version()}, {packages}",
    }


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    written = ["| " + " | ".join(line) + " |" for line in (head, *lines)]
    written.insert(1, "|" + "---|" * len(head))
    return "\n".join(written)


def keep_result(folder: Path, name: str, title: str, result: Result) -> None:
    """Write one benchmark's rows and samples."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"title": title, "machine": machine(), **result.to_json()}
    (folder / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, in the order of `documents`; a machine is described if it differs from the last."""
    lines = [_INTRODUCTION]
    last_machine: object = None
    for document in documents.values():
        if document["machine"] != last_machine:
            last_machine = document["machine"]
            lines.append("Measured on:\n")
            lines += [f"- {what}: {text}" for what, text in document["machine"].items()]
            lines.append("")
        lines += [f"## {document['title']}\n", "| What | Asked | Measured | |", "|---|---|---|---|"]
        for row in document["rows"]:
            verdict = {True: "yes", False: "**no**", None: ""}[row["held"]]
            lines.append(f"| {row['what']} | {row['asked']} | {row['measured']} | {verdict} |")
        lines.append("")
    return "\n".join(lines)


def write_page(folder: Path, names: list[str]) -> None:
    """Write the page from all existing results."""
    documents = {
        name: json.loads((folder / f"{name}.json").read_bytes())
        for name in names
        if (folder / f"{name}.json").exists()
    }
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(documents), encoding="utf-8")
