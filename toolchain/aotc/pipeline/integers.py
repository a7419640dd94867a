"""A variant in integers: its form, its prepared and quantized graph, and its references."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np
import onnx

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.convert_opset import LOWEST, ConvertOpset, obstacles, opset_of
from aotc.graph.passes.on_import import NameNodes, StripMetadata
from aotc.graph.view import covered_nodes, every_node, standing_for
from aotc.graph.weights import externalize, gather_tensors
from aotc.pipeline.calibration import calibration_samples, observed_ranges, require_calibration
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.integer_products import needs_one_sign
from aotc.pipeline.plan import OBSERVING, form_of, is_built_here, observes, unpadded_runs
from aotc.pipeline.types import AnalyzedModel, ReferenceRun, SpecializedModel, VariantPlan
from aotc.precision.blame_search import limit_ratio
from aotc.precision.half_conversion import HALF_TYPES, lift_constants
from aotc.precision.kernel_rates import rates_of
from aotc.precision.quantize import (
    Blocks,
    Quantize,
    Scheme,
    fold_factors,
    placeholder_names,
    written_nodes,
)
from aotc.precision.quantized_nodes import (
    BY_FORM,
    CARRIERS,
    ISLAND,
    NOT_OBSERVED,
    PROFILE,
    Choice,
    Observed,
    QuantizedShare,
    Weighs,
    choose,
    observable,
    quantized_share,
)
from aotc.precision.smoothing import Smooth, smoothable
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.session.inference import DATA, MODEL, SPOILS_QUANTIZED, with_types, write_optimized
from aotc.session.parity import compare
from aotc.session.sessions import create_session, run
from aotc.session.worker import REQUEST
from aotc.sizes.inputs.fixtures import SEARCHED, STATED
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.precision import (
    AccuracyLevel,
    BlockSettings,
    BlockSize,
    Goal,
    ParitySpec,
    QuantizationSpec,
    QuantizedForm,
    TableBits,
    Tolerance,
    WantedPrecision,
    matching_names,
)
from aotc.spec.profile import Profile
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.shapes import REPEATED
from aotc.spec.variant import CLIPPED, PassRecord, SessionSpec

QUANTIZED: Final = frozenset({"int8", "int4"})
_FOLDER: Final = "prepared"
_FEW_BITS: Final = 4
_MADE_OF: Final = re.compile(r"(_smoothed|_along_\d|_quantized)+$")
# Block size, symmetric, accuracy level, the most exact first.  Larger blocks are quicker.  In
# float32, 8 bits are slow, and 4 are quick on some CPUs.
_TRIED_BLOCKS: Final[Mapping[str, tuple[tuple[BlockSize, bool, AccuracyLevel], ...]]] = {
    "int8": ((32, True, 4), (128, True, 4)),
    "int4": ((16, False, 4), (32, False, 4), (32, True, 4), (128, True, 4), (32, True, 0)),
}
_OF_OTHERS: Final[tuple[tuple[BlockSize, bool, AccuracyLevel], ...]] = ((32, True, 0),)
# The largest block of 4 bits that CUDA multiplies with one row; of 8 bits it takes all.
_CUDA_4_BITS: Final = 128
# What makes a form more exact: no error is told apart that is not so much smaller.
_SMOOTH: Final = "smooth"
_CLIP: Final = "clip"
_MUCH_BETTER: Final = 0.9
# What of a request decides what of them is taken.
_DECIDING: Final = ("form", "quantization", "reduce_range", "method", "samples", "kept")
# The methods with which the range of a smoothed value follows from those of its channels.
_SMOOTHED: Final = ("auto", "minmax")
# In the prepared graph: why it is not at a later opset, if that is to be told.
_NOT_RAISED: Final = "aotc.not-raised"
# The first operator set in which scales may have an axis, and those with the operators of a form.
_AXIS_OPSET: Final = LOWEST
_FIRST: Final = {"static": 10, "dynamic": 11, "mixed": 11}
# The first version of the format in which initializers need be no inputs.
_IR_VERSION: Final = 4
# How many runs of both graphs are compared, and how many nodes are told of.
_MAX_RUNS: Final = 2
_MAX_TOLD: Final = 2
_KEPT_OPSET: Final = "the profile says 'opset: keep'"
# Of operators in a refusal.
_MAX_LISTED: Final = 12
# How many samples are compared as they are; each is one more run of every such variant.
_MAX_SAMPLES: Final = 8


def is_quantizing(plan: VariantPlan) -> bool:
    """Whether the plan asks for a quantized graph."""
    return plan.precision in QUANTIZED


def quantize(
    specialized: SpecializedModel,
    state: BuildState,
    unfused: Mapping[str, Sequence[str]] | None = None,
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` with a quantized graph and weights of its own, if its precision asks for it.

    `unfused` are by variant quantized weights that ONNX Runtime made float32 in each call: their
    products stay in float32.

    A model that is quantized or in half precision, and one without float32 weights, is left as it
    is, with AOTC-N014.  Raises AOTC-N015 (nothing can be quantized), N017 (the profile's statements
    do not fit), O016, and what the calibration raises.
    """
    plan = specialized.plan
    if not is_quantizing(plan):
        return specialized, ()
    where = f"variant {plan.name}"
    if why := _why_left(specialized):
        what = f"precision {plan.precision}: {why}, and is left unchanged"
        finding = Finding(code="AOTC-N014", what=what, where=where)
        return replace(specialized, plan=replace(plan, precision="keep")), (finding,)
    state.announce(f"quantize, {where}")
    folder = state.work / f"quantize-{plan.name}"
    value = state.workers.run(
        "aotc.pipeline.integers:quantize_job",
        {
            **quantize_request(specialized, state),
            "unfused": list((unfused or {}).get(plan.name, ())),
        },
        folder=folder,
        where=where,
    ).value
    records = [decode(PassRecord, each) for each in value["records"]]
    made = replace(
        specialized,
        graph=folder / "quantized.onnx",
        own_weights=folder,
        quantized=True,
        passes=(*specialized.passes, *records),
    )
    own, used, not_raised = value["opset"]
    form = str(records[-1].options["form"])
    source = onnx.load(specialized.analyzed.source.graph, load_external_data=False)
    share = quantized_share(records[-1], source, plan.quantization.operators)
    return made, (
        *_opset_finding(own, used, form, not_raised, where),
        *record_findings(records[-1], where),
        *share_finding(share, plan.precision, form, where),
    )


def record_findings(record: PassRecord, where: str) -> tuple[Finding, ...]:
    """AOTC-O014 if nodes stay in float32 because no sample reached what they read."""
    count = record.matched.get(NOT_OBSERVED, 0)
    if not count:
        return ()
    nodes = f"{count} node{'s' * (count > 1)}"
    what = f"activations of {nodes} were not observed on the calibration data, and stay float32"
    return (Finding(code="AOTC-O014", what=what, where=where),)


def share_finding(
    found: QuantizedShare, precision: str, form: str, where: str
) -> tuple[Finding, ...]:
    """AOTC-N070 if little was quantized."""
    if not found.is_little:
        return ()
    total = found.products + found.left.total()
    left = ", ".join(f"{count} {operator}" for operator, count in sorted(found.left.items()))
    what = (
        f"{precision} ({form}) in {found.products} of {total} products, with {found.share:.0%} of "
        f"the bytes of their weights; in float32 stay {left}"
    )
    return (Finding(code="AOTC-N070", what=what, where=where),)


def _why_left(specialized: SpecializedModel) -> str:
    """Why a model is not quantized; empty if it is."""
    capture = specialized.analyzed.source.capture
    if capture.quantized:
        return "the model is quantized"
    if capture.half_precision:
        return "the model is in half precision"
    return ""


def asked_of(specialized: SpecializedModel) -> Json:
    """What the worker was asked that made a variant's quantized graph, for further such graphs."""
    assert specialized.own_weights is not None
    return json.loads((specialized.own_weights / REQUEST).read_text())["request"]


# The worker prepares the graph once (constants folded, normalizations in the convolutions before
# them), and observes ranges once; both are kept in the folder of the request.


def quantize_request(specialized: SpecializedModel, state: BuildState) -> Json:
    """What a worker needs to quantize a variant's graph, with the form that `auto` stands for.

    Raises AOTC-N017 if the profile's statements do not fit, and what `calibration_samples` raises.
    """
    context = state.context
    plan, source = specialized.plan, specialized.analyzed.source
    spec, where = plan.quantization, f"variant {plan.name}"
    form = quantized_form(plan, context)
    mixes = form == "mixed" and plan.precision == "int8"
    observes = form == "static" or ((form == "dynamic" or mixes) and has_samples(context))
    samples = calibration_samples(specialized.analyzed, state) if observes else ()
    analyzed = specialized.analyzed
    compared = unpadded_runs(analyzed, plan, analyzed.references_of(plan)) if samples else []
    _require_possible(form, spec, where)
    _require_kernels(form, plan, context, where)
    names = [node.name for node in every_node(onnx.load(source.graph, load_external_data=False))]
    kept = matching_names(names, plan.keep_float32)
    digest = hashlib.sha256(str(specialized.graph).encode()).hexdigest()[:12]
    calibration = context.profile.calibration
    return {
        "graph": str(specialized.graph),
        "graph_weights": str(specialized.weights),
        "source": str(source.graph),
        "weights": str(source.weights),
        "folder": str(source.graph.parent / f"quantize-{digest}"),
        "form": form,
        "bits": 4 if plan.precision == "int4" else 8,
        "quantization": encode(spec, full=True),
        "reduce_range": _reduces_range(plan, context),
        "blocks": encode(_blocks(plan)),
        "method": calibration.method,
        "percentile": calibration.percentile,
        "samples": list(samples),
        "compared": [
            {"inputs": run.input_paths, "outputs": run.output_paths}
            for run in compared[:_MAX_SAMPLES]
        ],
        "tolerance": encode(getattr(context.profile.parity, plan.precision)),
        "kept": [name for name in names if name in kept],
        "isa": context.target.isa,
        "sizes": {name: dim.opt for name, dim in specialized.sizes.dims.items()},
        "goal": goal_of(plan, context),
        "opset": context.profile.opset,
        "runs": _runs_of(specialized.analyzed),
        "where": where,
    }


def _blocks(plan: VariantPlan) -> Blocks:
    """How weights alone are stored: as stated, else as is quick on the CPU provider."""
    spec = plan.quantization
    bits: TableBits = 4 if plan.precision == "int4" else 8
    stated = spec.accuracy_level
    return Blocks(
        size=spec.block_size or 32,
        symmetric=spec.symmetric is not False,
        accuracy_level=stated if stated is not None else 4 if plan.cpu_only else 0,
        table_bits=(spec.table_bits or bits) if plan.cpu_only else None,
    )


def with_exact_blocks(plan: VariantPlan) -> VariantPlan | None:
    """`plan` with weights alone computed with in float32, and tables of 8 bits, if not stated.

    None if nothing changes by that.
    """
    spec = plan.quantization
    if plan.precision != "int4" and (plan.precision != "int8" or spec.form != "weights"):
        return None
    level: AccuracyLevel = 0 if spec.accuracy_level is None else spec.accuracy_level
    exact = replace(
        plan,
        quantization=replace(spec, accuracy_level=level, table_bits=spec.table_bits or 8),
    )
    return exact if _blocks(exact) != _blocks(plan) else None


def weight_settings(
    precision: Literal["int8", "int4"], spec: QuantizationSpec, providers: Sequence[str]
) -> tuple[BlockSettings, ...]:
    """What to try of weights alone, the most exact first; what `spec` states is in all of it."""
    tried = _TRIED_BLOCKS[precision] if tuple(providers) == ("cpu",) else _OF_OTHERS
    found = (
        BlockSettings(
            block_size=spec.block_size or size,
            symmetric=symmetric if spec.symmetric is None else spec.symmetric,
            accuracy_level=level if spec.accuracy_level is None else spec.accuracy_level,
        )
        for size, symmetric, level in tried
    )
    return tuple(dict.fromkeys(found))


def goal_of(plan: VariantPlan, context: BuildContext) -> Goal:
    """What a lower precision of a variant is for; that of a companion is the profile's."""
    stated = (spec.goal for spec in context.profile.variants if spec.name == plan.spec)
    return next(stated, None) or context.profile.goal


def _reduces_range(plan: VariantPlan, context: BuildContext) -> bool:
    """Whether weights have 7 bits: as stated, else where 8 would need a form for VNNI beside."""
    spec = plan.quantization
    if spec.reduce_range is not None:
        return spec.reduce_range
    saturates = spec.activations != "int8" and spec.weights != "uint8"
    return saturates and needs_one_sign(plan, context.target)


def _require_possible(form: str, spec: QuantizationSpec, where: str) -> None:
    if unknown := [name for name in spec.operators if name not in BY_FORM[form]]:
        raise AotcError(
            "AOTC-N017",
            f"{unknown[0]} cannot be quantized in the form {form}",
            where=f"{where}: quantization.operators",
            expected=", ".join(sorted(BY_FORM[form])),
            found=", ".join(spec.operators),
        )
    if form == "dynamic" and spec.activations == "int8":
        raise AotcError(
            "AOTC-N017",
            "ONNX quantizes activations to uint8 in each call",
            where=f"{where}: quantization.activations",
            expected="auto or uint8",
            found="int8",
        )


def _require_kernels(form: str, plan: VariantPlan, context: BuildContext, where: str) -> None:
    """What of weights alone CUDA has and the other providers have not, or the other way round.

    Its kernel of 4 bits for calls of one row throws at blocks of 256, in any type
    (`TryMatMul4BitsM1` of ONNX Runtime; without it, blocks of 256 would be unpacked).
    """
    first = backend_of(plan.providers[0], context.profile.plugins)
    on_cuda = form == "weights" and first.ort_name == CAPTURING.ort_name
    if plan.half and not on_cuda:
        raise AotcError(
            "AOTC-N017",
            f"activations are {plan.half} in the form weights, and on CUDA alone",
            where=f"{where}: quantization.activations",
            expected="auto",
            found=f"{plan.half}, in the form {form} on {first.name}",
        )
    if on_cuda and plan.precision == "int4" and (size := _blocks(plan).size) > _CUDA_4_BITS:
        raise AotcError(
            "AOTC-N017",
            f"CUDA has no kernel for calls of one row with 4 bits in blocks of {size}",
            where=f"{where}: quantization.block_size",
            expected=f"at most {_CUDA_4_BITS}, or precision int8",
            found=str(size),
        )


def write_quantized(request: Json, kept: Collection[str], place: Path) -> tuple[PassRecord, ...]:
    """In the worker: write the quantized model to the file `place`; returns the passes' records.

    That of `quantize` is the last.  What makes answers on samples much more exact is tried once in
    a build, and known then.  Nodes of the source named in `kept`, and those that the profile
    keeps, stay in float32.  External data is beside it.  Raises AOTC-N015 if nothing is quantized,
    and O016.
    """
    begun = _begun(request, kept)
    asked = json.dumps([request[name] for name in _DECIDING], sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()[:16]
    decided = Path(request["folder"]) / f"refinements-{digest}.json"
    if decided.exists():
        return _written(request, begun, json.loads(decided.read_text()), place)
    possible = begun.refinements() if request["compared"] else []
    best = _Trial(request, begun, (), place.parent / "plain" / place.name)
    for name in possible:
        refined = (*best.refinements, name)
        trial = _Trial(request, _begun(request, kept), refined, place.parent / name / place.name)
        better, worse = (trial, best) if trial.error < _MUCH_BETTER * best.error else (best, trial)
        worse.remove()
        best = better
    decided.parent.mkdir(parents=True, exist_ok=True)
    decided.write_text(json.dumps(best.refinements))
    return best.moved(place)


@record
class _Begun:
    """A prepared model, what of it is quantized, and what was observed."""

    model: onnx.ModelProto
    form: QuantizedForm
    choice: Choice
    scheme: Scheme
    observed: Mapping[str, Observed]

    def smoothing(self) -> Smooth:
        """The pass that smooths what the chosen products read."""
        seen = self.observed.items()
        return Smooth(
            chosen=self.choice.chosen.static | self.choice.chosen.dynamic,
            scheme=self.scheme,
            channels={name: each.channels for name, each in seen if each.channels is not None},
        )

    def refinements(self) -> list[str]:
        """What may make it more exact."""
        clips = bool(self.clipped())
        smooths = self.smoothing().gains(self.model)
        return [name for name, gains in ((_SMOOTH, smooths), (_CLIP, clips)) if gains]

    def clipped(self) -> dict[str, tuple[float, float]]:
        """The ranges without outliers, of what chosen nodes read or make."""
        touched = {
            name
            for node in self.model.graph.node
            if node.name in self.choice.chosen.static
            for name in (*node.input, *node.output)
        }
        seen = self.observed.items()
        return {n: each.clipped for n, each in seen if each.clipped is not None and n in touched}


def _begun(request: Json, kept: Collection[str]) -> _Begun:
    model = onnx.load(prepared_graph(request))
    with placeholder_names(model):
        fold_factors(model)
    source = onnx.load(request["source"], load_external_data=False).graph
    names = frozenset((*request["kept"], *kept))
    left = standing_for(source, model.graph, names) if names else frozenset[str]()
    form: QuantizedForm = request["form"]
    scheme = _scheme(model, request)
    operators = request["quantization"]["operators"]
    observed: Mapping[str, Observed] = {}
    if request["samples"]:
        # The same for all forms, so that they are observed once.
        smoothed = smoothable(model) if request["method"] in _SMOOTHED else ()
        wanted = dict.fromkeys((*observable(model, operators), *smoothed))
        observed = observed_ranges(request, tuple(wanted), smoothed)
    weighs = Weighs(rates_of(request["isa"]), request["sizes"], request["goal"] == "speed")
    # As they are called before they are copied, smoothed and quantized.
    unfused = {_MADE_OF.sub("", name) for name in request["unfused"]}
    widens = form == "mixed" and request["bits"] == _FEW_BITS
    form = "weights" if widens else form
    seen = observed if form in OBSERVING else {}
    _require_operators(opset_of(model), form, _not_raised(model), request["where"])
    choice = choose(model, form, operators, left, seen, weighs, unfused, widens=widens)
    if not len(choice.chosen) and ISLAND in choice.reasons.values():
        # It was asked for all the same; that it gains nothing is told by its time.
        weighs = replace(weighs, speed=False)
        choice = choose(model, form, operators, left, seen, weighs, unfused, widens=widens)
    if not len(choice.chosen):
        raise _nothing(choice, request, prepared_graph(request))
    return _Begun(model=model, form=form, choice=choice, scheme=scheme, observed=observed)


class _Trial:
    """A form that is written to the file `place`, in a folder of its own."""

    def __init__(
        self, request: Json, begun: _Begun, refinements: Sequence[str], place: Path
    ) -> None:
        self.refinements = tuple(refinements)
        self._request, self._place = request, place
        self._records = _written(request, begun, refinements, place)

    @cached_property
    def error(self) -> float:
        """The largest part of a proof's limits that its error takes on the compared runs."""
        session = create_session(
            self._place.read_bytes(),
            SessionSpec(optimization="all"),
            providers=[CPU],
            weights_folder=self._place.parent,
        )
        tolerance = decode(Tolerance, self._request["tolerance"])
        worst = 0.0
        for compared in self._request["compared"]:
            inputs = {name: values.load(Path(path)) for name, path in compared["inputs"].items()}
            names = list(compared["outputs"])
            for name, found in zip(names, run(session, inputs, names), strict=True):
                golden = values.load(Path(compared["outputs"][name]))
                if isinstance(golden, np.ndarray) and golden.dtype.kind == "f":
                    error = compare(golden, found, tolerance, name)
                    worst = max(worst, limit_ratio(error, tolerance))
        return worst

    def moved(self, place: Path) -> tuple[PassRecord, ...]:
        """The records of its passes, when its files are at `place`."""
        for file in self._place.parent.iterdir():
            file.replace(place.parent / file.name)
        self.remove()
        return self._records

    def remove(self) -> None:
        """Remove its files, which may be as large as the model."""
        shutil.rmtree(self._place.parent)


def _written(
    request: Json, begun: _Begun, refinements: Collection[str], place: Path
) -> tuple[PassRecord, ...]:
    model, choice = begun.model, begun.choice
    ranges = {n: seen.bounds for n, seen in begun.observed.items() if seen.bounds is not None}
    clipped = begun.clipped() if _CLIP in refinements else {}
    ranges |= clipped
    records: list[PassRecord] = []
    if _SMOOTH in refinements:
        smoothing = begun.smoothing()
        records += run_passes(model, (smoothing,))
        options = {**records[-1].options, "samples": len(request["samples"])}
        records[-1] = replace(records[-1], options=options, matched=smoothing.matched)
        ranges |= smoothing.ranges
        clipped = {name: bounds for name, bounds in clipped.items() if ranges[name] == bounds}
    chosen = Quantize(
        form=begun.form,
        bits=request["bits"],
        scheme=begun.scheme,
        blocks=decode(Blocks, request["blocks"]),
        method=request["method"],
        chosen=choice.chosen,
        ranges=ranges,
    )
    try:
        (made,) = run_passes(model, (chosen,))
    except ImportError as error:
        raise AotcError(
            "AOTC-O016",
            "block quantization needs a package that is not installed",
            expected="onnx_ir",
            found=str(error),
            where=request["where"],
        ) from None
    choice = choice.limited(written_nodes(model, choice.chosen))
    if not len(choice.chosen):
        raise _nothing(choice, request, prepared_graph(request))
    reasons = _source_names(request, choice.reasons)
    del model.graph.value_info[:]
    model.ClearField("producer_name")
    model.ClearField("producer_version")
    run_passes(model, (StripMetadata(), NameNodes()))
    place.parent.mkdir(parents=True, exist_ok=True)
    data = place.with_suffix(".bin")
    data.unlink(missing_ok=True)
    externalize(model, place.parent, data.name)
    place.write_bytes(model.SerializeToString(deterministic=True))
    options, matched = dict(made.options), choice.matched()
    if begun.form in OBSERVING and request["samples"]:
        options["samples"] = len(request["samples"])
    matched |= {CLIPPED: len(clipped)} if clipped else {}
    return (*records, replace(made, options=options, matched=matched, kept=reasons))


def quantize_job(request: Json) -> Json:
    """In the worker: the quantized model `quantized.onnx`, the records of the passes, and opsets.

    Those are the source's, the quantized model's, and why it is not a later one.
    """
    records = write_quantized(request, (), Path("quantized.onnx"))
    source, prepared = (
        onnx.load(path, load_external_data=False)
        for path in (request["source"], prepared_graph(request))
    )
    opsets = [opset_of(source), opset_of(prepared), _not_raised(prepared)]
    return {"records": [encode(made) for made in records], "opset": opsets}


def _not_raised(prepared: onnx.ModelProto) -> str:
    """Why the prepared graph is not at a later opset; empty if there is nothing to tell."""
    return next((each.value for each in prepared.metadata_props if each.key == _NOT_RAISED), "")


def _scheme(model: onnx.ModelProto, request: Json) -> Scheme:
    spec = request["quantization"]
    return Scheme(
        activations="uint8" if spec["activations"] == "auto" else spec["activations"],
        weights="int8" if spec["weights"] == "auto" else spec["weights"],
        per_channel=spec["per_channel"]
        and (opset_of(model) >= _AXIS_OPSET or request["form"] not in OBSERVING),
        reduce_range=request["reduce_range"],
    )


def _source_names(request: Json, reasons: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes of the source that those in `reasons` stand for."""
    if not reasons:
        return ()
    source = onnx.load(request["source"], load_external_data=False).graph
    graph = onnx.load(prepared_graph(request), load_external_data=False).graph
    covered = covered_nodes(source, graph)
    found = [name for left in reasons for name in covered.get(left) or (left,)]
    return tuple(dict.fromkeys(found))


def _nothing(choice: Choice, request: Json, prepared: Path) -> AotcError:
    """AOTC-N015, or N073 where there is nothing: with what could be quantized, and what helps."""
    form, stated = request["form"], request["quantization"]["form"]
    counts = Counter(choice.reasons.values())
    graph = onnx.load(prepared, load_external_data=False)
    present = sorted({node.op_type for node in every_node(graph)} - {"Constant"})
    code, fix = "AOTC-N015", ""
    if counts.keys() == {PROFILE}:
        fix = "Leave names out of keep_float32, or choose 'precision: keep'."
    elif not counts and form != "static" and "Conv" in present:
        fix = "Give data with --calibration: convolutions are quantized by ranges observed on it."
        if request["bits"] == _FEW_BITS:
            fix = f"Choose 'precision: int8'. {fix}"
        elif stated != "auto":
            fix = f"Choose 'quantization: {{form: static}}'. {fix}"
    elif not counts:
        code, fix = "AOTC-N073", "Choose 'precision: keep': the model has none of these products."
    found = ", ".join(f"{count} {why}" for why, count in sorted(counts.items()))
    return AotcError(
        code,
        f"no node can be quantized in the form {form}",
        where=request["where"],
        expected=f"one of {', '.join(sorted(BY_FORM[form] - CARRIERS))} with constant weights",
        found=found or f"none of them with such weights, among {', '.join(present[:_MAX_LISTED])}",
        fix=fix,
    )


# The graph that is quantized.


def prepared_graph(request: Json) -> Path:
    """In the worker: the variant's graph as ONNX Runtime's level BASIC writes it, with types.

    That folds constants, and a BatchNormalization into the convolution before it; values keep their
    names.  An operator set before 13 is raised to it.  A graph that does not load again, as some
    with control flow, is taken as it is.  It is written once, to the folder of the request.
    """
    kept = Path(request["folder"]) / _FOLDER
    if not (kept / MODEL).exists():
        made = Path(_FOLDER)
        made.mkdir(exist_ok=True)
        _prepare(request, made)
        kept.parent.mkdir(parents=True, exist_ok=True)
        made.replace(kept)
    return kept / MODEL


def _prepare(request: Json, place: Path) -> None:
    graph, weights = Path(request["graph"]), Path(request["graph_weights"])
    model = _folded(graph, weights, place)
    if model is None:
        model = onnx.load(graph, load_external_data=False)
        lift_constants(model)
        gather_tensors(model, weights, place / DATA)
    run_passes(model, (NameNodes(),))
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            # The same; of the two, Add alone has kernels for integers.
            node.op_type = "Add"
    typed, why = with_types(model, place), ""
    if request["opset"] != "keep":
        typed, why = raised(typed, place, request["runs"])
    elif opset_of(typed) < _AXIS_OPSET:
        why = _KEPT_OPSET
    typed.metadata_props.add(key=_NOT_RAISED, value=why)
    (place / MODEL).write_bytes(typed.SerializeToString(deterministic=True))


def _folded(graph: Path, weights: Path, place: Path) -> onnx.ModelProto | None:
    try:
        write_optimized(graph, "basic", weights, into=place, without=SPOILS_QUANTIZED)
        create_session(
            (place / MODEL).read_bytes(),
            SessionSpec(optimization="disable"),
            providers=[CPU],
            weights_folder=place,
        )
    except AotcError:
        return None
    return onnx.load(place / MODEL, load_external_data=False)


# The operator set of the graph that is quantized: one from before 13 has no integers, or no scale
# for each channel.  The model itself stays what answers are judged by.  The onnx package's adapters
# are not all right, so the raised graph is run beside the one before.


def raised(
    model: onnx.ModelProto, weights: Path, runs: Sequence[Json]
) -> tuple[onnx.ModelProto, str]:
    """In the worker: `model` at opset 13 if it is older, and why it is not, empty if it is.

    `model` has types, and its external data is in the folder `weights`; `runs` are inputs (paths by
    name) on which both give the same answers.
    """
    if opset_of(model) >= _AXIS_OPSET:
        return model, ""
    if found := obstacles(model, _AXIS_OPSET):
        return model, "; ".join(found[:_MAX_TOLD])
    made = onnx.ModelProto()
    made.CopyFrom(model)
    run_passes(made, (ConvertOpset(to=_AXIS_OPSET), NameNodes()))
    lift_constants(made)
    made.ir_version = max(made.ir_version, _IR_VERSION)
    made = with_types(made, weights)
    why = _other_answers(model, made, weights, runs)
    return (model, why) if why else (made, "")


def _other_answers(
    before: onnx.ModelProto, after: onnx.ModelProto, weights: Path, runs: Sequence[Json]
) -> str:
    """What differs in the answers of two graphs; empty if nothing does."""
    try:
        first, second = (
            create_session(
                model.SerializeToString(),
                SessionSpec(optimization="disable"),
                providers=[CPU],
                weights_folder=weights,
            )
            for model in (before, after)
        )
    except AotcError as error:
        return f"ONNX Runtime does not load it at opset {_AXIS_OPSET}: {error.found}"
    names = [value.name for value in first.get_outputs()]
    compared = 0
    for paths in runs:
        inputs = {name: values.load(Path(path)) for name, path in paths.items()}
        try:
            answers = run(first, inputs)
        except AotcError:
            # A graph of fixed sizes, or with inputs of another type, takes some of them, or none.
            continue
        try:
            found = run(second, inputs)
        except AotcError as error:
            return f"ONNX Runtime does not run it at opset {_AXIS_OPSET}: {error.found}"
        for name, one, other in zip(names, answers, found, strict=True):
            compared_output = compare(one, other, ParitySpec().float32, name)
            if not compared_output.passed:
                return f"at opset {_AXIS_OPSET} output {name!r} differs: {compared_output.reason}"
        compared += 1
        if compared == _MAX_RUNS:
            break
    return ""


def _runs_of(analyzed: AnalyzedModel) -> list[Json]:
    """The inputs of runs of the original, as a worker is given them; none if nothing is raised."""
    if analyzed.source.capture.opsets.get("ai.onnx", _AXIS_OPSET) >= _AXIS_OPSET:
        return []
    return [run.input_paths for run in (*analyzed.references, *analyzed.sampled) if run.finite]


def _require_operators(opset: int, form: str, why: str, where: str) -> None:
    """Raise AOTC-N071 if `opset`, which stayed because of `why`, lacks the operators of a form."""
    if opset >= _FIRST.get(form, 0):
        return
    raise AotcError(
        "AOTC-N071",
        "the model's operator set has no operators for quantization, and was not raised",
        where=where,
        expected=f"opset {_AXIS_OPSET} or later",
        found=f"opset {opset}: {why}",
        fix="Leave 'opset: keep' out of the profile, or export the model at opset "
        f"{_AXIS_OPSET} or later."
        if why == _KEPT_OPSET
        else "",
    )


def _opset_finding(own: int, used: int, form: str, why: str, where: str) -> tuple[Finding, ...]:
    """AOTC-O005 if the opset was raised from `own`, or N072 if it stayed, and costs accuracy."""
    if used > own:
        what = f"opset {own} was converted to {used}, at which integers are written"
        return (Finding(code="AOTC-O005", what=what, where=where),)
    if not why or why == _KEPT_OPSET or form not in OBSERVING:
        return ()
    what = f"weights have one scale for all channels at opset {own}, which was not raised: {why}"
    return (Finding(code="AOTC-N072", what=what[:1000], where=where),)


# The form in which variants are quantized, and what it needs.


def has_samples(context: BuildContext) -> bool:
    """Whether the user gave inputs to observe activations on."""
    return context.calibration is not None or context.fixtures is not None


def quantized_form(plan: VariantPlan, context: BuildContext) -> QuantizedForm:
    """The form of a variant in int8 or int4; raises AOTC-P007."""
    backends = [backend_of(name, context.profile.plugins) for name in plan.providers]
    return form_of(plan.precision, plan.quantization, backends, samples=has_samples(context))


def require_form(
    precision: WantedPrecision, form: QuantizedForm, backends: Sequence[Backend]
) -> None:
    """Raise AOTC-N008 with the first of `backends` that runs no model of that form."""
    for backend in backends:
        if form not in backend.quantized.get(precision, ()):
            raise AotcError(
                "AOTC-N008",
                f"{backend.name} does not run models in {precision} of the form {form}",
                where="precision",
                expected=f"{backend.name}: {', '.join(backend.abilities())}",
                found=f"{precision} ({form})",
                fix="Choose a precision or a form that all providers of the variant run, or leave "
                f"{backend.name} out of its providers.",
            )


def require_quantization(context: BuildContext, *, tune: bool) -> None:
    """What variants of the profile need to be quantized, before a model is read.

    With `tune`, a variant of other providers may be chosen.  Raises AOTC-I001 and I072 (there is no
    calibration data), N008 (a provider runs no model of that form) and P007.
    """
    require_calibration(context)
    profile = context.profile
    for spec in () if tune else profile.variants:
        precision = spec.precision or profile.precision
        if precision not in ("int8", "int4") or not is_built_here(spec, context):
            continue
        names = spec.providers or profile.providers
        backends = [backend_of(name, profile.plugins) for name in names]
        stated = spec.quantization or profile.quantization
        form = form_of(precision, stated, backends, samples=has_samples(context))
        require_form(precision, form, backends)


def may_be_static(profile: Profile, *, tune: bool) -> bool:
    """Whether a variant, or with `tune` a candidate of one, may be quantized statically.

    Raises AOTC-P007.
    """
    specs = profile.variants
    if tune and "int8" in profile.tune.precision:
        stated = {(spec.quantization or profile.quantization).form for spec in specs}
        if stated & {"auto", *OBSERVING}:
            return True
    return any(
        observes(
            spec.precision or profile.precision,
            spec.quantization or profile.quantization,
            [backend_of(name, profile.plugins) for name in spec.providers or profile.providers],
        )
        for spec in specs
    )


def is_observing(context: BuildContext) -> bool:
    """Whether a variant, or a candidate of one, may observe activations on the user's samples."""
    wanted = context.tries_static or may_be_static(context.profile, tune=False)
    return wanted and has_samples(context)


def unused_calibration(context: BuildContext) -> tuple[Finding, ...]:
    """AOTC-N019 if there is calibration data that no variant observes anything on."""
    profile = context.profile
    smooths = any(
        (spec.precision or profile.precision) == "int8"
        and (spec.quantization or profile.quantization).form == "dynamic"
        for spec in profile.variants
    )
    used = smooths or is_observing(context) or context.tries_half
    if context.calibration is None or used:
        return ()
    what = "no variant observes activations on the data, so it was not read"
    return (Finding(code="AOTC-N019", what=what, where="calibration"),)


def observes_half(profile: Profile, *, tune: bool) -> bool:
    """Whether a variant, or with `tune` a candidate of one, may compute in half precision.

    Then the range of each value matters.  On the CPU alone half precision is storage, and of a
    provider that has all nodes to itself, and one type for them, none is kept from it.
    """
    tried = set(profile.tune.precision)
    for spec in profile.variants:
        stated = spec.precision or profile.precision
        if HALF_TYPES.keys().isdisjoint({stated, *(tried if tune or stated == "auto" else ())}):
            continue
        names = spec.providers or profile.providers
        by_types = backend_of(names[0], profile.plugins).half_by_types
        if names[0] != "cpu" and (by_types or names[1:]):
            return True
    return False


# Reference runs on the calibration data, which a statically quantized variant is judged by.
#
# Its ranges are those of the user's data. What a generated input computes outside of them is cut
# off by intention, and says nothing of how exact the variant is.


def with_sampled_references(analyzed: AnalyzedModel, state: BuildState) -> AnalyzedModel:
    """`analyzed` with runs on the user's data, if a variant may be quantized statically.

    They are some samples as they are, and at the sizes of each generated fixture the samples tiled.
    Raises what `calibration_samples` raises, and AOTC-I075.
    """
    if not is_observing(state.context):
        return analyzed
    samples = calibration_samples(analyzed, state)
    return replace(analyzed, sampled=sampled_runs(analyzed, samples, state))


def sampled_runs(
    analyzed: AnalyzedModel, samples: Sequence[Json], state: BuildState
) -> tuple[ReferenceRun, ...]:
    """Runs of the original on `samples` of the user; raises AOTC-I075."""
    if not samples:
        return ()
    source = analyzed.source
    model, weights = source.answering
    step = max(1, len(samples) // _MAX_SAMPLES)
    folder = state.work / "sampled"
    runs = state.workers.run(
        "aotc.sizes.runs:sampled_job",
        {
            "model": str(model),
            "weights": str(weights),
            "inputs": [encode(value) for value in source.inputs],
            "outputs": [value.name for value in source.outputs],
            "samples": list(samples[::step][:_MAX_SAMPLES]),
            "points": [
                [f"{run.name}{REPEATED}", dict(run.sizes)]
                for run in analyzed.references
                # Those with inputs of one sign, or searched for, have the sizes of another one.
                if run.origin == "generated"
                and "-" not in run.name
                and not run.name.startswith((SEARCHED, STATED))
            ],
        },
        folder=folder,
        where="calibration data",
    ).value
    return tuple(ReferenceRun.read({**item, "origin": "user"}, folder) for item in runs)
