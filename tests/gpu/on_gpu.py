"""Building for CUDA in the tests: profiles with captured graphs, and figures that are kept."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import aotc
from aotc.graph.view import shape_nodes
from aotc.runtime.model import Model
from aotc.spec.reports import BuildReport

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedMultiHeadAttention")
_DATA = Path(__file__).parents[1] / "data"
_PAST = {"batch": 2, "sequence": 1, "past_sequence": 7, "total": 8}
# Sizes of the exported networks.
NETWORK_DIMS: dict[str, dict[str, Any]] = {
    "bert": {"batch": 2, "sequence": 16},
    "vit": {"batch": 2},
    "gpt2": _PAST,
    "llama_eager": _PAST,
    "llama_sdpa": _PAST,
    "gpt_neox": _PAST,
    "qwen3": _PAST,
    "modernbert": {"batch": 2, "sequence": 16},
    "whisper": {"batch": 2, "frames": 3000},
    "resnet50": {"batch": 2, "height": 224, "width": 224},
}
# Of them, those that turn queries and keys by their positions; how often.
ROTARY = {"llama_eager": 4, "llama_sdpa": 4, "gpt_neox": 4, "qwen3": 4, "modernbert": 6}


def network_path(name: str) -> Path:
    """The committed export of a network."""
    own = _DATA / "rotary" / f"{name}.onnx"
    return own if own.exists() else _DATA / "exports" / own.name


@dataclass(frozen=True, slots=True)
class Built:
    """An artifact, and the report of its build."""

    path: Path
    report: BuildReport


def built(
    model: Path,
    folder: Path,
    dims: dict[str, Any],
    *,
    precision: str = "keep",
    capture: str = "sizes",
    refused: str = "fail",
    **fields: Any,
) -> Built:
    """The artifact of `model` for CUDA, with a profile of these fields; not from the cache."""
    graphs = {"capture": capture, "on_refusal": refused}
    document = {
        "schema": "aotc.profile/1",
        "name": "gpu-test",
        "providers": ["cuda", "cpu"],
        "precision": precision,
        "cuda": {"graphs": graphs},
        "dims": dims,
        **fields,
    }
    profile, output = folder / "profile.yaml", folder / "built.aotc"
    # JSON is YAML.
    profile.write_text(json.dumps(document))
    report = aotc.build(model, profile=profile, output=output, cache=False, force=True)
    return Built(output, report)


def note(name: str, value: object) -> None:
    """Figures go to a file where one is asked for."""
    folder = os.environ.get("OUT")
    if folder:
        with (Path(folder) / "gpu-tests.jsonl").open("a") as file:
            file.write(json.dumps({name: value}) + "\n")
    print(name, value)


def operators(model: Model) -> Counter[str]:
    """The operators of the first variant's graph, as it is in the payload."""
    path = model.payload / model.variant.model
    graph = onnx.load(path, load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


def told_of(model: Model) -> set[str]:
    """The codes of what a loaded model tells, without that of the key it is signed with here."""
    return {finding.code for finding in model.findings()} - {"AOTC-G016"}


def not_on_cuda(model: Model) -> list[str]:
    """The nodes that are not on CUDA, without those that compute shapes."""
    graph = onnx.load(model.payload / model.variant.model, load_external_data=False)
    shapes = shape_nodes(graph)
    nodes = model.variant.placement.nodes
    assert nodes
    return [f"{n.name} {n.op}" for n in nodes if n.provider != CUDA and n.name not in shapes]


def close_to(found: Any, expected: Any, share: float) -> None:
    """Assert that the largest difference is at most a share of the largest value."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= share * np.abs(expected).max()
