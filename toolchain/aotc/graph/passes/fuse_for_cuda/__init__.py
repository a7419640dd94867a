"""Fuse attention, activations and normalizations into operators that CUDA has fast kernels for.

The steps are passes, each recorded with what it matched; one that matches nothing is not.  Those of
normalizations are onnxscript's rules for ONNX Runtime, the others are ours: see ADR 34, 94 and 95.
External data stays external.  The graph must not be fused for a provider whose kernels of these
operators are slow, as those of masked attention are on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript.optimizer import optimize
from onnxscript.rewriter.ort_fusions import shape_optimization

from aotc.graph.passes.base import free_name
from aotc.graph.passes.fuse_for_cuda.attention import split_key_transposes
from aotc.graph.passes.fuse_for_cuda.capturable import write_as_cuda_has_it
from aotc.graph.passes.fuse_for_cuda.channels_last import move_transposes_to_images
from aotc.graph.passes.fuse_for_cuda.layer_norm import fuse_layer_norm
from aotc.graph.passes.fuse_for_cuda.layer_scale import fold_layer_scale
from aotc.graph.passes.fuse_for_cuda.multi_head import Fuser, pack_attention
from aotc.graph.passes.fuse_for_cuda.normalization import fuse_normalizations
from aotc.graph.passes.fuse_for_cuda.packed_products import divide_products
from aotc.graph.passes.fuse_for_cuda.products import (
    fuse_gelu,
    split_projections,
    unflatten_projections,
)
from aotc.graph.passes.fuse_for_cuda.rolled_rows import gather_rolled_rows
from aotc.graph.passes.fuse_for_cuda.rotary import fuse_rotary
from aotc.spec.providers import MICROSOFT
from aotc.spec.variant import PassRecord

_Step = Callable[[ir.Model], Mapping[str, int]]
_SIMPLIFY: Final = "simplify-for-fusion"
_WRITE: Final = "write-as-cuda-has-it"
_DIVIDE: Final = "divide-products"


def fuse(
    model: onnx.ModelProto, weights: Path, ep: str = ""
) -> tuple[onnx.ModelProto, tuple[PassRecord, ...]]:
    """`model` with what could be fused, and the records of the passes; none if nothing could be.

    External data is in the folder `weights`.  With `ep`, ONNX Runtime's name of a provider, nodes
    that it has no kernel for are written as it has one.
    """
    names = [value.name for value in (*model.graph.input, *model.graph.output)]
    own = ir.serde.deserialize_model(model)
    ir.external_data.set_base_dir(own.graph, weights)
    before = len(own.graph)
    simplify(own)
    records = [
        PassRecord(name=_SIMPLIFY, nodes_before=before, nodes_after=len(own.graph)),
    ]
    fused = False
    own.graph.opset_imports.setdefault(MICROSOFT, 1)
    steps = dict(_STEPS)
    if ep:
        steps[_WRITE] = lambda model: write_as_cuda_has_it(model.graph, ep)
    for name, step in steps.items():
        before = len(own.graph)
        if not (matched := step(own)):
            continue
        common.RemoveUnusedNodesPass()(own)
        common.ShapeInferencePass()(own)
        records.append(
            PassRecord(name=name, nodes_before=before, nodes_after=len(own.graph), matched=matched)
        )
        fused |= name in _FUSIONS or name in (_WRITE, _DIVIDE)
    if not fused:
        return model, ()
    _finish(own)
    result = ir.serde.serialize_model(own)
    found = [value.name for value in (*result.graph.input, *result.graph.output)]
    if found != names:
        raise RuntimeError(f"fusion changed the inputs or outputs {names} to {found}")
    return result, tuple(records)


def simplify(model: ir.Model) -> None:
    """Fold what computes known shapes, so that patterns are found."""
    common.ShapeInferencePass()(model)
    optimize(model)
    shape_optimization.rules.apply_to_model(model)
    optimize(model)


def _finish(model: ir.Model) -> None:
    common.CommonSubexpressionEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]
    _name_apart_from_bodies(model.graph)


def _name_apart_from_bodies(graph: ir.Graph) -> None:
    """Give what was made other names than those of bodies, whose values must not hide any."""
    bodies = list(graph.subgraphs())
    inside = {
        value.name for body in bodies for value in (*body.inputs, *body.initializers.values())
    }
    inside |= {item.name for body in bodies for item in _named(body)}
    used = {item.name or "" for item in _named(graph)} | {name or "" for name in inside}
    for item in _named(graph):
        if item.name and item.name in inside:
            item.name = free_name(item.name, used)


def _named(graph: ir.Graph) -> Iterator[ir.Node | ir.Value]:
    """The nodes of a graph, and what they make."""
    for node in graph:
        yield node
        yield from node.outputs


_FUSIONS: Final[Mapping[str, _Step]] = {
    "fold-layer-scale": lambda model: fold_layer_scale(model.graph),
    "fuse-rotary": lambda model: fuse_rotary(model.graph),
    "fuse-attention": lambda model: Fuser(model.graph).run(),
    "pack-attention": lambda model: pack_attention(model.graph),
    "fuse-gelu": lambda model: fuse_gelu(model.graph),
    "fuse-layer-norm": lambda model: fuse_layer_norm(model.graph),
    "fuse-normalization": fuse_normalizations,
    "move-transposes-to-images": lambda model: move_transposes_to_images(model.graph),
    "gather-rolled-rows": lambda model: gather_rolled_rows(model.graph),
}
_STEPS: Final[Mapping[str, _Step]] = {
    "unflatten-projections": lambda model: unflatten_projections(model.graph),
    _DIVIDE: lambda model: divide_products(model.graph),
    "split-projections": lambda model: split_projections(model.graph),
    "split-key-transposes": lambda model: split_key_transposes(model.graph),
    **_FUSIONS,
}
