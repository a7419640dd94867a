"""The original model computed in float64: expected answers, and what they say of its own noise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnx.inliner

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.weights import externalize
from aotc.precision.half_conversion import lift_constants
from aotc.precision.half_twins import DoubleTwin, changes_nothing, without_float64
from aotc.session.inference import create_original, open_original, with_types
from aotc.session.limits import judged_limits
from aotc.session.parity import WITHOUT_SLICES, compare
from aotc.session.sessions import reference_options, run
from aotc.sizes.runs import TooManyAtOnceError, answers, runs_at_once
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import OutputNoise
from aotc.spec.payload import Finding
from aotc.spec.precision import OutputGate, Tolerance

_TWIN: Final = "float64.onnx"
_WEIGHTS: Final = "float64.bin"
_MAX_TRIALS: Final = 8
# ONNX Runtime names the node that it has no kernel for.
_NO_KERNEL: Final = re.compile(r"implementation for (\w+)\(\d+\) node with name '([^']*)'")


def float64_job(request: Json) -> Json:
    """In the worker: the answers of the model in float64, in the types of its outputs.

    Returns the files of outputs by reference, the noise of the float32 answers by output, and
    findings.  If ONNX Runtime runs no twin of the model there are no files, and a finding says why.
    """
    try:
        return _answers(request)
    except AotcError as error:
        what = f"the model cannot be computed in float64: {error.found or error.what}"[:500]
        finding = Finding(code="AOTC-N026", what=what, where="reference")
        return {"outputs": [], "noise": [], "findings": [encode(finding)]}


def second_job(request: Json) -> Json:
    """In the worker: files of the original's answers, computed otherwise, for each of `references`.

    In float64, in the types of its outputs; where that cannot be, or the references are in float64
    (`exact`), as it is, at all of ONNX Runtime's levels of optimization.
    """
    model, weights = Path(request["model"]), Path(request["weights"])
    try:
        if request["exact"]:
            raise AotcError("AOTC-N026", "the references are in float64")
        session, _ = _open_twin(model, weights)
    except AotcError:
        session = create_original(model, reference_options(level="all", weights=weights))
    found: list[dict[str, str]] = []
    for index, answered in enumerate(_each_answer(session, request["references"])):
        place = Path(str(index))
        place.mkdir()
        found.append(
            {
                name: str(values.save(answer, place / f"output_{at}"))
                for at, (name, answer) in enumerate(answered.items())
            }
        )
    return found


def _each_answer(session: Any, references: Sequence[Json]) -> list[dict[str, Any]]:
    """The outputs of each reference by name; each run on one thread, and several at once.

    The largest runs first and alone: it shows how much memory a run takes.
    """

    def answer(reference: Json) -> dict[str, Any]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        names = list(reference["outputs"])
        return dict(zip(names, run(session, inputs, names), strict=True))

    def size(index: int) -> int:
        return sum(Path(path).stat().st_size for path in references[index]["inputs"].values())

    ordered = sorted(range(len(references)), key=size, reverse=True)
    found = {index: answer(references[index]) for index in ordered[:1]}
    others = [references[index] for index in ordered[1:]]
    try:
        made = list(answers(others, answer, runs_at_once(len(others)), lambda: None))
    except TooManyAtOnceError:
        made = [answer(reference) for reference in others]
    for index, outcome in zip(ordered[1:], made, strict=True):
        if isinstance(outcome, AotcError):
            raise outcome
        found[index] = outcome
    return [found[index] for index in range(len(references))]


def _answers(request: Json) -> Json:
    session, findings = _open_twin(Path(request["model"]), Path(request["weights"]))
    tolerances = {
        setting: decode(Tolerance, item) for setting, item in request["tolerances"].items()
    }
    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    noise: dict[str, OutputNoise] = {}
    written: list[dict[str, str]] = []
    references = request["references"]
    answered = _each_answer(session, references)
    for index, (reference, answer) in enumerate(zip(references, answered, strict=True)):
        place = Path(str(index))
        place.mkdir()
        files = {}
        for at, (name, exact) in enumerate(answer.items()):
            files[name] = str(values.save(exact, place / f"output_{at}"))
            if not _is_float(exact):
                continue
            original = values.load(Path(reference["outputs"][name]))
            found = _noise(exact, original, name, tolerances, gates.get(name), request["keys"])
            noise[name] = _worse(noise[name], found) if name in noise else found
        written.append(files)
    return {
        "outputs": written,
        "noise": [encode(item) for item in noise.values()],
        "findings": [encode(finding) for finding in findings],
    }


def _open_twin(path: Path, weights: Path) -> tuple[Any, tuple[Finding, ...]]:
    """A session of the twin, and what of it computes in float32."""
    model = onnx.load(path, load_external_data=False)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    lift_constants(model)
    run_passes(model, (NameNodes(),))
    typed = with_types(model, weights)
    if changes_nothing(typed):
        return open_original(path, weights)[1], ()

    def read(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
        return onnx.numpy_helper.to_array(tensor, str(weights))

    kept = without_float64(typed)
    total = sum(node.op_type != "Constant" for node in typed.graph.node)
    for _ in range(_MAX_TRIALS):
        twin = onnx.ModelProto()
        twin.CopyFrom(typed)
        run_passes(twin, (DoubleTwin(kept=frozenset(kept), read=read),))
        del twin.graph.value_info[:]
        _inline(twin, read)
        Path(_WEIGHTS).unlink(missing_ok=True)
        externalize(twin, Path(), _WEIGHTS)
        Path(_TWIN).write_bytes(twin.SerializeToString())
        try:
            session = open_original(Path(_TWIN), Path())[1]
            break
        except AotcError as error:
            refused = _NO_KERNEL.search(error.found)
            ops = {node.name: node.op_type for node in typed.graph.node}
            if refused is None or refused[2] not in ops or refused[2] in kept:
                raise
            kept.update({name: op for name, op in ops.items() if op == refused[1]})
    else:
        raise AotcError("AOTC-N026", "too many operators have no kernel in float64")
    if not kept:
        return session, ()
    ops_text = ", ".join(f"{count} {op}" for op, count in sorted(Counter(kept.values()).items()))
    what = f"{len(kept)} of {total} nodes compute in float32: {ops_text}"[:500]
    return session, (Finding(code="AOTC-N026", what=what, where="reference"),)


def _inline(model: onnx.ModelProto, read: Any) -> None:
    """Read what stays in the source's external files, so that the twin has one file of its own."""
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(onnx.numpy_helper.from_array(read(tensor), tensor.name))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and values.dtype_name(value.dtype) in (
        "float16",
        "bfloat16",
        "float32",
    )


def _noise(
    exact: Any,
    original: Any,
    name: str,
    tolerances: Mapping[str, Tolerance],
    gate: OutputGate | None,
    keys: Mapping[str, str],
) -> OutputNoise:
    """The error of the float32 answer, and what of tolerances and limits it does not keep."""
    below = []
    measured = compare(exact, original, Tolerance(atol=0.0, rtol=0.0), name, beside=WITHOUT_SLICES)
    if gate is None or not gate.replaces_tolerance:
        for setting, tolerance in tolerances.items():
            found = compare(exact, original, tolerance, name, beside=WITHOUT_SLICES)
            if not found.passed:
                below.append(f"{setting}: {found.reason}")
    if gate is not None:
        measured = compare(
            exact, original, Tolerance(atol=0.0, rtol=0.0), name, gate, WITHOUT_SLICES
        )
        below += [
            f"gates.outputs.{keys[name]}.{limit.name}: {limit.limit}, noise {limit.found}"
            for limit in judged_limits(measured, gate)
            if not limit.passed
        ]
    return OutputNoise(
        output=name,
        max_abs=measured.max_abs,
        max_rel=measured.max_rel,
        cosine=measured.cosine,
        sqnr_db=measured.sqnr_db,
        breached=tuple(below),
    )


def _worse(one: OutputNoise, other: OutputNoise) -> OutputNoise:
    # Of each limit, what the worse of the two says.
    ordered = sorted((one, other), key=lambda each: each.max_abs)
    below = {text.partition(": ")[0]: text for each in ordered for text in each.breached}
    cosines = [each.cosine for each in (one, other) if each.cosine is not None]
    ratios = [each.sqnr_db for each in (one, other) if each.sqnr_db is not None]
    return OutputNoise(
        output=one.output,
        max_abs=max(one.max_abs, other.max_abs),
        max_rel=max(one.max_rel, other.max_rel),
        cosine=min(cosines, default=None),
        sqnr_db=min(ratios, default=None),
        breached=tuple(below.values()),
    )
