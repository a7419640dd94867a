"""Variants whose integer products are exact on every CPU, and faster companions that need VNNI.

Functions of a graph run in the worker, functions of a variant in the build's own process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.base.records import record, replace
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.same_sign_weights import (
    ARCHITECTURE,
    PRODUCTS,
    SameSignWeights,
    count_products,
    exact_feature,
    may_have_products,
    saturating_operands,
)
from aotc.graph.view import every_graph, every_node
from aotc.pipeline.context import BuildContext
from aotc.pipeline.plan import bucket_suffix
from aotc.pipeline.types import OptimizedModel, SpecializedModel, VariantPlan
from aotc.session.inference import MODEL, write_optimized
from aotc.spec.manifest import Capture
from aotc.spec.payload import Finding
from aotc.spec.providers import MICROSOFT
from aotc.spec.target import Target
from aotc.spec.variant import (
    ComputedProducts,
    IntegerProducts,
    Operands,
    Optimization,
    PassRecord,
    ProductForm,
)

_COMPANION: Final = "vnni"
# Nodes that compute with quantized weights, and those that multiply by constants in floating point,
# in whatever domain.
_LOW: Final = frozenset({*PRODUCTS, (MICROSOFT, "MatMulNBits")})
_FLOAT: Final = frozenset(
    {"Conv", "ConvTranspose", "FusedConv", "FusedGemm", "FusedMatMul", "GRU", "Gemm", "LSTM"}
    | {"MatMul", "RNN"}
)
_MAX_NAMES: Final = 64
_BLOCKED: Final = "_nchwc"


def may_saturate(target: Target) -> bool:
    """Whether a CPU of this kind may saturate where others do not."""
    return target.architecture == ARCHITECTURE and not exact_feature(target.isa)


def needs_one_sign(plan: VariantPlan, target: Target) -> bool:
    """Whether a variant must not rely on the features of the CPU that it is built for."""
    if not multiplies_integers(plan, target):
        return False
    return plan.isa == "baseline" or may_saturate(target)


def has_integer_products(capture: Capture) -> bool:
    """Whether a model has integer products, or ONNX Runtime may make some from it."""
    names = (name.rpartition("::") for name in capture.op_types)
    return may_have_products((domain, op) for domain, _, op in names)


def multiplies_integers(plan: VariantPlan, target: Target) -> bool:
    """Whether integer products of the variant are the CPU's alone, of a kind that may saturate."""
    return plan.cpu_only and target.architecture == ARCHITECTURE


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


def _with_operands(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A copy with the values that decide about products; `model` keeps its external data."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    read_operands(copy, folder)
    return copy


@record
class LoadedProducts:
    """The products of a loaded graph.

    `operands` counts integer products of each kind, `saturating` are the names of those whose sums
    may saturate, and `dequantized` quantized weights that are made float in each call.
    """

    operands: dict[Operands, int]
    saturating: list[str]
    computed: ComputedProducts
    dequantized: list[str]


def products_at_load(level: Optimization) -> LoadedProducts:
    """The products of the graph in the working directory, once a session at `level` loaded it."""
    folder = here = Path.cwd()
    if level != "disable":
        folder = here / "loaded"
        folder.mkdir(exist_ok=True)
        write_optimized(here / MODEL, level, here, into=folder)
    model = onnx.load(folder / MODEL, load_external_data=False)
    read_operands(model, folder)
    nodes = [operand.node.name for operand in saturating_operands(model)]
    before = onnx.load(here / MODEL, load_external_data=False)
    for node in every_node(model):
        # ONNX Runtime names convolutions in blocks of channels after what they make.
        value = node.name.removesuffix(_BLOCKED)
        if value != node.name:
            names = (each.name for each in every_node(before) if value in each.output)
            node.name = next(names, node.name)
    computed, dequantized = computed_products(model)
    return LoadedProducts(
        operands=dict(sorted(count_products(model).items())),
        saturating=list(dict.fromkeys(nodes)),
        computed=computed,
        dequantized=dequantized,
    )


def computed_products(model: onnx.ModelProto) -> tuple[ComputedProducts, list[str]]:
    """How the products with constant weights of a graph compute, in its bodies too.

    And the quantized weights that those in floating point read through DequantizeLinear.
    """
    constants = {tensor.name for graph in every_graph(model) for tensor in graph.initializer}
    unpacked = {
        node.output[0]: node.input[0]
        for node in every_node(model)
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }
    quantized, names, dequantized = 0, [], dict[str, None]()
    for node in every_node(model):
        if (node.domain, node.op_type) in _LOW:
            quantized += 1
        elif node.op_type in _FLOAT and len(node.input) > 1:
            weights = node.input[1]
            if weights in unpacked:
                dequantized[unpacked[weights]] = None
            if weights in unpacked or weights in constants:
                names.append(node.name)
    named = tuple(names[:_MAX_NAMES])
    found = ComputedProducts(quantized=quantized, in_float=len(names), names=named)
    return found, list(dequantized)


def products_of(optimized: OptimizedModel, context: BuildContext) -> IntegerProducts | None:
    """Which form of its integer products a variant has, and the feature that it requires.

    None for a model without any, for other providers, and on CPUs of another architecture.
    """
    products = optimized.products
    if products is None:
        return None
    feature = exact_feature(context.target.isa)
    form: ProductForm = "not-fused"
    if products.get("saturating-signs"):
        # Without the feature, they are proven for CPUs like this one.
        form = "feature" if feature else "same-cpu"
    elif optimized.rewritten:
        form = "rewritten"
    elif products.get("seven-bits"):
        form = "seven-bits"
    elif products:
        form = "exact-signs"
    return IntegerProducts(
        form=form, feature=feature if form == "feature" else "", products=products
    )


def product_findings(rewritten: int, saturating: Sequence[str], plan: VariantPlan) -> list[Finding]:
    """AOTC-O008 if integer products were rewritten, AOTC-N010 if some still saturate."""
    found, where = [], f"variant {plan.name}"
    if count := rewritten:
        what = (
            f"the weights of {count} integer product{'s' * (count > 1)} are written in the sign of "
            "the activations, which is exact: as they were, sums saturate on CPUs without VNNI"
        )
        found.append(Finding(code="AOTC-O008", what=what, where=where))
    if saturating:
        what = saturation_text(saturating)
        found.append(Finding(code="AOTC-N010", what=what, where=where))
    return found


def saturation_text(nodes: Sequence[str]) -> str:
    """Which products may saturate, in words."""
    named = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
    products = f"{len(nodes)} integer product{'s' * (len(nodes) > 1)}"
    return f"{products} may saturate on CPUs without VNNI ({named})"


def companion_variants(
    variants: Sequence[OptimizedModel], context: BuildContext
) -> tuple[list[SpecializedModel], list[Finding]]:
    """For each variant with rewritten products, a companion with the original ones.

    It is faster and needs VNNI, so it is built if the target has that feature and this host can
    prove it.  Returns AOTC-O009 for what is left out, for example if there are too many variants.
    """
    feature = exact_feature(context.target.isa)
    found = [made for item in variants if (made := _companion(item)) is not None]
    if not feature or not found or context.profile.vnni_variants == "none":
        return [], []
    if feature not in (context.host.isa or ()):
        why = f"this host lacks {feature}, and cannot prove it"
        return [], [companion_left_out(companion.plan, why) for companion in found[:1]]
    known = {item.specialized.component for item in variants}
    found = [
        replace(companion, component=f"{companion.component}.{companion.plan.spec}")
        if companion.component in known
        else companion
        for companion in found
    ]
    maximum = context.profile.max_variants
    if len(variants) + len(found) > maximum:
        why = f"with them there were more than max_variants ({maximum})"
        return [], [companion_left_out(companion.plan, why) for companion in found[:1]]
    names = {spec.name for spec in context.profile.variants}
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


def is_companion(plan: VariantPlan, of: VariantPlan) -> bool:
    """Whether `plan` is the quicker companion of the portable variant `of`."""
    same_sizes = plan.isa == "vnni" and plan.buckets == of.buckets
    return same_sizes and of.isa == "baseline" and plan.spec == f"{of.spec}-{_COMPANION}"


def companion_left_out(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O009: the faster companion is not in the artifact."""
    return Finding(code="AOTC-O009", what=why[:500], where=f"variant {plan.name}")
