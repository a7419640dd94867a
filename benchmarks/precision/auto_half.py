"""`precision: auto` for CUDA on a vision transformer with two planted numbers that float16 lacks.

Where there is no GPU, the graph in half precision is proven undivided on the CPU.  In float32 must
stay what makes either number and what reads it, and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.fresh import run_fresh
from benchmarks.networks.models import OVERFLOWS
from benchmarks.result import Result, Row
from benchmarks.workshop import Workshop


def run(workshop: Workshop) -> Result:
    """One build, and the nodes that its manifest keeps."""
    model = workshop.model("vit_planted")
    fields = {
        "providers": ["cuda", "cpu"],
        "precision": "auto",
        "unproven": "allow",
        "dims": dict(model.sizes),
        "parity": {"random_shapes": 0},
    }
    output = workshop.folder / "artifacts" / f"{model.folder}.aotc"
    output.parent.mkdir(parents=True, exist_ok=True)
    workshop.progress(f"build {model.title}")
    found = run_fresh(
        "precision.auto_half:kept",
        {
            "model": str(model.path),
            "profile": str(workshop.profile(f"{model.folder}-auto", fields)),
            "key": str(workshop.key()[0]),
            "output": str(output),
        },
    )
    planted = {node for plant in OVERFLOWS for node in plant.nodes}
    kept = set(found["kept"])
    others = sorted(kept - planted)
    row = Row(
        what=f"{model.title}: what {found['precision']} keeps in float32",
        asked=f"the {len(planted)} planted nodes, and nothing else",
        measured=f"{len(kept & planted)} of {len(planted)} planted, and {len(others)} others"
        + (f" ({', '.join(others[:5])})" if others else "")
        + f"; {found['converted']} nodes compute in {found['precision']}; {found['seconds']:.0f} s",
        held=kept == planted and found["precision"] == "float16",
    )
    return Result(rows=(row,), samples={"seconds": [found["seconds"]]})


def kept(request: dict[str, Any]) -> dict[str, Any]:
    """In a fresh process: build, and what the manifest says of the variant."""
    import time

    from aotc.pipeline.build import build

    started = time.perf_counter()
    build(**request, force=True, cache=False)
    seconds = time.perf_counter() - started
    manifest = json.loads((Path(request["output"]) / "payload" / "aotc.json").read_bytes())
    (variant,) = manifest["variants"]
    changes = [item for item in variant["passes"] if item["name"] == "half-precision"]
    return {
        "precision": variant.get("precision", "keep"),
        "kept": [name for item in changes for name in item.get("kept", [])],
        "converted": sum(item["matched"]["converted"] for item in changes),
        "seconds": seconds,
    }
