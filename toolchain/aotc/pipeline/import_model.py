"""Import: from a file or bytes to a captured model and a staged graph without its weights."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from aotc.base.errors import AotcError
from aotc.base.files.reading import FileState, file_state, require_model_file
from aotc.base.records import field, record, replace
from aotc.base.text import listed
from aotc.graph.symbols import Symbols, symbols_of
from aotc.pipeline.context import BuildState
from aotc.pipeline.custom_ops import unused_libraries
from aotc.pipeline.integer_products import may_saturate, rewrite_products
from aotc.pipeline.plan import interface_types, stated_half_types, with_stated_values
from aotc.pipeline.types import SourceModel
from aotc.sources.base import Taken
from aotc.spec.codec import Json, decode, encode
from aotc.spec.manifest import Capture, Randomness, RandomNode
from aotc.spec.payload import Finding, Value
from aotc.spec.profile import RandomPolicy
from aotc.spec.run_report import Gate
from aotc.spec.variant import PassRecord
from aotc.spec.versions import DRAWS_KEY

if TYPE_CHECKING:
    import onnx

    from aotc.graph.model import Draw
    from aotc.graph.passes.base import Pass

_GIVEN = "given.onnx"
_GRAPH = "graph.onnx"
_OWN = "own"
_WEIGHTS = "source.bin"
_REFERENCE = "reference.onnx"
_REFERENCE_WEIGHTS = "reference.bin"
_DIMS: Final = "gates.dims"


def import_model(
    model: str | Path | bytes, state: BuildState, taken: Taken | None = None
) -> SourceModel:
    """Read, check and stage `model`: a path, or the bytes of a self-contained model.

    `taken` is the capture that it is from: its findings, ranges and relations are the model's.

    Dims that the profile states to be equal have one name from here on, and inputs and outputs of
    float32 have the half-precision types that it states.
    Raises AOTC-I001 to I007, I010 to I016, I042, I043, I096, I097 (random numbers), I106
    (operators), S004, S015 (relations), S002 (types and bounds of values), I111 (stated values),
    and I128 (dims that became static, where a gate forbids it).
    """
    context = state.context
    static = judge_dims(taken, state) if taken is not None else ()
    if isinstance(model, bytes):
        path = state.work / "given.onnx"
        path.write_bytes(model)
        name = "model"
    else:
        require_model_file(Path(model))
        path = Path(model).absolute()
        _refuse_undecodable(path)
        # Names in a manifest have no control characters.
        name = re.sub(r"[\x00-\x1f\x7f]", "_", taken.source_name if taken else Path(model).stem)
    folder = state.work / "import"
    try:
        result = state.workers.run(
            "aotc.pipeline.import_model:import_job",
            {
                "path": str(path),
                "relations": [
                    *context.profile.relations,
                    *(taken.captured.relations if taken is not None else ()),
                ],
                "types": stated_half_types(context.profile),
                "saturates": may_saturate(context.host),
                "random": context.profile.random,
                "custom_ops": {
                    library.described.sha256: str(library.file) for library in context.custom_ops
                },
            },
            folder=folder,
            where=path.name,
        ).value
    except AotcError as error:
        if error.code != "AOTC-I003" or not isinstance(model, bytes):
            raise
        raise AotcError(
            error.code,
            "a model given as bytes comes without its external data",
            where=str(Path(error.where).relative_to(state.work)),
            fix="Give the path of the model, so that its external data is found next to it.",
        ) from None
    path = Path(result["path"])
    captured = decode(Capture, result["capture"])
    symbols = with_stated_values(
        decode(Symbols, result["symbols"]),
        context.profile,
        taken.captured.values if taken is not None else {},
    )
    unused = unused_libraries(context.custom_ops, result["operators"])
    captured = replace(captured, findings=(*captured.findings, *unused))
    if taken is not None:
        captured = replace(
            captured,
            framework=taken.captured.framework,
            findings=(*taken.captured.findings, *static, *captured.findings),
        )
    return SourceModel(
        path=path,
        name=name,
        graph=folder / _GRAPH,
        weights=path.parent if captured.external_data else folder,
        reference=folder / _REFERENCE if result["reference"] else None,
        capture=captured,
        inputs=symbols.inputs(),
        symbols=symbols,
        outputs=tuple(decode(Value, item) for item in result["outputs"]),
        hints=result["hints"],
        passes=tuple(decode(PassRecord, item) for item in result["passes"]),
        retyped=result["retyped"],
        relisted=result["relisted"],
        random=decode(Randomness, result["random"]) if result["random"] else None,
        operators={digest: tuple(names) for digest, names in result["operators"].items()},
        states={
            **{Path(name): tuple(state) for name, state in result["states"].items()},
            **(taken.states if taken is not None else {}),
        },
        taken=taken,
    )


def _refuse_undecodable(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise AotcError(
            "AOTC-I001",
            "the path is not UTF-8, and ONNX Runtime cannot open it",
            where=ascii(str(path)),
            fix="Rename the file, or the folder that it is in.",
        ) from None


def import_job(request: Json) -> Json:
    """In the worker: capture, clean and name the model, and move its weights out of the graph."""
    from aotc.graph.external_data import copy_files, is_linked, locations, path_with_data
    from aotc.graph.model import (
        escape_text,
        graph_inputs,
        has_random_functions,
        model_bytes,
        parse_model,
        tensors,
    )
    from aotc.graph.passes.base import run_passes
    from aotc.graph.passes.on_import import (
        ConstantInputs,
        InlineFunctions,
        ListOutputsOnce,
        NameDims,
        NameNodes,
        StripMetadata,
    )
    from aotc.graph.weights import externalize
    from aotc.session.capture import (
        anonymous_names,
        capture,
        clashing_names,
        refuse_sparse,
        value_of,
    )
    from aotc.session.inference import (
        infer_outputs_with_runtime,
        operators_by_library,
        untyped_outputs,
    )
    from aotc.sizes.inputs.hints import hints_of

    path = Path(request["path"])
    states = _states([path])
    data = model_bytes(path)
    size = len(data)
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(lambda: hashlib.sha256(data).hexdigest())
        model = parse_model(data, path)
        if untyped_outputs(model):
            # What ONNX Runtime reads is what was read here, whatever the file holds by now.
            Path(_GIVEN).write_bytes(data)
        escaped = escape_text(model)
        names = locations(tensors(model))
        path = path_with_data(names, path)
        states |= _states(path.parent / name for name in names)
        captured = capture(model, path, size, digest.result())
    if is_linked(captured.external_data, path):
        own = Path(_OWN).absolute()
        copy_files(captured.external_data, path, own)
        name = path.name
        while (own / name).exists():
            name = f"_{name}"
        path = own / name
        path.write_bytes(data)
    del data
    libraries = {digest: Path(file) for digest, file in request["custom_ops"].items()}
    operators = operators_by_library(model, libraries) if libraries else {}
    infer_outputs_with_runtime(model, Path(_GIVEN), path.parent)
    refuse_sparse((*graph_inputs(model), *model.graph.output))
    passes: list[Pass] = [InlineFunctions()] if has_random_functions(model) else []
    passes += [StripMetadata(), NameNodes(), ConstantInputs()]
    once = ListOutputsOnce()
    relisted = once.has_work(model)
    if relisted:
        passes.append(once)
    retyping = interface_types(model, request["types"])
    if retyping is not None:
        passes.append(retyping)
    records = run_passes(model, passes)
    settled = settle_randomness(model, request["random"])
    records += settled.passes
    clashing = clashing_names(model)
    symbols = symbols_of(
        request["relations"],
        [value_of(info, clashing) for info in graph_inputs(model)],
        anonymous_names(model),
    )
    naming = NameDims(names=symbols.names, clashing=clashing)
    if naming.has_work(model):
        records += run_passes(model, (naming,))
    outputs = [value_of(info) for info in model.graph.output]
    try:
        hints = hints_of(model)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        # A malformed constant: ONNX Runtime will say what is wrong with it.
        hints = {}
    hints |= {name: dict(hint) for name, hint in settled.hints.items()}
    if not captured.external_data:
        externalize(model, Path(), _WEIGHTS)
    Path(_GRAPH).write_bytes(model.SerializeToString(deterministic=True))
    findings = [
        *captured.findings,
        *escaped,
        *settled.findings,
        *_checker_findings(path if captured.external_data else Path(_GRAPH)),
    ]
    data = encode(captured)
    data["findings"] = encode(tuple(findings))
    return {
        "path": str(path),
        "states": states,
        "capture": data,
        "reference": request["saturates"]
        and _exact_reference(model, path.parent if captured.external_data else Path()),
        "symbols": encode(symbols),
        "outputs": [encode(value) for value in outputs],
        "hints": hints,
        "passes": [encode(record) for record in records],
        "retyped": retyping is not None,
        "relisted": relisted,
        "random": encode(settled.random) if settled.random is not None else None,
        "operators": operators,
    }


def _states(paths: Iterable[Path]) -> dict[str, FileState]:
    """The states of files before they are read; what is not there is refused when it is."""
    found = {}
    for path in paths:
        with suppress(OSError, ValueError):
            found[str(path)] = file_state(path)
    return found


def _exact_reference(staged: onnx.ModelProto, weights: Path) -> bool:
    """Write the model with integer products that are exact on this CPU; False if all are exact.

    Its external data is in the folder `weights`.
    """
    import onnx
    import onnx.inliner

    from aotc.graph.weights import externalize, gather_tensors

    model = onnx.ModelProto()
    model.CopyFrom(staged)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    _, count = rewrite_products(model, weights)
    if not count:
        return False
    gather_tensors(model, weights, Path(_REFERENCE_WEIGHTS))
    externalize(model, Path(), _REFERENCE_WEIGHTS)
    Path(_REFERENCE).write_bytes(model.SerializeToString(deterministic=True))
    return True


def _checker_findings(path: Path) -> list[Finding]:
    """A failure of onnx.checker is only a finding: it rejects files that ONNX Runtime runs."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        return [Finding(code="AOTC-I030", what=first.replace(str(path), path.name)[:300])]
    return []


# What holds for the random numbers of the model, by the policy of the profile.


_MAX_NAMED: Final = 5
# Of a distribution: mean and scale, or low and high.
_PARAMETERS: Final = 2


@record
class Settled:
    """What was settled: the record of the manifest, the passes that were run, and findings.

    `hints` tell from what the inputs that have the numbers are drawn.
    """

    random: Randomness | None = None
    passes: tuple[PassRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    hints: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)


def settle_randomness(model: onnx.ModelProto, policy: RandomPolicy) -> Settled:
    """Apply `policy` to `model`, whose nodes have unique names.

    Raises AOTC-I011 (refuse, and of a function that could not be inlined), I096 (as-input, where no
    input can have the numbers) and I097 (seed, of a node that has none).  Nodes on which no output
    depends are left as they are.
    """
    from aotc.graph.model import dependent_outputs, draws
    from aotc.graph.passes.base import run_passes

    # Of a graph that was taken out of an artifact.
    for index in reversed(range(len(model.metadata_props))):
        if model.metadata_props[index].key == DRAWS_KEY:
            del model.metadata_props[index]
    found = draws(model)
    if not found:
        return Settled()
    inside = next((draw.node for draw in found if draw.owner is None), None)
    if policy == "refuse" or inside is not None:
        node = inside or found[0].node
        within = " in a function that cannot be inlined" if inside is not None else ""
        what = f"{node.op_type} draws random numbers{within}"
        raise AotcError("AOTC-I011", what, where=f"node {node.name}")
    behind = dependent_outputs(model, found)
    described = [draw.described(outputs) for draw, outputs in zip(found, behind, strict=True)]
    used = [draw for draw, outputs in zip(found, behind, strict=True) if outputs]
    if policy == "as-input":
        random, graph_pass = _as_inputs(model, used, described)
    else:
        random, graph_pass = _by_seeds(used, described, policy)
    return Settled(
        random=random,
        passes=run_passes(model, (graph_pass,)) if used else (),
        findings=tuple(_findings(random)),
        hints={
            each.input: {"kind": each.distribution, **each.parameters}
            for each in random.nodes
            if each.input
        },
    )


def _by_seeds(
    used: Sequence[Draw], described: Sequence[RandomNode], policy: RandomPolicy
) -> tuple[Randomness, Pass]:
    from aotc.graph.passes.on_import import SeedDraws

    seeds = {draw.node.name: draw.seed for draw in used if draw.seed is not None}
    missing = [draw.node for draw in used if draw.seed is None]
    if missing and policy == "seed":
        raise AotcError(
            "AOTC-I097",
            f"{missing[0].op_type} has no seed",
            where=f"node {missing[0].name}",
            expected="an attribute 'seed' from 0 to 4294967295",
            found=f"none, or none that can be one, at {listed([node.name for node in missing])}",
        )
    # Equal seeds draw equal numbers, which would not be independent.
    taken = set(seeds.values())
    free = (number for number in range(1, len(used) + 1 + len(taken)) if number not in taken)
    new = {node.name: seed for node, seed in zip(missing, free, strict=False)}
    nodes = tuple(
        replace(each, seed=seeds.get(each.node, new.get(each.node)), given=each.node in new)
        for each in described
    )
    settled: Literal["free", "seed"] = "seed" if policy == "seed" else "free"
    return Randomness(policy=settled, nodes=nodes), SeedDraws(seeds=new)


def _as_inputs(
    model: onnx.ModelProto, used: Sequence[Draw], described: Sequence[RandomNode]
) -> tuple[Randomness, Pass]:
    from aotc.graph.passes.base import all_names, free_name
    from aotc.graph.passes.on_import import DrawsAsInputs, NumberShapes, repeats

    shapes = NumberShapes(model)
    names = all_names(model)
    finite = {each.node for each in described if len(each.parameters) == _PARAMETERS}
    inputs: dict[str, str] = {}
    for draw in used:
        node = draw.node
        if around := repeats(draw.holders):
            _refuse(node, f"it is in the body of a {around}, and draws in each of its trips")
        dims = shapes.of(node)
        if isinstance(dims, str):
            _refuse(node, dims)
        if not shapes.element_type(node):
            _refuse(node, "the type of the numbers is not known")
        if node.name not in finite:
            _refuse(node, "its mean, scale, low or high is not finite")
        inputs[node.name] = free_name(f"{node.name}_noise", names)
    nodes = tuple(replace(each, input=inputs.get(each.node, "")) for each in described)
    return Randomness(policy="as-input", nodes=nodes), DrawsAsInputs(inputs=inputs)


def _refuse(node: onnx.NodeProto, why: str) -> NoReturn:
    raise AotcError(
        "AOTC-I096",
        f"the random numbers of {node.op_type} cannot be an input",
        where=f"node {node.name}",
        expected="a shape of sizes and dims of the inputs, outside of loops",
        found=why,
    )


def _findings(random: Randomness) -> Iterator[Finding]:
    for each in random.nodes[:_MAX_NAMED]:
        yield Finding(code="AOTC-I098", what=each.in_words(), where=f"node {each.node}")
    if len(random.nodes) > _MAX_NAMED:
        rest = listed([each.node for each in random.nodes[_MAX_NAMED:]])
        yield Finding(code="AOTC-I098", what=f"so do {rest}", where="model")
    outputs = list(dict.fromkeys(name for each in random.nodes for name in each.outputs))
    if not outputs:
        return
    compared = {
        "seed": "compared with the numbers that the seeds draw, as every call does",
        "free": "compared with the first numbers that the seeds draw; later calls draw others",
        "as-input": "compared with random numbers that are inputs of fixtures",
    }[random.policy]
    what = f"{listed(outputs)}: {compared}"
    yield Finding(code="AOTC-N062", what=what, where=f"random: {random.policy}")


# What the framework made static, of a model that was captured from its source.


def judge_dims(taken: Taken, state: BuildState) -> tuple[Finding, ...]:
    """AOTC-I124 for each dim that was to be dynamic, I123 without any; the gate raises I128."""
    found = taken.captured.framework
    findings = [
        Finding(
            code="AOTC-I124",
            what=f"{each.input}.{each.axis} has the size {each.size} alone"
            + (f": {each.why}" if each.why else ""),
            where=each.place or f"input {each.input}",
        )
        for each in found.static_dims
    ]
    if not found.dims:
        what = "every dim of the inputs has one size"
        findings.append(Finding(code="AOTC-I123", what=what, where=found.source))
    if state.context.profile.gates.dims is None:
        return tuple(findings)
    place = state.context.places.of(_DIMS)
    gate = Gate(
        name=_DIMS,
        subject="model",
        status="failed" if findings else "passed",
        limit="dims that were asked to be dynamic are, and one is",
        measured=listed([each.what for each in findings]) or f"{len(found.dims)} are",
        place=place,
    )
    state.journal.judged((gate,))
    if findings:
        raise AotcError(
            "AOTC-I128",
            "dims are static",
            where=findings[0].where,
            expected=gate.limit,
            found=gate.measured[:1000],
            place=place,
        )
    return ()
