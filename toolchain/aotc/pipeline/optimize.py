"""Optimize: ONNX Runtime's offline optimizer, in a new process under canonical file names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, Literal

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph.passes.after_optimizer import (
    DropInsertedCasts,
    TransposeWeights,
    has_inserted_casts,
    products_with_weights,
    types_agree,
)
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.convert_opset import ConvertOpset, choose_opset, opset_of
from aotc.graph.passes.on_import import NameNodes, StripMetadata
from aotc.graph.passes.same_sign_weights import may_have_products
from aotc.graph.symbols import free_dims
from aotc.graph.view import every_node, has_subgraphs, shape_nodes
from aotc.graph.weights import (
    EXTERNAL_BYTES,
    digests,
    external_tensors,
    externalize,
    gather_tensors,
    remove_shared,
)
from aotc.pipeline.context import BuildContext, BuildState, requested_backend
from aotc.pipeline.half import BEFORE, half_request, read_tensor, to_half
from aotc.pipeline.integer_products import (
    companion_left_out,
    companion_variants,
    has_integer_products,
    multiplies_integers,
    needs_one_sign,
    product_findings,
    products_at_load,
    rewrite_products,
    saturation_text,
)
from aotc.pipeline.integers import is_quantizing, quantize
from aotc.pipeline.plan import require_kept_nodes
from aotc.pipeline.specialize import isa_name, specialize
from aotc.pipeline.types import (
    AnalyzedModel,
    OptimizedModel,
    SourceModel,
    SpecializedModel,
    VariantPlan,
)
from aotc.precision.half_conversion import HALF_TYPES
from aotc.providers.base import Backend, Claims
from aotc.providers.named_backends import backend_of
from aotc.session.inference import (
    DATA,
    MODEL,
    SHAPES_ALONE,
    SPOILS_QUANTIZED,
    write_optimized,
)
from aotc.session.sessions import create_session
from aotc.session.worker_pool import Workers
from aotc.sizes.search import stated_dim
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.providers import CPU
from aotc.spec.shapes import DimRange, Domain
from aotc.spec.variant import ComputedProducts, Optimization, PassRecord, SessionSpec

# Above this size, two optimizers at once would double the memory of a build.
_LARGE_BYTES = 1 << 30
FUSED: Final = "fused.onnx"
# What is left in float32 may part others from what made their fusion possible.
_FUSION_ROUNDS: Final = 3
# A crash of the library, its time limit and its memory limit.
_SANDBOX: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-I015"})
LowerLevel = Literal["extended", "basic", "disable"]
# EXTENDED omits the layout step, which depends on the CPU of the build host.
_WRITTEN: Final[Mapping[str, Optimization]] = {
    "baseline": "extended",
    "vnni": "extended",
    "host": "all",
}
# A portable variant takes the layout step at load; the host's variant already contains it.
_LOADED: Final[Mapping[str, Optimization]] = {"baseline": "all", "vnni": "all", "host": "disable"}
# The next level to try when a variant computes wrongly.
_LOWER: Final[Mapping[str, LowerLevel]] = {
    "auto": "extended",
    "extended": "basic",
    "basic": "disable",
}


def optimize_ahead(
    source: SourceModel, plans: Sequence[VariantPlan], state: BuildState
) -> dict[str, Future[Json]]:
    """Start the optimizer on the imported graph while the model is analyzed; results by variant.

    Only if no size is stated, because the analysis then does not change the graph, and only for
    models of which several copies fit into memory.
    """
    fixed = any(spec.is_fixed() for spec in state.context.profile.dims.values())
    if fixed or _is_large(source):
        return {}
    submit = state.workers.submit
    # For other providers another opset may be chosen first; half precision wants the references.
    dynamic = [
        plan
        for plan in plans
        if not (plan.buckets or plan.precision in HALF_TYPES or is_quantizing(plan))
        and plan.cpu_only
    ]
    return {
        plan.name: submit(_run_optimizer, InputGraph.of_source(source), plan, state)
        for plan in dynamic
    }


def fuse_ahead(
    source: SourceModel,
    ranges: Mapping[str, DimRange],
    plans: Sequence[VariantPlan],
    state: BuildState,
) -> list[Future[None]]:
    """Start to fuse while the model is analyzed, where all sizes are stated; `fuse` finds it done.

    `ranges` are what the profile states of its dims.
    """
    dims = free_dims(source.symbols.inputs())
    wanted = [plan for plan in plans if may_fuse(plan, state.context)]
    known = all(name in ranges and ranges[name].bounded for name in dims)
    if not wanted or not known or source.symbols.relations:
        return []
    analyzed = AnalyzedModel(
        source=source,
        ranges=ranges,
        domain=Domain(dims={name: stated_dim(ranges[name]) for name in dims}),
        references=(),
        activation_bytes=None,
        shapes=(),
        padding=None,
        findings=(),
    )
    specialized = [specialize(analyzed, plan, state.context) for plan in wanted]

    def fuse_each() -> None:
        for each in specialized:
            fuse(each, state)

    return [state.workers.submit(fuse_each)]


def optimize(
    variants: Sequence[SpecializedModel],
    state: BuildState,
    ahead: Mapping[str, Future[Json]],
) -> tuple[list[OptimizedModel], list[Finding]]:
    """Each variant, fused and at the opset as suits its provider; and faster companions.

    `ahead` are runs of the optimizer that were started earlier, by variant.  Raises AOTC-O001,
    O011, N015 to N017, and I013 to I015 from the sandbox.
    """
    if variants:
        require_kept_nodes(variants[0].analyzed.source, [variant.plan for variant in variants])
    # Patterns are those of the model's own opset; what they become exists in any.
    fused = [fuse(variant, state) for variant in variants]
    converted = [convert_opset(variant, state) for variant, _ in fused]
    quantized = [quantize(variant, state) for variant, _ in converted]
    optimized = _optimize_all([variant for variant, _ in quantized], state, ahead)
    unfused: dict[str, tuple[str, ...]] = {}
    for number in range(_FUSION_ROUNDS):
        found = {item.plan.name: item.dequantized for item in optimized if item.dequantized}
        if not found:
            break
        for name, weights in found.items():
            unfused[name] = (*unfused.get(name, ()), *weights)
        # In float32 in any case, their weights are better left so.
        below = state.below(f"fused-{number}")
        quantized = [
            quantize(variant, below, unfused) if variant.plan.name in found else done
            for (variant, _), done in zip(converted, quantized, strict=True)
        ]
        optimized = _optimize_all([variant for variant, _ in quantized], below, {})
    findings = [finding for _, noticed in (*fused, *converted, *quantized) for finding in noticed]
    quicker, without_quicker = companion_variants(optimized, state.context)
    try:
        optimized += _optimize_all(quicker, state, {})
    except AotcError as error:
        without_quicker = [companion_left_out(quicker[0].plan, f"{error.code} {error.what}")]
    findings += [*without_quicker, *(finding for item in optimized for finding in item.findings)]
    return optimized, findings


def _optimize(
    specialized: SpecializedModel,
    state: BuildState,
    ahead: Future[Json] | None = None,
    base: OptimizedModel | None = None,
) -> OptimizedModel:
    """Run the optimizer at the variant's level; weights are written to one external file.

    `ahead` is a run that was started earlier.  Tensors that `base` has as well are not stored.
    """
    half = half_request(specialized, state)
    at_level = partial(
        _run_at_level,
        InputGraph.of(specialized),
        state=state,
        base=base,
        half=half.request,
    )
    value, plan, findings = at_level(half.plan, ahead=ahead)
    findings = [*half.findings, *findings]
    if value["saturating"] and plan.may_lower_level and plan.optimization == "auto":
        # Without fusion only the products of the model itself remain.
        lower_value, lower_plan, lower_findings = at_level(replace(plan, optimization="basic"))
        if lower_value["saturating"]:
            value, plan, findings = at_level(plan)
        else:
            why = saturation_text(value["saturating"])
            what = f"level {written_level(plan)}: {why}; basic is taken"
            lower_findings.append(
                Finding(code="AOTC-O003", what=what[:300], where=f"variant {plan.name}")
            )
            value, plan, findings = lower_value, lower_plan, lower_findings
    component = specialized.component
    if value["saturating"]:
        # ORT selects the component `model` without looking at the CPU.
        component = f"{component}.{isa_name(state.context.target)}"
    specialized = replace(specialized, plan=plan, component=component)
    findings += product_findings(value["rewritten"], value["saturating"], plan)
    folder = _folder(plan, state)
    return OptimizedModel(
        specialized=specialized,
        graph=folder / MODEL,
        data=folder / DATA,
        tensors=tuple(_tensor_names(value, plan, base)),
        nodes=tuple((name, op) for name, op in value["nodes"]),
        shape_nodes=(value["shape_nodes_before"], value["shape_nodes"]),
        findings=(*findings, *(decode(Finding, item) for item in value["findings"])),
        passes=(*specialized.passes, *(decode(PassRecord, item) for item in value["passes"])),
        rewritten=bool(value["rewritten"]),
        saturating=tuple(value["saturating"]),
        products=value["products"],
        computed=None if value["computed"] is None else decode(ComputedProducts, value["computed"]),
        dequantized=tuple(value["dequantized"]),
    )


def _run_at_level(
    given: InputGraph,
    plan: VariantPlan,
    *,
    state: BuildState,
    ahead: Future[Json] | None = None,
    base: OptimizedModel | None = None,
    half: Json | None = None,
) -> tuple[Json, VariantPlan, list[Finding]]:
    """Run the optimizer at the variant's level, or at a lower one if it fails there."""
    findings: list[Finding] = []
    while True:
        try:
            if ahead is not None and given.is_source:
                return ahead.result(), plan, findings
            return _run_optimizer(given, plan, state, base, half), plan, findings
        except AotcError as error:
            if error.code != "AOTC-O001":
                raise
            if not (given.is_source or given.quantized):
                # Fixed sizes can contradict a branch that is never taken.
                findings.append(Finding(code="AOTC-O004", what=error.found[:300], where=plan.name))
                given = InputGraph.of_source(given.source)
                continue
            level = lower_level(plan) if plan.may_lower_level else None
            if level is None:
                raise
            what = f"level {written_level(plan)}: {error.found}; level {level} is taken"
            findings.append(
                Finding(code="AOTC-O003", what=what[:500], where=f"variant {plan.name}")
            )
            plan, ahead = replace(plan, optimization=level), None


def _tensor_names(value: Json, plan: VariantPlan, base: OptimizedModel | None) -> Iterator[str]:
    """A name for each tensor's content: that of its twin, else its digest, else its position."""
    for index, (twin, digest) in enumerate(zip(value["twins"], value["tensors"], strict=True)):
        if base is not None and twin is not None:
            yield base.tensors[twin]
        else:
            yield digest or f"{plan.name} {index}"


def _optimize_all(
    variants: Sequence[SpecializedModel],
    state: BuildState,
    ahead: Mapping[str, Future[Json]],
) -> list[OptimizedModel]:
    """All variants, in parallel if memory allows, as the optimizer runs on one core.

    The first of each of the profile's variants comes first: the others store only what it lacks.
    """
    large = bool(variants) and _is_large(variants[0].analyzed.source)
    run_jobs = partial(_run_jobs, workers=None if large else state.workers)
    first: dict[str, SpecializedModel] = {}
    for item in variants:
        first.setdefault(item.plan.spec, item)
    done = run_jobs(
        [partial(_optimize, item, state, ahead.get(item.plan.name)) for item in first.values()]
    )
    bases = dict(zip(first, done, strict=True))
    others = [item for item in variants if item is not first[item.plan.spec]]
    rest = run_jobs(
        [partial(_optimize, item, state, None, bases[item.plan.spec]) for item in others]
    )
    by_name = {item.plan.name: item for item in (*done, *rest)}
    return [by_name[item.plan.name] for item in variants]


def _run_jobs(
    jobs: Sequence[Callable[[], OptimizedModel]], workers: Workers | None
) -> list[OptimizedModel]:
    if workers is None:
        return [job() for job in jobs]
    running = [workers.submit(job) for job in jobs]
    return [job.result() for job in running]


def _is_large(source: SourceModel) -> bool:
    return source.capture.initializer_bytes >= _LARGE_BYTES


def _folder(plan: VariantPlan, state: BuildState) -> Path:
    return state.work / f"optimize-{plan.name}"


def _run_optimizer(
    given: InputGraph,
    plan: VariantPlan,
    state: BuildState,
    base: OptimizedModel | None = None,
    half: Json | None = None,
) -> Json:
    context = state.context
    return state.workers.run(
        "aotc.pipeline.optimize:optimize_job",
        {
            "graph": str(given.graph),
            "imported": str(given.source.graph),
            "weights": str(given.weights),
            # Other providers know ONNX's operators, not those that ONNX Runtime fuses for its CPU.
            "level": written_level(plan),
            "load_level": load_level(plan),
            "cpu_only": plan.cpu_only,
            "multiplies_integers": (
                integers := given.has_products and multiplies_integers(plan, context.target)
            ),
            "quantized": given.quantized and plan.cpu_only,
            "needs_one_sign": integers and needs_one_sign(plan, context.target),
            # What is packed would be the float32 weights, which are not stored.
            "prepack": plan.prepack == "saved" and half is None,
            # A quantized variant may get a companion.
            "digests": base is not None or len(context.profile.variants) > 1 or given.has_products,
            "base": [str(base.graph), str(base.data)] if base is not None else None,
            "half": half,
            "transpose": may_fuse(plan, context) and plan.precision == "tf32",
        },
        folder=_folder(plan, state),
        where=f"variant {plan.name}",
    ).value


def optimize_job(request: Json) -> Json:
    """In the worker: optimize the graph, name its nodes, and strip what ORT added."""
    graph = Path(request["graph"])
    source = onnx.load(graph, load_external_data=False)
    records: tuple[PassRecord, ...] = ()
    nodes_before = len(source.graph.node)
    shape_nodes_before = len(shape_nodes(onnx.load(request["imported"], load_external_data=False)))
    findings: list[Finding] = []
    wanted: Optimization = request["level"]
    rewritten = 0
    # Written graphs with control flow do not always load again (SSA broken by fusions).
    # None: the imported graph is kept, and optimized at load if the level says so.
    careful = any(has_subgraphs(node) for node in every_node(source))
    levels: tuple[Optimization | None, ...] = (wanted, "basic", None) if careful else (wanted, None)
    quantized = any(node.op_type == "DequantizeLinear" for node in every_node(source))
    without = SPOILS_QUANTIZED if quantized else ()
    for level in levels:
        if level in (None, "disable"):
            model = source
            gather_tensors(model, Path(request["weights"]), Path(DATA))
        else:
            write_optimized(
                graph,
                level,
                Path(request["weights"]),
                prepack=request["prepack"],
                without=without,
            )
            model = onnx.load(MODEL, load_external_data=False)
        record = PassRecord(
            name="onnxruntime-optimizer",
            options={
                "level": level or "none",
                "external_bytes": EXTERNAL_BYTES,
                **({"without": list(without)} if without and level else {}),
            },
            nodes_before=nodes_before,
            nodes_after=len(model.graph.node),
        )
        records = (record,)
        if not request["cpu_only"] and has_inserted_casts(model):
            records += run_passes(model, (DropInsertedCasts(),))
            if not types_agree(model, source):
                complaint = "ONNX Runtime's casts cannot be distinguished from the model's"
                findings.append(Finding(code="AOTC-O003", what=f"level {level}: {complaint}"))
                continue
        records += run_passes(model, (StripMetadata(), NameNodes()))
        if request["needs_one_sign"]:
            changes, rewritten = rewrite_products(model, Path())
            records += changes
            if rewritten:
                write_weights(model)
        if request["transpose"] and (products := products_with_weights(model)):
            (change,) = run_passes(model, (TransposeWeights(read=read_tensor),))
            records += (replace(change, matched={"products": len(products)}),)
            write_weights(model)
        if request["half"]:
            full = model.SerializeToString(deterministic=True)
            # Quantized forms may differ in their weights alone.
            made_of = f"{level} {request['weights']} ".encode() + graph.read_bytes()
            change, noticed = to_half(model, request["half"], made_of)
            records += (change,)
            findings += noticed
            write_weights(model)
            # Trials with other nodes in float32 start from it.
            (Path(BEFORE) / MODEL).write_bytes(full)
        Path(MODEL).write_bytes(model.SerializeToString(deterministic=True))
        if not careful:
            break
        if not (complaint := does_not_load(in_half=bool(request["half"]))):
            break
        findings.append(Finding(code="AOTC-O003", what=f"level {level}: {complaint}"[:300]))
    multiplies: bool = request["multiplies_integers"]
    looks = multiplies or request["quantized"]
    at_load = products_at_load(request["load_level"]) if looks else None
    twins: list[int | None] = [None] * sum(1 for _ in external_tensors(model))
    if request["base"]:
        base, base_data = (Path(path) for path in request["base"])
        twins = remove_shared(
            model, Path(DATA), onnx.load(base, load_external_data=False), base_data
        )
        Path(MODEL).write_bytes(model.SerializeToString(deterministic=True))
    wanted_digests = [request["digests"] and twin is None for twin in twins]
    return {
        "rewritten": rewritten,
        "saturating": at_load.saturating if at_load and request["needs_one_sign"] else [],
        "products": at_load.operands if at_load and multiplies else None,
        "computed": encode(at_load.computed) if at_load else None,
        "dequantized": at_load.dequantized if at_load and request["quantized"] else [],
        "tensors": digests(model, Path(DATA), wanted_digests),
        "twins": twins,
        "shape_nodes_before": shape_nodes_before,
        "shape_nodes": len(shape_nodes(model)),
        "passes": [encode(item) for item in records],
        "findings": [encode(item) for item in findings],
        "nodes": [
            [node.name, f"{node.domain}::{node.op_type}" if node.domain else node.op_type]
            for node in every_node(model)
        ],
    }


@record(kw_only=False)
class InputGraph:
    """A graph, the folder of its external data, and whether it may have integer products."""

    source: SourceModel
    graph: Path
    weights: Path
    has_products: bool
    quantized: bool = False

    @classmethod
    def of_source(cls, source: SourceModel) -> InputGraph:
        """The graph as imported."""
        products = has_integer_products(source.capture)
        return cls(source, source.graph, source.weights, products)

    @classmethod
    def of(cls, specialized: SpecializedModel) -> InputGraph:
        """That of a variant."""
        source = specialized.analyzed.source
        products = has_integer_products(source.capture)
        if specialized.quantized:
            model = onnx.load(specialized.graph, load_external_data=False)
            products = may_have_products((node.domain, node.op_type) for node in every_node(model))
        return cls(source, specialized.graph, specialized.weights, products, specialized.quantized)

    @property
    def is_source(self) -> bool:
        """Whether it is the graph as imported."""
        return self.graph == self.source.graph


def write_weights(model: onnx.ModelProto) -> None:
    """Write the external data of a changed graph again."""
    before = Path(BEFORE)
    before.mkdir(exist_ok=True)
    if Path(DATA).exists():
        Path(DATA).replace(before / DATA)
    gather_tensors(model, before, Path(DATA))
    externalize(model, Path(), DATA)


def does_not_load(*, in_half: bool) -> str:
    """Why ONNX Runtime does not load the written graph; empty if it does.

    Some kernels want constants, which weights in half precision are once their casts are folded.
    """
    try:
        create_session(
            Path(MODEL).read_bytes(),
            SessionSpec(optimization="basic" if in_half else "disable"),
            providers=[CPU],
            weights_folder=Path(),
        )
    except AotcError as error:
        return error.found
    return ""


# Fusion into operators that the first provider alone has fast kernels for.


def fuse(
    specialized: SpecializedModel, state: BuildState
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` with what its first provider fuses.

    What cannot be made, or does not load, is left as it is, with AOTC-O012.  Raises AOTC-O011 if
    the library of the rules is not installed.
    """
    plan, source = specialized.plan, specialized.analyzed.source
    if not may_fuse(plan, state.context):
        return specialized, ()
    request = {
        "graph": str(specialized.graph),
        "weights": str(source.weights),
        "backend": plan.providers[0],
        "plugins": state.context.plugins(),
    }
    # Other forms of the variant, and the one in `keep` beside it, begin with the same graph.
    asked = hashlib.sha256(json.dumps(request).encode() + specialized.graph.read_bytes())
    folder = state.shared / f"fuse-{asked.hexdigest()[:16]}"
    try:
        value = state.workers.run_once(
            "aotc.pipeline.optimize:fusion_job",
            request,
            folder=folder,
            where=f"variant {plan.name}",
        ).value
    except AotcError as error:
        if error.code not in _SANDBOX:
            raise
        return specialized, (_not_fused(plan, error.line()),)
    if value["why_not"]:
        return specialized, (_not_fused(plan, value["why_not"]),)
    if not value["passes"]:
        return specialized, ()
    records = tuple(decode(PassRecord, item) for item in value["passes"])
    return (
        replace(specialized, graph=folder / FUSED, passes=(*specialized.passes, *records)),
        (),
    )


def may_fuse(plan: VariantPlan, context: BuildContext) -> bool:
    """Whether the variant's graph may be fused for its first provider."""
    first = backend_of(plan.providers[0], context.profile.plugins)
    return first.fuses(plan.cuda) and plan.optimization != "disable"


def _not_fused(plan: VariantPlan, why: str) -> Finding:
    """The finding AOTC-O012: the variant's graph is not fused."""
    return Finding(code="AOTC-O012", what=why[:500], where=f"variant {plan.name}")


def fusion_job(request: Json) -> Json:
    """In the worker: write the fused graph; no passes if nothing was found."""
    model = onnx.load(request["graph"], load_external_data=False)
    backend = requested_backend(request)
    weights = Path(request["weights"])
    try:
        fused, records = backend.fuse(model, weights)
    except AotcError:
        raise
    except Exception as error:
        # Rules of another project, on any graph.
        return {"passes": [], "why_not": f"a rule failed: {type(error).__name__}: {error}"[:300]}
    if not records:
        return {"passes": [], "why_not": ""}
    records += run_passes(fused, (NameNodes(),))
    Path(FUSED).write_bytes(fused.SerializeToString(deterministic=True))
    why_not = _without_kernel(model, fused, backend) or _does_not_load(fused, weights)
    return {"passes": [encode(item) for item in records], "why_not": why_not}


def _without_kernel(model: onnx.ModelProto, fused: onnx.ModelProto, backend: Backend) -> str:
    """What of the fused graph, and not of the model, would be left to the CPU."""
    before, after = backend.predict(model), backend.predict(fused)
    if before is None or after is None:
        return ""
    known = {refusal.node for refusal in before.refusals}
    new = [refusal for refusal in after.refusals if refusal.node not in known]
    return f"{backend.name} has no kernel: {new[0].node}: {new[0].reason}" if new else ""


def _does_not_load(fused: onnx.ModelProto, weights: Path) -> str:
    """Why ONNX Runtime does not load the fused graph; empty if it does."""
    try:
        create_session(
            fused.SerializeToString(),
            SHAPES_ALONE,
            providers=[CPU],
            weights_folder=weights,
        )
    except AotcError as error:
        return f"the fused graph does not load: {error.found}"
    return ""


# Levels of ONNX Runtime's optimizer: that of a variant's written graph, and that of its load.


def written_level(plan: VariantPlan) -> Optimization:
    """The level of the written graph; other providers do not know fused operators."""
    if not plan.cpu_only:
        return "disable" if plan.optimization == "disable" else "basic"
    return _WRITTEN[plan.isa] if plan.optimization == "auto" else plan.optimization


def load_level(plan: VariantPlan) -> Optimization:
    """The level at which a CPU-only session of the variant is created.

    Where weights are stored in half precision, BASIC folds the casts that make them float32.
    """
    if plan.isa == "host" and plan.optimization == "auto" and plan.precision in HALF_TYPES:
        return "basic"
    return _LOADED[plan.isa] if plan.optimization == "auto" else plan.optimization


def lower_level(plan: VariantPlan) -> LowerLevel | None:
    """The next level below the variant's; None if there is none."""
    return _LOWER.get(plan.optimization)


# The operator set that a variant's providers have kernels for, if the model's lacks some.


def convert_opset(
    specialized: SpecializedModel, state: BuildState
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` at the opset at which its first provider refuses the fewest nodes.

    Only providers whose kernels are known in advance are asked; the graph is unchanged if the
    model's own opset is as good as any, or the profile says `opset: keep`.
    """
    plan = specialized.plan
    if state.context.profile.opset == "keep" or plan.cpu_only:
        return specialized, ()
    folder = state.work / f"opset-{plan.name}"
    value = state.workers.run(
        "aotc.pipeline.optimize:opset_job",
        {
            "graph": str(specialized.graph),
            "backend": plan.providers[0],
            "plugins": state.context.plugins(),
        },
        folder=folder,
        where=f"variant {plan.name}",
    ).value
    if value is None:
        return specialized, ()
    finding = Finding(
        code="AOTC-O005",
        what=f"opset {value['from']} was converted to {value['to']}: {plan.providers[0]} refuses "
        f"{value['refused_before']} nodes at the one and {value['refused_after']} at the other",
        where=f"variant {plan.name}",
    )
    records = tuple(decode(PassRecord, record) for record in value["passes"])
    converted = replace(
        specialized, graph=folder / "converted.onnx", passes=(*specialized.passes, *records)
    )
    return converted, (finding,)


def opset_job(request: Json) -> Json:
    """In the worker: choose the opset, convert and write the graph; None if nothing is gained."""
    backend = requested_backend(request)
    model = onnx.load(request["graph"], load_external_data=False)
    before = backend.predict(model)
    if before is None or not before.refusals:
        return None

    def refused(candidate: onnx.ModelProto) -> int:
        claims: Claims | None = backend.predict(candidate)
        return len(claims.refusals) if claims is not None else 0

    wanted = choose_opset(model, refused)
    if wanted is None:
        return None
    own = opset_of(model)
    records = run_passes(model, (ConvertOpset(to=wanted), NameNodes()))
    Path("converted.onnx").write_bytes(model.SerializeToString(deterministic=True))
    return {
        "from": own,
        "to": wanted,
        "refused_before": len(before.refusals),
        "refused_after": refused(model),
        "passes": [encode(record) for record in records],
    }
