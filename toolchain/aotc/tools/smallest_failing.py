"""The smallest part of a variant that is out of tolerance by itself, and a report of the bug."""

from __future__ import annotations

import json
import math
import runpy
import shutil
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph.partition.division import keep_constants
from aotc.graph.passes.base import rename_captured
from aotc.graph.values import Data, dtype_name
from aotc.graph.view import GraphView
from aotc.host.cpu import usable_cores
from aotc.precision.node_comparison import BLOCKED_DOMAIN, MatchedValue, Place, Side, matched_values
from aotc.session.inference import outputs_of, with_outputs
from aotc.session.parity import WITHOUT_SLICES, compare
from aotc.session.sessions import level_name, observe, ort_errors
from aotc.spec.codec import Json
from aotc.spec.evidence import NodeError, NodeErrors, OutputError
from aotc.spec.precision import Tolerance
from aotc.spec.providers import CPU, EP_CONTEXT

# A failing part as files that need only ONNX Runtime and numpy, ready for a report of a bug.


SUBMODEL: Final = "submodel.onnx"
REFERENCE: Final = "reference.onnx"
# Beyond it, protobuf cannot hold a model, and weights go to a file beside it.
MOST_BYTES: Final = 2_000_000_000
FILES: Final = (
    *(SUBMODEL, REFERENCE, "inputs.npz", "expected.npz", "found.npz", "report.json"),
    "reproduce.py",
)

_SCRIPT: Final = '''\
"""Exits with 1 while submodel.onnx differs from reference.onnx by more than the tolerance."""

import ctypes
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).parent
REPORT = json.loads((HERE / "report.json").read_text())
# This script's arguments: libraries of plugins and of custom operators.
LIBRARIES = {hashlib.sha256(Path(name).read_bytes()).hexdigest(): name for name in sys.argv[1:]}
INPUTS = dict(np.load(HERE / "inputs.npz"))
# numpy has no bfloat16: the file has its bits.
BFLOAT16 = 16


def add(options, name, settings):
    """Add a provider of ONNX Runtime, or of a plugin library, which is an argument."""
    if name in ort.get_available_providers():
        options.add_provider(name, settings)
        return
    if name not in {device.ep_name for device in ort.get_ep_devices()}:
        for digest, library in LIBRARIES.items():
            if digest not in REPORT["custom_ops"]:
                ort.register_execution_provider_library(name, library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == name]
    if not devices:
        sys.exit(f"name the plugin library that has {name} as the argument")
    options.add_provider_for_devices(devices[:1], settings)


def answer(name, settings):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(
        ort.GraphOptimizationLevel, settings["optimization"]
    )
    options.intra_op_num_threads = settings["threads"]
    options.inter_op_num_threads = 1
    for digest, library in REPORT["custom_ops"].items():
        if digest not in LIBRARIES:
            sys.exit(f"name the library of custom operators {library} as an argument")
        options.register_custom_ops_library(LIBRARIES[digest])
    for key, value in settings["config"].items():
        options.add_session_config_entry(key, value)
    for provider, stated in settings["providers"].items():
        # ONNX Runtime adds the CPU itself.
        if provider != "CPU_PROVIDER":
            add(options, provider, stated)
    session = ort.InferenceSession(str(HERE / name), options)
    given = {value.name: tensor(value) for value in session.get_inputs()}
    if session.get_outputs()[0].type != "tensor(bfloat16)":
        return session.run(None, given)[0].astype(np.float64)
    values = {
        name: ort.OrtValue.ortvalue_from_numpy(data) if isinstance(data, np.ndarray) else data
        for name, data in given.items()
    }
    return numbers(session.run_with_ort_values(None, values)[0])


def tensor(value):
    data = INPUTS[value.name]
    if value.type == "tensor(bfloat16)":
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(data, BFLOAT16)
    return data


def numbers(value):
    size = int(np.prod(value.shape(), dtype=np.int64)) * 2
    bits = np.frombuffer((ctypes.c_char * size).from_address(value.data_ptr()), np.uint16)
    wide = bits.astype(np.uint32) << 16
    return wide.view(np.float32).astype(np.float64).reshape(value.shape())


expected = answer("reference.onnx", REPORT["reference_session"])
found = answer("submodel.onnx", REPORT["session"])
usual = np.isfinite(expected) & np.isfinite(found)
misplaced = int(np.sum((expected != found) & ~usual & ~(np.isnan(expected) & np.isnan(found))))
error = float(np.max(np.abs(expected - found)[usual], initial=0.0))
scale = float(np.max(np.abs(expected)[np.isfinite(expected)], initial=0.0))
bound = REPORT["tolerance"]["atol"] + REPORT["tolerance"]["rtol"] * scale
one, other = expected[usual].ravel(), found[usual].ravel()
norms = float(np.linalg.norm(one) * np.linalg.norm(other))
cosine = float(one @ other) / norms if norms else 1.0
turned = (
    one.size > 1
    and error > REPORT["tolerance"]["atol"]
    and cosine < REPORT["tolerance"]["min_cosine"]
)
print(f"onnxruntime {ort.__version__}: largest error {error:.3g}, allowed {bound:.3g};")
print(f"cosine {cosine:.6f}; {misplaced} NaN or infinite values differ")
sys.exit(1 if error > bound or misplaced or turned else 0)
'''


def write_report(
    folder: Path,
    part: onnx.ModelProto,
    reference: onnx.ModelProto,
    arrays: Mapping[str, Mapping[str, Data]],
    report: Json,
    *,
    most_bytes: int = MOST_BYTES,
) -> tuple[str, ...]:
    """Write a part, the source's nodes, `arrays` (by file's stem and name) and the report.

    Returns the names of the files.  Nothing in them names a host or a path.  Arrays in bfloat16,
    which numpy has not, are written as their bits, in uint16.
    """
    written = list(FILES)
    for name, model in ((SUBMODEL, part), (REFERENCE, reference)):
        data = f"{Path(name).stem}.bin"
        if model.ByteSize() > most_bytes:
            onnx.save(model, folder / name, save_as_external_data=True, location=data)
            written.append(data)
        else:
            (folder / name).write_bytes(model.SerializeToString(deterministic=True))
    for stem, values in arrays.items():
        _write_npz(folder / f"{stem}.npz", values)
    (folder / "report.json").write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    (folder / "reproduce.py").write_text(_SCRIPT.replace("CPU_PROVIDER", CPU))
    return tuple(written)


def session_of(side: Side) -> Json:
    """How the script creates a session like that of `side`."""
    session = side.session
    return {
        "optimization": level_name(session.optimization),
        "threads": session.threads,
        "config": dict(session.config),
        "providers": {
            name: dict(session.provider_options.get(name, {})) for name in side.providers
        },
    }


def fails(folder: Path, libraries: Sequence[str] = ()) -> bool:
    """Whether the script of the report in `folder` says so itself, in this process.

    `libraries` are those of custom operators, which are its arguments.
    """
    unusable: tuple[type[Exception], ...] = (OSError, KeyError, TypeError, ValueError)
    try:
        with redirect_stdout(StringIO()), _arguments(["reproduce.py", *libraries]):
            runpy.run_path(str(folder / "reproduce.py"))
    except SystemExit as done:
        return done.code == 1
    except (*ort_errors(), *unusable):
        return False
    return False


@contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = before


def _write_npz(path: Path, values: Mapping[str, Data]) -> None:
    """Like `numpy.savez`, for any names: its own parameters may not be names of arrays."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in values.items():
            array: Any = np.asarray(value)
            if array.dtype.kind == "O":
                array = array.astype(str)
            elif dtype_name(array.dtype) == "bfloat16":
                array = array.view(np.uint16)
            # A fixed time: equal values give equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def copy_report(made: Path, folder: Path) -> None:
    """Copy the files of a report into `folder`."""
    for file in sorted(made.iterdir()):
        shutil.copyfile(file, folder / file.name)


# Parts of a variant as models of their own, beside the source's nodes that they stand for.
#
# Both take the source's values at their inputs and give the source's value at their output, so that
# they can be fed alike: what a variant has in integers, in half precision or in another layout is
# converted inside of its part.


@record(kw_only=False)
class Cut:
    """Nodes of a main graph that make one value, in order, and the values that they are given."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]


def cut(graph: GraphView, value: str, stops: Collection[str]) -> Cut:
    """The nodes between `stops`, or the graph's inputs, and `value`."""
    found, inputs = graph.behind((value,), {*stops, *graph.inputs})
    return Cut(tuple(graph.nodes[index] for index in found), inputs)


class PartModel:
    """A model that is made of some nodes of another, with constants in the model itself."""

    def __init__(self, model: onnx.ModelProto, weights: Path, nodes: Sequence[onnx.NodeProto]):
        self._source = model
        self._weights = weights
        self.model = onnx.ModelProto(ir_version=model.ir_version)
        self.model.opset_import.extend(model.opset_import)
        self.model.functions.extend(model.functions)
        self.model.graph.name = "part"
        self._nodes = [_copy(node) for node in nodes]
        self._before: list[onnx.NodeProto] = []
        self._after: list[onnx.NodeProto] = []

    def given(self, name: str, data: Data, place: Place | None, kind: str) -> None:
        """Add the input `name` with the type of `data`; the nodes read it as the variant has it.

        `kind` is the variant's element type in ONNX Runtime's word, such as `float16`.
        """
        self.model.graph.input.append(_info(name, data))
        inner = place.value if place is not None else name
        steps = _conversions(data, place, kind)
        if not steps:
            if inner != name:
                self._rename(inner, name)
            return
        if inner == name:
            inner = f"{name}/converted"
            self._rename(name, inner)
        self._convert(self._before, name, steps, inner)

    def gives(self, name: str, data: Data, place: Place, kind: str) -> None:
        """Make the value at `place` the output `name`, with the type of `data`."""
        self.model.graph.output.append(_info(name, data))
        steps = _back(data, place, kind)
        inner = place.value
        if not steps:
            if inner != name:
                self._rename(inner, name)
            return
        if inner == name:
            inner = f"{name}/unconverted"
            self._rename(name, inner)
        self._convert(self._after, inner, steps, name)

    def finished(self) -> onnx.ModelProto:
        """The model, with the constants that its nodes read."""
        self.model.graph.node.extend([*self._before, *self._nodes, *self._after])
        keep_constants(self.model.graph, GraphView(self._source.graph))
        for tensor in self.model.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                load_external_data_for_tensor(tensor, str(self._weights))
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
        return self.model

    def _rename(self, name: str, wanted: str) -> None:
        for node in self._nodes:
            for values in (node.input, node.output):
                for at, found in enumerate(values):
                    if found == name:
                        values[at] = wanted
            rename_captured(node, {name: wanted})

    def _convert(
        self,
        nodes: list[onnx.NodeProto],
        name: str,
        steps: Sequence[_Step],
        wanted: str,
    ) -> None:
        for at, (op, domain, extra, attributes) in enumerate(steps):
            made = wanted if at == len(steps) - 1 else f"{wanted}/step{at}"
            nodes.append(
                onnx.helper.make_node(op, [name, *extra], [made], domain=domain, **attributes)
            )
            name = made


# Operator, domain, further inputs, and attributes.
_Step = tuple[str, str, tuple[str, ...], Mapping[str, Any]]
_FLOATS = ("float", "double", "float16", "bfloat16")


def _conversions(data: Data, place: Place | None, kind: str) -> list[_Step]:
    """Steps from the source's value to the variant's."""
    if place is None:
        return []
    rank = len(data.shape)
    steps: list[_Step] = []
    if place.layout == "channels-last" and rank > 2:
        steps.append(("Transpose", "", (), {"perm": [0, *range(2, rank), 1]}))
    if place.scale:
        extra = (place.scale, *((place.zero_point,) if place.zero_point else ()))
        steps.append(("QuantizeLinear", "", extra, {}))
    elif kind in _FLOATS and kind != _kind(data):
        steps.append(("Cast", "", (), {"to": _onnx_type(kind)}))
    if place.layout == "blocked" and rank == 4:
        steps.append(("ReorderInput", BLOCKED_DOMAIN, (), {}))
    return steps


def _back(data: Data, place: Place, kind: str) -> list[_Step]:
    """Steps from the variant's value to the source's."""
    rank = len(data.shape)
    steps: list[_Step] = []
    if place.layout == "blocked" and rank == 4:
        steps.append(("ReorderOutput", BLOCKED_DOMAIN, (), {"channels": int(data.shape[1])}))
    if place.scale:
        extra = (place.scale, *((place.zero_point,) if place.zero_point else ()))
        steps.append(("DequantizeLinear", "", extra, {}))
    elif kind in _FLOATS and kind != _kind(data):
        steps.append(("Cast", "", (), {"to": _onnx_type(_kind(data))}))
    if place.layout == "channels-last" and rank > 2:
        steps.append(("Transpose", "", (), {"perm": [0, rank - 1, *range(1, rank - 1)]}))
    return steps


def _info(name: str, data: Data) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, _onnx_type(_kind(data)), list(data.shape))


def _kind(data: Data) -> str:
    """ONNX Runtime's word for the element type of an array."""
    name = "string" if data.dtype.kind in "OUS" else str(data.dtype.name)
    return {"float32": "float", "float64": "double"}.get(name, name)


def _onnx_type(kind: str) -> int:
    return int(onnx.TensorProto.DataType.Value(kind.upper()))


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def stops_of(
    matched: Sequence[MatchedValue], inner: Collection[str]
) -> tuple[set[str], dict[str, MatchedValue]]:
    """Names of the source's values at which parts end, and by the variant's names: whose they are.

    Those of `inner` are inside.
    """
    outside = [value for value in matched if value.name not in inner]
    return {value.name for value in outside}, {value.place.value: value for value in outside}


# The smallest part of a variant that is out of tolerance by itself, found by running parts alone.
#
# A part reads values that variant and source both have, and makes one. It and the source's nodes
# are fed the same: the source's own values. So a part fails for what it does, not for what it is
# given.


# How many values out of tolerance are tried, each as the end of a part.
_MOST_CANDIDATES: Final = 12


@record
class FailingPart:
    """A part that fails by itself: its model, the source's, what both were fed, and their answers.

    Both models are complete, without files; `side` is how the part's session was created.
    """

    value: MatchedValue
    part: onnx.ModelProto
    reference: onnx.ModelProto
    nodes: tuple[onnx.NodeProto, ...]
    covers: tuple[str, ...]
    inputs: Mapping[str, Data]
    side: Side
    expected: Data
    found: Data
    error: OutputError
    accumulated: bool = False
    trials: int = 0


class SmallestFailing:
    """Searches one variant at one set of inputs; `variant` runs as it is, without optimization."""

    def __init__(
        self, source: Side, variant: Side, inputs: Mapping[str, Data], tolerance: Tolerance
    ) -> None:
        self._source, self._variant = source, variant
        self._inputs, self._tolerance = inputs, tolerance
        self._model, self._rewritten = source.read(), variant.read()
        self._graphs = GraphView(self._model.graph), GraphView(self._rewritten.graph)
        matched, _ = matched_values(self._model, self._rewritten)
        self._matched = {value.name: value for value in matched}
        self._placed = _placed(variant, self._rewritten)
        self._kinds = _kinds(variant, self._rewritten, [value.place.value for value in matched])
        self.trials = 0

    def search(self, errors: NodeErrors) -> FailingPart | None:
        """The part; None if none could be run alone that fails."""
        for error in _candidates(errors):
            value = self._matched[error.value]
            found = self._trial(value, ())
            if found is not None and not found.error.passed:
                return found
        return self._range(errors)

    def _range(self, errors: NodeErrors) -> FailingPart | None:
        """The fewest nodes that end in the first value out of tolerance, and fail together.

        Nodes are taken in from the last one backwards, and their number is found by halving.
        """
        ends = [error for error in errors.nodes if not error.passed]
        last = next(
            (error for error in ends if error.node == errors.first), ends[0] if ends else None
        )
        if last is None:
            return None
        value = self._matched[last.value]
        behind = self._behind(value)
        low, high = 0, len(behind)
        best: FailingPart | None = None
        while low < high:
            middle = (low + high) // 2
            found = self._trial(value, behind[: middle + 1])
            if found is not None and not found.error.passed:
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _behind(self, value: MatchedValue) -> list[str]:
        """All matched values on which `value` depends, the nearest in the source's order first."""
        found: set[str] = set()
        pending = [value.name]
        while pending:
            for read in self._matched[pending.pop()].reads:
                if read in self._matched and read not in found:
                    found.add(read)
                    pending.append(read)
        order = {name: at for at, name in enumerate(self._matched)}
        return sorted(found, key=order.__getitem__, reverse=True)

    def _trial(self, value: MatchedValue, inner: Collection[str]) -> FailingPart | None:
        """The part that ends in `value` and holds the values `inner`; None if it cannot run."""
        stops, owners = stops_of(list(self._matched.values()), {*inner, value.name})
        theirs = cut(self._graphs[0], value.name, stops)
        ours = cut(self._graphs[1], value.place.value, owners.keys())
        if not ours.nodes or any(node.op_type == EP_CONTEXT for node in ours.nodes):
            return None
        self.trials += 1
        try:
            return self._run(value, theirs, ours, owners, accumulated=bool(inner))
        except (AotcError, KeyError, TypeError, ValueError):
            # A part whose types or captured values cannot be stated does not stand alone.
            return None

    def _run(
        self,
        value: MatchedValue,
        theirs: Cut,
        ours: Cut,
        owners: Mapping[str, MatchedValue],
        *,
        accumulated: bool,
    ) -> FailingPart:
        reads = [owners[name].name if name in owners else name for name in ours.inputs]
        names = list(dict.fromkeys((*theirs.inputs, *reads)))
        known = self._values([*names, value.name])
        shown = known[value.name]
        reference = PartModel(self._model, self._source.weights, theirs.nodes)
        part = PartModel(self._rewritten, self._variant.weights, ours.nodes)
        for name in theirs.inputs:
            reference.given(name, known[name], None, "")
        for name, read in zip(ours.inputs, reads, strict=True):
            place = owners[name].place if name in owners else None
            part.given(read, known[read], place, self._kinds.get(name, ""))
        reference.gives(value.name, shown, Place(value.name), _kind(shown))
        kind = self._kinds.get(value.place.value, "")
        part.gives(value.name, shown, value.place, kind)
        models = reference.finished(), part.finished()
        given = {name: known[name] for name in names}
        expected = outputs_of(self._source.opened(models[0]), given)[value.name]
        side = self._side(ours)
        session = side.opened(models[1], records_placement=True)
        names_of_nodes = {node.name for node in ours.nodes}
        if any(
            node.name in names_of_nodes
            and self._placed.get(node.name, node.provider) != node.provider
            for node in observe(session).nodes
        ):
            raise ValueError("the part runs on another provider than in the variant")
        found = outputs_of(session, given)[value.name]
        return FailingPart(
            value=value,
            part=models[1],
            reference=models[0],
            nodes=ours.nodes,
            covers=tuple(node.name for node in theirs.nodes),
            inputs=given,
            side=side,
            expected=expected,
            found=found,
            error=compare(expected, found, self._tolerance, value.name, beside=WITHOUT_SLICES),
            accumulated=accumulated,
            trials=self.trials,
        )

    def _side(self, part: Cut) -> Side:
        """How a part is run: on the providers of its nodes, and with a stated number of threads."""
        variant = self._variant
        used = {self._placed.get(node.name, "") for node in part.nodes}
        session = variant.session
        providers = tuple(name for name in variant.providers if name in used or name == CPU)
        options = {
            name: stated for name, stated in session.provider_options.items() if name in providers
        }
        threads = session.threads or usable_cores() or 1
        return replace(
            variant,
            providers=providers if used - {CPU, ""} else (CPU,),
            session=replace(session, provider_options=options, threads=threads),
        )

    def _values(self, names: Sequence[str]) -> dict[str, Any]:
        """Values of the source; inputs are as given."""
        made = [name for name in names if name not in self._inputs]
        found = self._source.values(self._model, self._inputs, made) if made else {}
        return {name: found[name] if name in found else self._inputs[name] for name in names}


def _candidates(errors: NodeErrors) -> list[NodeError]:
    """Values out of tolerance: the first one, then by what their nodes add."""
    wrong = [error for error in errors.nodes if not error.passed]

    def weight(error: NodeError) -> tuple[bool, float]:
        return error.node == errors.first, math.inf if error.added is None else error.added

    return sorted(wrong, key=weight, reverse=True)[:_MOST_CANDIDATES]


def _kinds(side: Side, model: onnx.ModelProto, names: Collection[str]) -> dict[str, str]:
    """Element types of tensors of a variant, by value, in ONNX Runtime's words."""
    described = side.opened(with_outputs(model, names), computes=False).get_outputs()
    return {
        value.name: value.type.removeprefix("tensor(").removesuffix(")")
        for value in described
        if value.type.startswith("tensor(")
    }


def _placed(side: Side, model: onnx.ModelProto) -> dict[str, str]:
    """The provider of each node that ONNX Runtime keeps, by the node's name."""
    seen = observe(side.opened(model, computes=False, records_placement=True))
    return {node.name: node.provider for node in seen.nodes if node.name}
