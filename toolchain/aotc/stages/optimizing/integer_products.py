"""Variants whose integer products are exact on every CPU, and faster companions that need VNNI.

Functions of a graph run in the worker, functions of a variant in the build's own process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.contract.finding import Finding
from aotc.contract.manifest.source import Capture
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.manifest.variant import Optimization
from aotc.contract.target import Target
from aotc.graphs.offline import MODEL, write_optimized
from aotc.passes.base import run_passes
from aotc.passes.same_sign_weights import SameSignWeights
from aotc.passes.same_sign_weights.products import (
    ARCHITECTURE,
    exact_feature,
    may_have_products,
    saturating_operands,
)
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import bucket_suffix
from aotc.stages.types import (
    OptimizedModel,
    SpecializedModel,
)
from aotc.stages.variant_plan import VariantPlan

_COMPANION: Final = "vnni"


def may_saturate(target: Target) -> bool:
    """Whether a CPU of this kind may saturate where others do not."""
    return target.architecture == ARCHITECTURE and not exact_feature(target.isa)


def needs_one_sign(plan: VariantPlan, target: Target) -> bool:
    """Whether a variant must not rely on the features of the CPU that it is built for."""
    if not plan.cpu_only or target.architecture != ARCHITECTURE:
        return False
    return plan.isa == "baseline" or may_saturate(target)


def has_integer_products(capture: Capture) -> bool:
    """Whether a model has integer products, or ONNX Runtime may make some from it."""
    names = (name.rpartition("::") for name in capture.op_types)
    return may_have_products((domain, op) for domain, _, op in names)


def read_operands(model: onnx.ModelProto, folder: Path) -> None:
    """Load the operands of products that may saturate into `model`, from files in `folder`."""
    for operand in saturating_operands(model):
        for constant in (operand.weights, operand.zero):
            if constant is not None and constant.tensor.data_location == onnx.TensorProto.EXTERNAL:
                load_external_data_for_tensor(constant.tensor, str(folder))
                constant.tensor.data_location = onnx.TensorProto.DEFAULT
                del constant.tensor.external_data[:]


def rewrite_products(model: onnx.ModelProto, folder: Path) -> tuple[tuple[PassRecord, ...], int]:
    """Rewrite the products of `model` that may saturate to operands of one sign.

    External data is in `folder`; rewritten weights are then in the graph.  Returns the records of
    the passes and the number of operands.
    """
    count = sum(operand.fixable for operand in saturating_operands(_with_operands(model, folder)))
    if not count:
        return (), 0
    read_operands(model, folder)
    return run_passes(model, (SameSignWeights(),)), count


def saturating_nodes(model: onnx.ModelProto, folder: Path) -> list[str]:
    """The names of the nodes of `model` that may still saturate."""
    found = saturating_operands(_with_operands(model, folder))
    return list(dict.fromkeys(operand.node.name for operand in found))


def _with_operands(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A copy with the values that decide about products; `model` keeps its external data."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    read_operands(copy, folder)
    return copy


def saturating_at_load(level: Optimization) -> list[str]:
    """The same for the graph in the working directory, optimized by a session at `level`."""
    here = Path.cwd()
    folder = here / "loaded"
    folder.mkdir(exist_ok=True)
    write_optimized(here / MODEL, level, here, into=folder)
    return saturating_nodes(onnx.load(folder / MODEL, load_external_data=False), folder)


def companion_variants(
    variants: Sequence[OptimizedModel], options: BuildOptions
) -> tuple[list[SpecializedModel], list[Finding]]:
    """For each variant with rewritten products, a companion with the original ones.

    It is faster and needs VNNI, so it is built if the target has that feature and this host can
    prove it.  Returns AOTC-O009 for what is left out, for example if there are too many variants.
    """
    feature = exact_feature(options.target.isa)
    found = [made for item in variants if (made := _companion(item)) is not None]
    if not feature or not found:
        return [], []
    if feature not in (options.host.isa or ()):
        why = f"this host lacks {feature}, and cannot prove it"
        return [], [companion_left_out(companion.plan, why) for companion in found[:1]]
    known = {item.specialized.component for item in variants}
    found = [
        replace(companion, component=f"{companion.component}.{companion.plan.spec}")
        if companion.component in known
        else companion
        for companion in found
    ]
    maximum = options.profile.max_variants
    if len(variants) + len(found) > maximum:
        why = f"with them there were more than max_variants ({maximum})"
        return [], [companion_left_out(companion.plan, why) for companion in found[:1]]
    names = {spec.name for spec in options.profile.variants}
    taken = [companion for companion in found if companion.plan.spec in names]
    why = "a variant of the profile has this name"
    return [companion for companion in found if companion not in taken], [
        companion_left_out(e.plan, why) for e in taken[:1]
    ]


def _companion(optimized: OptimizedModel) -> SpecializedModel | None:
    specialized = optimized.specialized
    plan = specialized.plan
    if plan.isa != "baseline" or not optimized.rewritten:
        return None
    spec = f"{plan.spec}-{_COMPANION}"
    name = f"{spec}.{bucket_suffix(plan.buckets)}" if plan.buckets else spec
    return replace(
        specialized,
        plan=replace(plan, name=name, spec=spec, isa="vnni"),
        component=f"{specialized.component}.{_COMPANION}",
    )


def companion_left_out(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O009: the faster companion is not in the artifact."""
    return Finding(code="AOTC-O009", what=why[:500], where=f"variant {plan.name}")
