"""Lower: from partitions to the files that a session runs: compiled parts, and a graph."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx

if TYPE_CHECKING:
    import onnxruntime as ort

from aotc.base.errors import EXIT_NO, AotcError, Place
from aotc.base.records import record, replace, values_of
from aotc.graph import weights
from aotc.graph.model import tensors
from aotc.graph.partition.assignment import Assignment, Part, Sizes, sizes_at
from aotc.graph.partition.division import Extractor, boundary_values, hybrid_model, partition_report
from aotc.graph.view import GraphView, every_node, op_of
from aotc.pipeline.context import BuildContext, BuildState, requested_backend
from aotc.pipeline.optimize import load_level
from aotc.pipeline.partition import backends_by_ort_name, divide
from aotc.pipeline.reuse import cached_or_compiled, part_key
from aotc.pipeline.specialize import SHARED
from aotc.pipeline.types import (
    ClaimedModel,
    Division,
    LoweredModel,
    LoweredVariants,
    PartitionedModel,
    UndividedModel,
    VariantPlan,
)
from aotc.providers.base import (
    UNCAPTURED,
    Backend,
    CompileRequest,
    Payload,
    SessionUse,
    names_in_message,
)
from aotc.providers.named_backends import backend_of
from aotc.session.sessions import WEIGHTS_PLACEHOLDER
from aotc.spec.codec import Json, decode, encode
from aotc.spec.payload import Finding
from aotc.spec.precision import Precision
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.target import Target
from aotc.spec.variant import (
    HALF_PRECISION,
    DroppedVariant,
    MemoryPlan,
    NodePlacement,
    PartitionReport,
    RefusedNode,
    SessionSpec,
)
from aotc.spec.yaml import DocumentPlaces

# Bytes of an element, by type.
_WIDTHS: Final[Mapping[str, int]] = {
    "float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "complex64": 8, "complex128": 16,
}  # fmt: skip
_DISABLE_PREPACKING = "session.disable_prepacking"
# Codes of placement: a variant that computes wrongly is never merely left out.
_PLACEMENT_CODES = frozenset({"AOTC-P001", "AOTC-P002", "AOTC-P005", *UNCAPTURED})
_FAILURES: Final = frozenset({"AOTC-P005", "AOTC-I013", "AOTC-I014", "AOTC-I015"})
# In these rounds single nodes move to the next provider; after them, complete partitions.
_MAX_ROUNDS: Final = 6


def lower(
    variants: Sequence[PartitionedModel | UndividedModel], state: BuildState
) -> LoweredVariants:
    """Compile partitions where a provider compiles, and write each variant's final graph.

    Constants that are read only by compiled parts, which contain them, are removed from the
    weights.  Variants are left out as the fallback policy says; the refusals of those that it does
    not leave out are P001 (undivided), P005 (compilation) and P014 (capture).  What `compile_parts`
    raises otherwise is raised.
    """
    lowered: list[LoweredModel] = []
    dropped: list[DroppedVariant] = []
    refused: list[tuple[VariantPlan, AotcError]] = []

    def drop(error: AotcError, plan: VariantPlan) -> None:
        """Leave a variant out; its refusal ends the build, but only after the others are judged."""
        try:
            dropped.append(dropped_variant(error, plan, state.context))
        except AotcError as refusal:
            if refusal.exit_status != EXIT_NO:
                raise
            refused.append((plan, refusal))

    for item in variants:
        if isinstance(item, UndividedModel):
            drop(item.refusal, item.plan)
            continue
        backends = backends_by_ort_name(item.plan, state.context)
        if item.division is None:
            (backend,) = backends.values()
            lowered.append(_lower_undivided(item, backend))
            continue
        try:
            compiled = compile_parts(item.claimed, item.division, backends, state)
            lowered.append(_lower_divided(compiled, backends, state))
        except AotcError as error:
            drop(error, item.plan)
    if any(item.contexts for item in lowered):
        lowered = _drop_unread_weights(lowered, variants[0].claimed.weights, state)
    findings = [finding for item in variants for finding in item.claimed.findings]
    return LoweredVariants(
        lowered=tuple(lowered),
        left_out=tuple(dropped),
        refused=tuple(refused),
        findings=(*findings, *(finding for item in lowered for finding in item.findings)),
        weights=(lowered[0] if lowered else variants[0].claimed).weights,
    )


def _drop_unread_weights(
    lowered: Sequence[LoweredModel], weights_folder: Path, state: BuildState
) -> list[LoweredModel]:
    """The variants with a folder of weights that contains only what they read."""
    kept = state.work / "weights-kept"
    shared = [item for item in lowered if SHARED in item.files and _reads_by_offset(item)]
    complete = {SHARED} if shared else set()
    weights.compact(
        [item.model for item in lowered], weights_folder, kept, unchanged_files=complete
    )
    result = []
    for item in lowered:
        model = onnx.load(item.model, load_external_data=False)
        files = {*weights.external_locations(model), *(complete if _reads_by_offset(item) else ())}
        result.append(replace(item, files=tuple(sorted(files)), weights=kept))
    return result


def _reads_by_offset(item: LoweredModel) -> bool:
    """Whether compiled parts read the shared weights by offset."""
    options = item.session.provider_options.values()
    return any(WEIGHTS_PLACEHOLDER in text for stated in options for text in stated.values())


def _lower_undivided(item: PartitionedModel, backend: Backend) -> LoweredModel:
    """The lowered variant if one provider runs all nodes and compiles none."""
    claimed = item.claimed
    model = onnx.load(claimed.graph, load_external_data=False)
    path = claimed.graph.with_name("lowered.onnx")
    shutil.copyfile(claimed.graph, path)
    return LoweredModel(
        partitioned=item,
        model=path,
        weights=claimed.weights,
        files=weights.external_locations(model),
        session=_with_plan(backend.session(load_level(item.plan)), item.plan),
        memory=memory_plan(model, claimed),
        providers=claimed.providers,
    )


def _lower_divided(
    compiled: CompiledModel,
    backends: Mapping[str, Backend],
    state: BuildState,
) -> LoweredModel:
    """The lowered variant whose compiled parts are nodes among those of other providers."""
    claimed, assignment = compiled.claimed, compiled.division.assignment
    plan = claimed.plan
    folder = state.work / f"lower-{plan.name}"
    folder.mkdir()
    payloads = _joined_payloads(compiled, backends, folder)
    compatibility = _compatibility(compiled, payloads)
    contexts: dict[int, tuple[str, Mapping[str, str | int]]] = {
        index: (compiled.names[index], payload.attributes) for index, payload in payloads.items()
    }
    graph = compiled.division.graph
    model = hybrid_model(compiled.model, graph, assignment.parts, contexts, compatibility)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    precisions: dict[str, Precision] = {
        name: backend.computes_in(plan.precision) for name, backend in backends.items()
    }
    running = {*(part.provider for part in assignment.parts), *assignment.providers.values()}
    used = {name: backend for name, backend in backends.items() if name in running}
    planned = _planned_placement(model, compiled, claimed.sizes[0]) if claimed.sizes else ()
    placed = {node.name: node.provider for node in planned}
    if CAPTURING.ort_name in used:
        _require_room(model, placed, plan, state.context, used[CAPTURING.ort_name].probe().why_not)
    session, refused = _with_graphs(
        divided_session(used, precisions, payloads, compiled),
        plan,
        model,
        placed,
        next(iter(backends.values())),
    )
    files = set(weights.external_locations(model))
    if any(payload.options for payload in payloads.values()):
        files.update(file.name for file in claimed.weights.iterdir() if file.name == SHARED)
    return LoweredModel(
        partitioned=PartitionedModel(claimed=claimed, division=compiled.division),
        model=path,
        weights=claimed.weights,
        files=tuple(sorted(files)),
        session=session,
        memory=memory_plan(compiled.model, claimed),
        contexts=tuple(sorted({folder / name for p in payloads.values() for name in p.files})),
        compatibility=compatibility,
        needs=tuple(
            backend.needs(state.context.target, precisions[name]) for name, backend in used.items()
        ),
        providers=tuple(used),
        device="gpu" if any(backend.device == "gpu" for backend in used.values()) else "cpu",
        report=_partition_report(compiled, payloads, backends),
        planned_placement=planned,
        why_not_run="; ".join(
            f"{backend.name}: {why}"
            for backend in used.values()
            if (why := backend.probe().why_not)
        ),
        findings=(*compiled.findings, *refused),
    )


def _joined_payloads(
    compiled: CompiledModel, backends: Mapping[str, Backend], folder: Path
) -> dict[int, Payload]:
    """Payloads with their files in `folder`, joined by their provider."""
    parts = compiled.division.assignment.parts
    result: dict[int, Payload] = {}
    for name, backend in backends.items():
        indices = [index for index in compiled.payloads if parts[index].provider == name]
        for index in indices:
            for file in compiled.payloads[index].files:
                shutil.copyfile(compiled.folders[index] / file, folder / file)
        joined = backend.join([compiled.payloads[i] for i in indices], folder, backend.name)
        result |= dict(zip(indices, joined, strict=True))
    return result


def _compatibility(compiled: CompiledModel, payloads: Mapping[int, Payload]) -> dict[str, str]:
    parts = compiled.division.assignment.parts
    found: dict[str, str] = {}
    for index, payload in payloads.items():
        if payload.compatibility:
            provider = parts[index].provider
            if found.setdefault(provider, payload.compatibility) != payload.compatibility:
                raise RuntimeError(f"{provider} gives two compatibility strings in one build")
    return found


def _partition_report(
    compiled: CompiledModel, payloads: Mapping[int, Payload], backends: Mapping[str, Backend]
) -> PartitionReport:
    claimed, assignment = compiled.claimed, compiled.division.assignment
    assert claimed.sizes is not None
    refusals = [
        refusal
        for refusal in compiled.division.refusals
        if assignment.providers.get(refusal.node) != refusal.provider
    ]
    refusals += _reassigned(compiled)
    return partition_report(
        compiled.division.graph,
        assignment,
        claimed.sizes,
        names=compiled.names,
        compiled={index: payload.files[0] for index, payload in payloads.items()},
        devices={name: backend.device for name, backend in backends.items()},
        refusals=refusals,
        how=claimed.how,
    )


def _reassigned(compiled: CompiledModel) -> list[RefusedNode]:
    """Nodes that a provider claimed, but partitioning assigned to another."""
    claimed, assignment = compiled.claimed, compiled.division.assignment
    ops = dict(claimed.optimized.nodes)
    found = []
    for node, why in assignment.reassigned.items():
        claimant = next(name for name, nodes in claimed.claims if node in nodes)
        if claimant != assignment.providers[node]:
            found.append(
                RefusedNode(node=node, op=ops.get(node, ""), provider=claimant, reason=why)
            )
    return found


def _planned_placement(
    model: onnx.ModelProto, compiled: CompiledModel, sizes: Sizes
) -> tuple[NodePlacement, ...]:
    """The planned provider of each node of the final graph."""
    graph, assignment = compiled.division.graph, compiled.division.assignment
    provider_by_node = dict(assignment.providers)
    flops = {name: cost.flops for name, cost in sizes.nodes.items()}
    for part, name in zip(assignment.parts, compiled.names, strict=True):
        provider_by_node.setdefault(name, part.provider)
        nodes = [graph.nodes[index] for index in part.nodes]
        inside = [name for node in nodes for name in (node.name, *graph.inside.get(node.name, ()))]
        flops[name] = sum(flops.get(name, 0) for name in inside)
    return tuple(
        NodePlacement(
            name=node.name,
            op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
            provider=provider_by_node[node.name],
            flops=flops.get(node.name, 0),
        )
        for node in every_node(model)
        if node.name in provider_by_node
    )


# Whether the runs of a variant are captured as graphs of its device.


def _with_graphs(
    session: SessionSpec,
    plan: VariantPlan,
    model: onnx.ModelProto,
    placed: Mapping[str, str],
    backend: Backend,
) -> tuple[SessionSpec, tuple[Finding, ...]]:
    """`session` with graphs captured if `plan` wants that of `backend`, its first provider.

    `placed` are the providers of nodes by name.  If `model` cannot be captured, the session stays
    as it is, and a finding AOTC-P014 says why; or that is raised, if the plan says so.
    """
    if not plan.wants_graphs:
        return session, ()
    session, why_not = backend.capturing(session, model, placed)
    if not why_not:
        return session, ()
    where = f"variant {plan.name}"
    if plan.cuda.graphs.on_refusal == "fail":
        raise not_capturable(where, why_not)
    what = f"no CUDA graphs are captured: {why_not}"
    return session, (Finding(code="AOTC-P014", what=what[:500], where=where),)


def not_capturable(where: str, why: str, place: Place | None = None) -> AotcError:
    """AOTC-P014, of a variant that is refused for it."""
    return AotcError(
        "AOTC-P014",
        "the graph cannot be captured as CUDA graphs",
        where=where,
        expected="every node on CUDA, except those that compute shapes, and no control flow",
        found=why,
        place=place,
    )


# What a session of the variant needs: its memory, and the options with which it is created.


def memory_plan(model: onnx.ModelProto, claimed: ClaimedModel) -> MemoryPlan:
    """Bytes of the weights of `model`, and of inputs and activations at the maximum sizes."""
    specialized = claimed.optimized.specialized
    analyzed, domain = specialized.analyzed, specialized.sizes
    largest = domain.corner("max")
    inputs = 0
    for value in analyzed.source.inputs:
        elements = 1
        for size in value.shape_at(largest):
            elements *= size
        inputs += elements * _WIDTHS.get(value.dtype, 1)
    total = 0
    for tensor in tensors(model):
        total += _tensor_bytes(tensor)
    return MemoryPlan(
        weights_bytes=total,
        input_bytes_max=inputs,
        activation_bytes_max=analyzed.activation_bytes if not specialized.plan.buckets else None,
    )


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    entry = {pair.key: pair.value for pair in tensor.external_data}
    return int(entry.get("length", "0")) or len(tensor.raw_data) or tensor.ByteSize()


def divided_session(
    backends: Mapping[str, Backend],
    precisions: Mapping[str, Precision],
    payloads: Mapping[int, Payload],
    compiled: CompiledModel,
) -> SessionSpec:
    """The session of a variant whose nodes run on several providers, or are compiled.

    `backends` are those that run a node, by ORT name; `payloads` are as joined by their providers.
    """
    plan = compiled.claimed.plan
    operators = tuple(op for _, op in compiled.claimed.optimized.nodes)
    use = SessionUse(cuda=plan.cuda, operators=operators)
    config: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    for name, backend in backends.items():
        spec = backend.session("all", precisions[name], use)
        config |= spec.config
        for provider, stated in spec.provider_options.items():
            options[provider] = {**options.get(provider, {}), **stated}
    for index, payload in payloads.items():
        provider = compiled.division.assignment.parts[index].provider
        options.setdefault(provider, {}).update(payload.options)
    for name, backend in backends.items():
        if backend.compiles:
            options[name] = backend.options_excluding(
                options.get(name, {}), _operators_elsewhere(compiled, name)
            )
    if plan.threads is not None:
        for name, backend in backends.items():
            if name in options:
                options[name] = backend.with_threads(options[name], plan.threads)
    session = SessionSpec(
        optimization="all" if plan.optimization == "auto" else plan.optimization,
        config=config,
        provider_options={name: stated for name, stated in options.items() if stated},
    )
    shrinks = plan.cuda.memory.shrink and CAPTURING.ort_name in backends
    return _with_plan(replace(session, shrinks=shrinks), plan)


def _require_room(
    model: onnx.ModelProto,
    placed: Mapping[str, str],
    plan: VariantPlan,
    context: BuildContext,
    why_not: str,
) -> None:
    """Raise AOTC-M017 if the limit of the GPU's arena is less than the weights of nodes there.

    AOTC-M013 if it is to be planned, and no GPU is here: `why_not`.
    """
    limit = plan.cuda.memory.limit_bytes
    if limit == "plan" and why_not:
        raise unplanned_limit(plan.name, why_not, context.places)
    if limit is None or limit == "plan":
        return
    on_device = {
        value
        for node in every_node(model)
        if placed.get(node.name) == CAPTURING.ort_name
        for value in node.input
    }
    needed = sum(_tensor_bytes(each) for each in tensors(model) if each.name in on_device)
    if needed > limit:
        raise AotcError(
            "AOTC-M017",
            "the arena's limit is less than the weights",
            where=f"variant {plan.name}",
            expected=f">= {needed} bytes of weights, and the activations of a call",
            found=f"cuda.memory.limit_bytes: {limit}",
            place=context.places.of("cuda.memory.limit_bytes"),
        )


def unplanned_limit(variant: str, why_not: str, places: DocumentPlaces) -> AotcError:
    """AOTC-M013: a profile wants the limit of a plan that there is not."""
    return AotcError(
        "AOTC-M013",
        "the arena's limit cannot be planned",
        where=f"variant {variant}",
        found=why_not,
        place=places.of("cuda.memory.limit_bytes"),
    )


def _operators_elsewhere(compiled: CompiledModel, provider: str) -> set[str]:
    """Operators of the nodes on other providers, those in subgraphs included."""
    placed = compiled.division.assignment.providers
    nodes = every_node(compiled.division.graph.graph)
    return {node.op_type for node in nodes if placed[node.name] != provider}


def _with_plan(session: SessionSpec, plan: VariantPlan) -> SessionSpec:
    if plan.prepack == "off":
        session = replace(session, config={**session.config, _DISABLE_PREPACKING: "1"})
    return replace(session, threads=plan.threads)


# The fallback policy for variants that violate it: they are left out, or the build ends.


def is_budget(error: AotcError) -> bool:
    """Whether `error` is of where nodes run or what they cost, and not of what they compute."""
    return error.code in _PLACEMENT_CODES or error.code.startswith("AOTC-M")


def dropped_variant(error: AotcError, plan: VariantPlan, context: BuildContext) -> DroppedVariant:
    """The record of leaving a variant out; raises `error` if the policy does not allow it.

    `alternate-variant` needs another of the profile's variants, `reject-route` a bucket.
    """
    policy = context.profile.fallback.policy
    others = any(variant.name != plan.spec for variant in context.profile.variants)
    rejects = policy == "reject-route" and bool(plan.buckets)
    if error.code not in _PLACEMENT_CODES or not (
        rejects or (policy == "alternate-variant" and others)
    ):
        raise error
    return DroppedVariant(
        name=plan.name,
        spec=plan.spec,
        buckets=plan.buckets,
        rejects=rejects,
        reason=error.line()[:500],
    )


def dropped_finding(dropped: DroppedVariant) -> Finding:
    """The finding AOTC-P009: which variant was left out, and what happens to its calls."""
    consequence = "calls of its sizes are refused" if dropped.rejects else "another variant serves"
    return Finding(
        code="AOTC-P009", what=f"{dropped.reason}; {consequence}", where=f"variant {dropped.name}"
    )


def no_variant_left(dropped: Sequence[DroppedVariant], refusals: Sequence[AotcError]) -> AotcError:
    """The refusal of a build whose variants the fallback policy left out, all of them."""
    if refusals:
        refusals[0].also = (*refusals[0].also, *refusals[1:])
        return refusals[0]
    return AotcError(
        "AOTC-P002",
        "every variant breaches the placement policy",
        found="; ".join(f"{variant.name}: {variant.reason}" for variant in dropped)[:2000],
    )


# Compile parts; nodes that fail move to the next provider, and are divided again.


@record
class CompiledModel:
    """A division whose parts are all compiled, if their provider compiles.

    `model` is the divided graph; `names` are those of all parts, in order; `payloads` and the
    `folders` of their files are by index of part.
    """

    claimed: ClaimedModel
    division: Division
    model: onnx.ModelProto
    names: tuple[str, ...]
    payloads: Mapping[int, Payload]
    folders: Mapping[int, Path]
    findings: tuple[Finding, ...]


def compile_parts(
    claimed: ClaimedModel,
    division: Division,
    backends: Mapping[str, Backend],
    state: BuildState,
) -> CompiledModel:
    """Compile the parts of `division`, and divide again without what fails, until all succeed.

    `backends` are by ORT name.  Raises AOTC-P001 if no provider runs a node, P005 if the last
    provider that claims a node fails to compile it, and P010.
    """
    graph = division.graph
    model = onnx.load(claimed.graph, load_external_data=False)
    compiler = _PartCompiler(claimed, model, graph, backends, state)
    blame = CompileFailures(graph, claimed.plan.name, division.refusals)
    # This ends: every failed round moves nodes, or stops sharing weights for one more provider.
    for attempt in count():
        failed = compiler.compile(division.assignment, attempt)
        mixed = compiler.unshare_mixed(division.assignment)
        if not failed and not mixed:
            break
        for part, failure in failed:
            blame.refuse_nodes(part, failure, attempt)
        division = divide(claimed, graph, blame.refused, blame.refusals, state.context)
    parts = division.assignment.parts
    results = {
        index: found for index, part in enumerate(parts) if (found := compiler.result_of(part))
    }
    return CompiledModel(
        claimed=claimed,
        division=division,
        model=model,
        names=tuple(f"{backends[part.provider].name}{i}" for i, part in enumerate(parts)),
        payloads={index: payload for index, (payload, _) in results.items()},
        folders={index: folder for index, (_, folder) in results.items()},
        findings=(*blame.findings, *_subgraph_findings(claimed, division, backends)),
    )


class _PartCompiler:
    """Compiles the parts of a claimed graph, each in a new process and only once."""

    def __init__(
        self,
        claimed: ClaimedModel,
        model: onnx.ModelProto,
        graph: GraphView,
        backends: Mapping[str, Backend],
        state: BuildState,
    ) -> None:
        """`graph` is that of `model`, the graph of `claimed`, which must not change meanwhile."""
        self._claimed = claimed
        self._graph = graph
        self._backends = backends
        self._context = state.context
        self._state = state
        self._extractor = Extractor(model, graph)
        smallest = claimed.optimized.specialized.sizes.corner("min")
        self._minimum_shapes: Mapping[str, tuple[int, ...]] = sizes_at(model, smallest).shapes
        # Payloads with the folders of their files, by provider and nodes.
        self._done: dict[tuple[str, tuple[int, ...]], tuple[Payload, Path]] = {}
        # Providers that compile all constants into their parts.
        self._unshared: set[str] = set()

    def result_of(self, part: Part) -> tuple[Payload, Path] | None:
        """The compiled payload of `part`, and the folder of its files."""
        return self._done.get((part.provider, part.nodes))

    def compile(self, assignment: Assignment, attempt: int) -> list[tuple[Part, AotcError]]:
        """Compile all parts that are not compiled yet; the failed ones with their errors.

        `attempt` counts from 0.
        """
        begun = {
            part: self._submit(part, attempt)
            for part in assignment.parts
            if self._backends[part.provider].compiles and not self.result_of(part)
        }
        for name in dict.fromkeys(part.provider for part in begun):
            number = sum(part.provider == name for part in begun)
            with_backend = f"with {self._backends[name].name}, {self._claimed.plan.name}"
            self._state.announce(f"compile {number} partitions {with_backend}")
        failed: list[tuple[Part, AotcError]] = []
        for number, (part, (job, folder)) in enumerate(begun.items()):
            self._state.clock.reporter.count(number, len(begun), "partitions")
            try:
                self._done[part.provider, part.nodes] = _payload_of(job.result()), folder
            except AotcError as error:
                if error.code not in _FAILURES:
                    raise
                self._state.announce(error.line())
                failed.append((part, error))
        return failed

    def unshare_mixed(self, assignment: Assignment) -> bool:
        """Discard parts that one session cannot read together; whether there were any.

        Options by which some parts read the shared weights would apply to parts that must not read
        them.  All parts of such a provider are therefore compiled again with all their constants.
        """
        found: dict[str, list[Payload]] = {}
        for part in assignment.parts:
            if result := self.result_of(part):
                found.setdefault(part.provider, []).append(result[0])
        mixed = {
            name
            for name, payloads in found.items()
            if any(payload.options for payload in payloads)
            and any(not payload.options and not payload.mixes_with_shared for payload in payloads)
        } - self._unshared
        self._done = {key: result for key, result in self._done.items() if key[0] not in mixed}
        self._unshared |= mixed
        return bool(mixed)

    def _submit(self, part: Part, attempt: int) -> tuple[Future[Json], Path]:
        """Start to compile `part`, with its files in the folder that comes second.

        The result raises AOTC-P005, P010 and I013 to I015.
        """
        plan, context, state = self._claimed.plan, self._context, self._state
        backend = self._backends[part.provider]
        # The name depends on the part alone, not on the rest: equal parts have equal bytes.
        names = "\n".join(self._graph.nodes[index].name for index in part.nodes)
        stem = f"{backend.name}-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
        folder = state.work / f"compile-{plan.name}-{stem}-{attempt}"
        folder.mkdir()
        try:
            extracted = self._extractor.extract(part.nodes, stem)
        except ValueError as error:
            failed: Future[Json] = Future()
            failed.set_exception(AotcError("AOTC-P005", str(error), where=stem))
            return failed, folder
        text = extracted.SerializeToString(deterministic=True)
        (folder / f"{stem}.onnx").write_bytes(text)
        request: dict[str, Json] = {
            "backend": backend.name,
            "plugins": context.plugins(),
            "stem": stem,
            "target": encode(context.target, full=True),
            "precision": backend.computes_in(plan.precision),
            "shapes": self._shapes(part),
            # Whether constants are read from the shared weights.
            "share": part.provider not in self._unshared,
        }
        key = part_key(request, extracted, text, self._claimed.weights, backend, state)
        job = state.workers.submit(
            cached_or_compiled,
            request,
            key,
            self._claimed.weights,
            folder,
            f"variant {plan.name}, provider {backend.name}",
            state,
        )
        return job, folder

    def _shapes(self, part: Part) -> dict[str, list[list[int]]]:
        """(Minimum, optimum, maximum) shapes of each boundary input, if all are known."""
        if self._claimed.sizes is None:
            return {}
        opt, largest = self._claimed.sizes
        found = {}
        for value in boundary_values(self._graph, part.nodes)[0]:
            shapes = [
                known.get(value) for known in (self._minimum_shapes, opt.shapes, largest.shapes)
            ]
            if all(shape is not None for shape in shapes):
                found[value] = [list(shape or ()) for shape in shapes]
        return found


def _subgraph_findings(
    claimed: ClaimedModel, division: Division, backends: Mapping[str, Backend]
) -> list[Finding]:
    """AOTC-P011 for subgraph nodes that a compiling provider claims but cannot get there."""
    claims = dict(claimed.claims)
    findings = []
    for name, backend in backends.items():
        stays = [
            node.name
            for body in division.graph.bodies
            for node in body.nodes
            if node.name in claims[name] and division.assignment.providers[node.name] != name
        ]
        if backend.compiles and stays:
            findings.append(
                Finding(
                    code="AOTC-P011",
                    what=f"{len(stays)} nodes in subgraphs of control flow go to the next "
                    f"provider, as {backend.name} did not claim the control flow itself",
                    where=f"variant {claimed.plan.name}",
                )
            )
    return findings


class CompileFailures:
    """The nodes that move to the next provider because a part with them could not be compiled."""

    def __init__(
        self, graph: GraphView, variant: str, refusals: Sequence[RefusedNode] = ()
    ) -> None:
        """`refusals` are those of nodes that were not claimed."""
        self._graph = graph
        self._variant = variant
        self.refused: dict[str, set[str]] = {}
        self.refusals = list(refusals)
        self.findings: list[Finding] = []

    def refuse_nodes(self, part: Part, error: AotcError, attempt: int) -> None:
        """Refuse those nodes of a part that its failure names; all of them if it names none."""
        nodes = {self._graph.nodes[index].name: self._graph.nodes[index] for index in part.nodes}
        text = f"{error.what}: {error.found}"
        left = _nodes_named_in(text, nodes) if attempt < _MAX_ROUNDS else frozenset()
        left = left or _ort_operators(nodes) or frozenset(nodes)
        refused = self.refused.setdefault(part.provider, set())
        refused.update(left)
        # The details of a crash or a hang would differ the next time.
        reason = error.found if error.code == "AOTC-P005" and error.found else error.what
        for name in [candidate for candidate in nodes if candidate in left]:
            refused.update(self._graph.inside.get(name, ()))
            self.refusals.append(
                RefusedNode(
                    node=name,
                    op=op_of(nodes[name]),
                    provider=part.provider,
                    reason=f"could not be compiled: {reason}"[:300],
                )
            )
        self.findings.append(
            Finding(
                code="AOTC-P006",
                what=f"{part.provider} could not compile {len(nodes)} nodes ({error.code}: "
                f"{reason[:600]}); {len(left)} are left to the next provider",
                where=f"variant {self._variant}",
            )
        )


def _nodes_named_in(text: str, nodes: Mapping[str, onnx.NodeProto]) -> frozenset[str]:
    """Nodes that a message names, by their names or by their outputs."""
    made = {value: name for name, node in nodes.items() for value in node.output if value}
    words = names_in_message(text, {**nodes, **made})
    return frozenset(made.get(word, word) for word in words)


def _ort_operators(nodes: Mapping[str, onnx.NodeProto]) -> frozenset[str]:
    """Nodes of ONNX Runtime's own operators, which other providers misread most often."""
    found = frozenset(
        name for name, node in nodes.items() if node.domain.startswith("com.microsoft")
    )
    return found if len(found) < len(nodes) else frozenset()


def _payload_of(value: Json) -> Payload:
    """The payload from the result of `compile_job`."""
    return Payload(
        attributes=value["attributes"],
        files=tuple(value["files"]),
        compatibility=value["compatibility"],
        options=value["options"],
        mixes_with_shared=value["mixes_with_shared"],
    )


def compile_job(request: Json) -> Json:
    """In the worker: compile one partition."""
    backend = requested_backend(request)
    payload = backend.compile(
        CompileRequest(
            # Relative, so that no path of this machine is written.
            model=Path(f"{request['stem']}.onnx"),
            weights=Path(request["weights"]),
            stem=request["stem"],
            target=decode(Target, request["target"]),
            precision=request["precision"],
            shapes={
                name: (tuple(shapes[0]), tuple(shapes[1]), tuple(shapes[2]))
                for name, shapes in request["shapes"].items()
            },
            share=request["share"],
        )
    )
    return {
        **values_of(payload),
        "files": list(payload.files),
        "attributes": dict(payload.attributes),
        "options": dict(payload.options),
    }


# A lowered variant as a worker is given it, and its session there.


def variant_request(lowered: LoweredModel, context: BuildContext, *, divided: bool = True) -> Json:
    """The variant, or with `divided=False` its undivided graph on the CPU."""
    claimed = lowered.partitioned.claimed
    # Its calls have many sizes, each run once: no graph is captured.
    session = lowered.session if divided else SessionSpec(optimization="disable")
    plugins = context.profile.plugins
    return {
        "model": str(lowered.model if divided else claimed.graph),
        "contexts": bool(lowered.contexts) and divided,
        "weights": str(lowered.weights if divided else claimed.weights),
        "twin": None if divided else _twin(lowered, context),
        "session": encode(session),
        "providers": list(lowered.providers) if divided else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()},
        "free": draws_freely(lowered),
    }


def draws_freely(lowered: LoweredModel) -> bool:
    """Whether calls go on from draw to draw: so they are timed, though first draws are judged."""
    random = lowered.partitioned.claimed.optimized.specialized.analyzed.source.random
    return random is not None and random.policy == "free"


def _twin(lowered: LoweredModel, context: BuildContext) -> Json:
    """Of what the CPU runs a twin in float32: the type and the provider; None for other graphs.

    It has no kernels for bfloat16, and computes in float32 what is in float16.
    """
    plan = lowered.plan
    made = {record.name for record in lowered.optimized.passes}
    if not plan.half or (plan.half == "float16" and HALF_PRECISION not in made):
        return None
    backend = backend_of(plan.providers[0], context.profile.plugins)
    return {"to": plan.half, "ep": backend.ort_name}


def _graph_bytes(model: Path, twin: Json) -> bytes:
    if not twin:
        return model.read_bytes()
    from aotc.precision.half_twins import float_twin

    made = float_twin(onnx.load(model, load_external_data=False), twin["ep"], twin["to"])
    return made.SerializeToString()


def open_variant(
    request: Json,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    spec: Json = None,
    *,
    records: bool = True,
    threads: int | None = None,
    profile: Path | None = None,
) -> ort.InferenceSession:
    """In a worker: the session of the variant that `request` describes.

    `spec` replaces how the session is created; with `records` it records placement.  `threads`
    and `profile` are as for `create_session`.
    """
    from aotc.session.sessions import create_session

    model = Path(request["model"])
    return create_session(
        model if request["contexts"] else _graph_bytes(model, request["twin"]),
        decode(SessionSpec, spec or request["session"]),
        providers=request["providers"],
        weights_folder=Path(request["weights"]),
        context_path=model,
        libraries={name: Path(path) for name, path in request["libraries"].items()},
        record_placement=records,
        settings=settings,
        threads=threads,
        profile=profile,
    )
