"""What a build from a `.pt2` costs beside torch's own export and a build of the ONNX file.

`python -m benchmarks.from_torch [--layers N] [--hidden N] [--rounds N]`, in an environment with
torch and transformers: BERT with random weights, its batch and length free.  Processor time of
processes with all that they start; the runs of the framework for the proof are measured, and left
out of the ratio.  Each round runs all sides one after the other, each in a process of its own, with
a home and without a cache.  Exit status 1 if the ratio is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

LIMIT: Final = 1.3
# Stated, so that the search for sizes, which both builds make, does not hide the rest.
DIMS: Final = {"input_ids.0": "1..2", "input_ids.1": "8..64"}
ROOT: Final = Path(__file__).parents[1]
# Two heads of 64 for each 128 of width, as BERT has them.
_HEAD: Final = 64


def main() -> int:
    """0 if the limit is met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_torch", description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=("make", "export", "build"), help=argparse.SUPPRESS)
    parser.add_argument("--request", type=json.loads, default={}, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(globals()[f"_{given.side}"](given.request)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = str(folder / "bert.pt2")
        exported = str(folder / "bert.onnx")
        _run("make", folder, program=program, layers=given.layers, hidden=given.hidden)
        ratios = []
        for number in range(given.rounds):
            export = _run("export", folder, program=program, model=exported)
            plain = _run("build", folder, model=exported, output=str(folder / "onnx.aotc"))
            ours = _run("build", folder, model=program, output=str(folder / "pt2.aotc"))
            own = ours["seconds"] - ours["framework"]
            ratios.append(own / (export["seconds"] + plain["seconds"]))
            print(
                f"round {number}: export {export['seconds']:.1f} s, build of the ONNX file "
                f"{plain['seconds']:.1f} s, build of the .pt2 {own:.1f} s without the framework's "
                f"runs of {ours['framework']:.1f} s: ratio {ratios[-1]:.2f}",
                flush=True,
            )
    print(f"median ratio {median(ratios):.2f}, limit {LIMIT}")
    return 0 if median(ratios) <= LIMIT else 1


def _run(side: str, folder: Path, **request: Any) -> dict[str, float]:
    """A side in a process of its own; seconds of processor time of it and all that it starts."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    words = json.dumps(request)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks.from_torch", "--side", side, "--request", words],
        cwd=ROOT,
        env={**os.environ, "HOME": str(home), "AOTC_CACHE": "off"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"framework": 0.0, **json.loads(told.splitlines()[-1]), "seconds": seconds}


def _make(request: dict[str, Any]) -> dict[str, float]:
    import torch
    from transformers import BertConfig, BertModel

    hidden = request["hidden"]
    config = BertConfig(
        num_hidden_layers=request["layers"],
        hidden_size=hidden,
        num_attention_heads=hidden // _HEAD,
        intermediate_size=4 * hidden,
        attn_implementation="eager",
        return_dict=False,
    )
    torch.manual_seed(0)
    model = BertModel(config).eval()
    ids = torch.randint(0, 1000, (2, 16))
    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(
        model,
        (ids, torch.ones_like(ids)),
        dynamic_shapes={"input_ids": free, "attention_mask": free},
    )
    torch.export.save(program, request["program"])
    return {}


def _export(request: dict[str, Any]) -> dict[str, float]:
    import torch

    program = torch.export.load(request["program"])
    torch.onnx.export(program, dynamo=True, verbose=False).save(
        request["model"], external_data=False
    )
    return {}


def _build(request: dict[str, Any]) -> dict[str, float]:
    from unittest.mock import patch

    import aotc
    from aotc.pipeline.analyze import against_framework

    spent = 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        before = _ended_children()
        try:
            return against_framework(*arguments)
        finally:
            spent = _ended_children() - before

    with patch("aotc.pipeline.build.against_framework", timed):
        aotc.build(request["model"], output=request["output"], force=True, dims=DIMS)
    return {"framework": spent}


def _ended_children() -> float:
    """Seconds of processor time of jobs that have ended, which the servers of jobs waited for."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            # cutime and cstime of proc(5).
            total += int(fields[13]) + int(fields[14])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
