"""Variants whose integer products mean the same on every CPU, and the quicker one that needs VNNI.

What takes a graph runs in the worker, and what takes a variant in the build's own process.
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
    may_hold_products,
    saturating,
)
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.planning.planned_variants import suffix
from aotc.stages.types import OptimizedModel, SpecializedModel, VariantPlan

_COMPANION: Final = "vnni"


def may_saturate(target: Target) -> bool:
    """Whether a CPU of this kind may saturate where others do not."""
    return target.architecture == ARCHITECTURE and not exact_feature(target.isa)


def one_sign(plan: VariantPlan, target: Target) -> bool:
    """Whether a variant must not rely on the features of the CPU that it is built for."""
    if not plan.on_cpu_alone or target.architecture != ARCHITECTURE:
        return False
    return plan.isa == "baseline" or may_saturate(target)


def quantizes(capture: Capture) -> bool:
    """Whether a model has integer products, or ONNX Runtime may make some of it."""
    names = (name.rpartition("::") for name in capture.op_types)
    return may_hold_products((domain, op) for domain, _, op in names)


def read_operands(model: onnx.ModelProto, folder: Path) -> None:
    """Read what saturating products may multiply by into `model`; files are in `folder`."""
    for each in saturating(model):
        for constant in (each.weights, each.zero):
            if constant is not None and constant.tensor.data_location == onnx.TensorProto.EXTERNAL:
                load_external_data_for_tensor(constant.tensor, str(folder))
                constant.tensor.data_location = onnx.TensorProto.DEFAULT
                del constant.tensor.external_data[:]


def rewrite(model: onnx.ModelProto, folder: Path) -> tuple[tuple[PassRecord, ...], int]:
    """Give the products of `model` operands of one sign, where they might saturate.

    External data is in `folder`; weights that were rewritten are in the graph then.  Also returns
    the number of operands.
    """
    count = sum(each.mendable for each in saturating(_with_operands(model, folder)))
    if not count:
        return (), 0
    read_operands(model, folder)
    return run_passes(model, (SameSignWeights(),)), count


def left_saturating(model: onnx.ModelProto, folder: Path) -> list[str]:
    """Names of the nodes of `model` that may saturate all the same."""
    found = saturating(_with_operands(model, folder))
    return list(dict.fromkeys(each.node.name for each in found))


def _with_operands(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A copy that has the values by which products are judged; `model` keeps its external data."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    read_operands(copy, folder)
    return copy


def saturating_at_load(level: Optimization) -> list[str]:
    """The same of what a session at `level` makes of the graph that the working directory holds."""
    here = Path.cwd()
    folder = here / "loaded"
    folder.mkdir(exist_ok=True)
    write_optimized(here / MODEL, level, here, into=folder)
    return left_saturating(onnx.load(folder / MODEL, load_external_data=False), folder)


def companions(
    variants: Sequence[OptimizedModel], options: BuildOptions
) -> tuple[list[SpecializedModel], list[Finding]]:
    """For each variant whose products were rewritten, the same with them as they were.

    That is quicker, and needs VNNI: so it is made where the target is said to have it, and this
    host can prove it.  AOTC-O009 where there are too many variants.
    """
    feature = exact_feature(options.target.isa)
    found = [each for item in variants if (each := _companion(item)) is not None]
    if not feature or not found:
        return [], []
    if feature not in (options.host.isa or ()):
        why = f"this host lacks {feature}, and cannot prove it"
        return [], [left_out(each.plan, why) for each in found[:1]]
    known = {item.specialized.component for item in variants}
    found = [
        replace(each, component=f"{each.component}.{each.plan.spec}")
        if each.component in known
        else each
        for each in found
    ]
    most = options.profile.max_variants
    if len(variants) + len(found) > most:
        why = f"with them there were more than max_variants ({most})"
        return [], [left_out(each.plan, why) for each in found[:1]]
    names = {spec.name for spec in options.profile.variants}
    taken = [each for each in found if each.plan.spec in names]
    why = "a variant of the profile has this name"
    return [each for each in found if each not in taken], [left_out(e.plan, why) for e in taken[:1]]


def _companion(optimized: OptimizedModel) -> SpecializedModel | None:
    specialized = optimized.specialized
    plan = specialized.plan
    if plan.isa != "baseline" or not optimized.rewritten:
        return None
    spec = f"{plan.spec}-{_COMPANION}"
    name = f"{spec}.{suffix(plan.buckets)}" if plan.buckets else spec
    return replace(
        specialized,
        plan=replace(plan, name=name, spec=spec, isa="vnni"),
        component=f"{specialized.component}.{_COMPANION}",
    )


def left_out(plan: VariantPlan, why: str) -> Finding:
    """AOTC-O009: the quicker form is not in the artifact."""
    return Finding(code="AOTC-O009", what=why[:500], where=f"variant {plan.name}")
