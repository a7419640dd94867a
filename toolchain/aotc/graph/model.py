"""What an ONNX file contains: graphs, nodes, tensors, external data, and what is refused."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain, require_model_file
from aotc.base.records import record
from aotc.graph.foreign_files import refuse_foreign
from aotc.graph.view import (
    Links,
    constant_tensors,
    every_graph,
    every_node,
    named_subgraphs,
    read_values,
)
from aotc.graph.wire_count import MAX_DIMS, MalformedWire, refuse_costly, too_deep
from aotc.spec.manifest import RandomNode
from aotc.spec.payload import Finding
from aotc.spec.providers import EP_CONTEXT, MICROSOFT, STANDARD

MAX_PROTOBUF = 2**31 - 1
_NARROW_BITS: dict[int, int] = {
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
}
_MAX_NAMED = 5


def read_model(path: Path) -> onnx.ModelProto:
    """Parse the model file at `path`, as `parse_model` does; raises as `model_bytes` does too."""
    return parse_model(model_bytes(path), path)


def model_bytes(path: Path) -> bytes:
    """The content of a model file; raises AOTC-I001, and I002 if it is empty or too large."""
    require_model_file(path)
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size) if size <= MAX_PROTOBUF else b""
    except OSError as error:
        raise cannot_read(error, "cannot read the model", str(path)) from None
    if size > MAX_PROTOBUF:
        raise AotcError(
            "AOTC-I002",
            "a protobuf message cannot exceed 2 GiB",
            where=str(path),
            found=f"{size} bytes",
            fix="Save the model with external data (onnx.save with save_as_external_data=True).",
        )
    if not data:
        raise AotcError("AOTC-I002", "the file is empty", where=str(path))
    return data


def refuse_junk(data: bytes, path: Path) -> None:
    """Raise AOTC-I002, without parsing, for what is no model or costs far more than its bytes."""
    try:
        refuse_costly(data, str(path))
    except MalformedWire:
        raise _no_model(data, path) from None
    except AotcError:
        refuse_foreign(data, path)
        raise


def _no_model(data: bytes, path: Path) -> AotcError:
    # Not before: the first bytes of a model may be a name that its author chose.
    refuse_foreign(data, path)
    return AotcError("AOTC-I002", "the file is not a ModelProto", where=str(path))


def parse_model(data: bytes, path: Path) -> onnx.ModelProto:
    """The model in the bytes of the file `path`; external data is not read.

    Raises AOTC-I002 for what is no complete model, and for one that costs far more than its bytes.
    """
    refuse_junk(data, path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError) as error:
        if "MaxDepth" in str(error):
            raise too_deep(str(path)) from None
        raise _no_model(data, path) from None
    if model.ir_version < 1 or not model.opset_import or not model.graph.output:
        refuse_foreign(data, path)
        raise AotcError(
            "AOTC-I002",
            "the file does not hold a complete model",
            where=str(path),
            expected="ir_version, opset_import and graph outputs",
            found=f"ir_version {model.ir_version}, {len(model.opset_import)} opsets, "
            f"{len(model.graph.output)} outputs",
        )
    return model


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor in the file: initializers and attributes."""
    for graph in every_graph(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
            yield sparse.indices
    for node in every_node(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
            for sparse in attribute.sparse_tensors:
                yield sparse.values
                yield sparse.indices


def graph_inputs(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, ...]:
    """The inputs that a caller passes: graph inputs that are not initializers."""
    constant = {tensor.name for tensor in model.graph.initializer}
    return tuple(info for info in model.graph.input if info.name not in constant)


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Size in bytes, by type and dims: entries of external data may omit it.

    Raises AOTC-I002 for very many dims, whose product alone takes long.
    """
    # A tensor that is written in several pieces has the dims of all of them.
    if len(tensor.dims) > MAX_DIMS:
        raise AotcError(
            "AOTC-I002",
            "the model has too many dims of a tensor",
            where=tensor.name,
            expected=f"at most {MAX_DIMS}",
            found=str(len(tensor.dims)),
        )
    if tensor.data_type == onnx.TensorProto.STRING:
        return sum(len(text) for text in tensor.string_data)
    bits = _NARROW_BITS.get(tensor.data_type)
    if bits is None:
        bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    elements: int = math.prod(tensor.dims)
    return -(-elements * bits // 8)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions inlined, if onnx can inline them."""
    import onnx.inliner

    if not model.functions:
        return model
    with suppress(onnx.checker.ValidationError, ValueError, RuntimeError):
        return onnx.inliner.inline_local_functions(model)
    return model


def refuse_compiled(nodes: Iterable[onnx.NodeProto]) -> None:
    """Raise AOTC-I010 for an EPContext node among all nodes of a model."""
    for node in nodes:
        if node.domain == MICROSOFT and node.op_type == EP_CONTEXT:
            where = f"node {node.name or node.op_type}"
            raise AotcError("AOTC-I010", "the model holds an EPContext node", where=where)


# Nodes that draw random numbers: which they are, what they draw, and what depends on them.
#
# Seen with ONNX Runtime 1.31: a node with a `seed` draws the same numbers in every session, at each
# level of the optimizer and number of threads, and in each further run of a session the next ones.
# Without a seed its numbers differ by process and by the node's place in the optimized graph.


_BOOL: Final = 9
# ONNX Runtime takes a seed as uint32, and one that is none differs by machine.
_SEEDS: Final = 2**32
_DISTRIBUTIONS: Final[Mapping[str, Literal["normal", "uniform"]]] = {
    "RandomNormal": "normal",
    "RandomNormalLike": "normal",
    "RandomUniform": "uniform",
    "RandomUniformLike": "uniform",
    "Multinomial": "uniform",
    "Bernoulli": "uniform",
    "Dropout": "uniform",
}
# Of the node's own attributes; what decides on a mask or on samples is between 0 and 1.
_PARAMETERS: Final[Mapping[str, Mapping[str, float]]] = {
    "RandomNormal": {"mean": 0.0, "scale": 1.0},
    "RandomNormalLike": {"mean": 0.0, "scale": 1.0},
    "RandomUniform": {"low": 0.0, "high": 1.0},
    "RandomUniformLike": {"low": 0.0, "high": 1.0},
}
_BETWEEN_0_AND_1: Final = {"low": 0.0, "high": 1.0}


@record(kw_only=False)
class Draw:
    """A node that draws random numbers.

    `owner` is the index of the node of the main graph that it is, or is in (None: it is in a
    function), and `holders` are the operators of the control flow around it, outer first.
    """

    node: onnx.NodeProto
    owner: int | None
    holders: tuple[str, ...] = ()

    @property
    def seed(self) -> int | None:
        """Its seed as ONNX Runtime takes it; None if it has none that can be one."""
        stated = next((each for each in self.node.attribute if each.name == "seed"), None)
        if stated is None or stated.ref_attr_name:
            return None
        value = float(stated.i if self.node.op_type == "Dropout" else stated.f)
        return int(value) if 0 <= value < _SEEDS else None

    def described(self, outputs: Sequence[str]) -> RandomNode:
        """What it is in the manifest; `outputs` depend on it."""
        op_type = self.node.op_type
        given = {each.name: each.f for each in self.node.attribute}
        stated = {
            name: given.get(name, default) for name, default in _PARAMETERS.get(op_type, {}).items()
        }
        return RandomNode(
            node=self.node.name,
            op_type=op_type,
            distribution=_DISTRIBUTIONS[op_type],
            parameters={n: v for n, v in stated.items() if math.isfinite(v)}
            if op_type in _PARAMETERS
            else _BETWEEN_0_AND_1,
            outputs=tuple(outputs),
        )


def draws(model: onnx.ModelProto) -> list[Draw]:
    """The nodes that draw random numbers: those of the main graph, its subgraphs, and functions."""
    found: list[Draw] = []
    off = _switches_off(model.graph)
    for owner, node in enumerate(model.graph.node):
        found += _draws_of(node, owner, (), off)
    for function in model.functions:
        off = {
            node.output[0]: _is_false(attribute.t)
            for node in function.node
            if node.op_type == "Constant" and node.output
            for attribute in node.attribute
            if attribute.HasField("t")
        }
        for node in function.node:
            found += _draws_of(node, None, (), off)
    return found


def _draws_of(
    node: onnx.NodeProto, owner: int | None, holders: tuple[str, ...], off: Mapping[str, bool]
) -> Iterator[Draw]:
    if _is_random(node, off):
        yield Draw(node, owner, holders)
    for _, graph in named_subgraphs(node):
        inner = {**off, **_switches_off(graph)}
        for each in graph.node:
            yield from _draws_of(each, owner, (*holders, node.op_type), inner)


def _is_random(node: onnx.NodeProto, off: Mapping[str, bool]) -> bool:
    if node.domain not in STANDARD or node.op_type not in _DISTRIBUTIONS:
        return False
    if node.op_type != "Dropout":
        return True
    # The third input is `training_mode`: without one, or where it is false, nothing is dropped.
    return len(node.input) > 2 and bool(node.input[2]) and not off.get(node.input[2], False)


def _switches_off(graph: onnx.GraphProto) -> dict[str, bool]:
    """Constants of truth values, and whether they are false."""
    return {name: _is_false(tensor) for name, tensor in constant_tensors(graph).items()}


def _is_false(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == _BOOL and not (any(tensor.raw_data) or any(tensor.int32_data))


def dependent_outputs(model: onnx.ModelProto, found: Sequence[Draw]) -> list[tuple[str, ...]]:
    """For each draw, the model's outputs that depend on it; those of functions have none."""
    nodes = model.graph.node
    links = Links(map(read_values, nodes), (node.output for node in nodes))
    outputs = list(dict.fromkeys(value.name for value in model.graph.output))
    bits = {name: 1 << index for index, name in enumerate(outputs)}
    # Of each node the outputs behind it, as bits; nodes may be in any order.
    behind: dict[int, int] = {}
    entered: set[int] = set()
    for owner in (draw.owner for draw in found if draw.owner is not None):
        pending = [owner]
        while pending:
            node = pending[-1]
            readers = [at for name in links.makes[node] for at in links.readers.get(name, ())]
            if node not in entered:
                entered.add(node)
                pending += [at for at in readers if at not in entered]
                continue
            pending.pop()
            mask = behind.get(node, 0)
            for name in links.makes[node]:
                mask |= bits.get(name, 0)
            for at in readers:
                mask |= behind.get(at, 0)
            behind[node] = mask
    return [
        tuple(name for name in outputs if bits[name] & behind[draw.owner])
        if draw.owner is not None
        else ()
        for draw in found
    ]


def has_random_functions(model: onnx.ModelProto) -> bool:
    """Whether a function of the model draws random numbers."""
    return any(draw.owner is None for draw in draws(model))


# Text of a model that is not UTF-8, such as names in GBK or Latin-1.
#
# ONNX Runtime accepts any bytes as a name, and protobuf returns what is not UTF-8 as bytes; neither
# JSON nor ONNX Runtime's Python API can represent it. Such text is written with its bytes escaped
# (`\xbd`): equal texts stay equal and different ones different, so that all references still match.


def escape_text(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """Escape all text of `model` that is not UTF-8; if there is any, a finding names the fields.

    Raises AOTC-I002 for names of inputs and outputs (callers use them), for file names, and if
    another text of the model already has the escaped form.
    """
    _require_utf8_names(model)
    known: set[str] = set()
    escaped: dict[str, str] = {}
    for holder, message, field, index in _texts(model):
        value = getattr(message, field) if index is None else getattr(message, field)[index]
        if isinstance(value, str):
            known.add(value)
            continue
        text = value.decode("utf-8", "backslashreplace")
        if holder == "external_data":
            raise _refusal("TensorProto.external_data", text)
        escaped.setdefault(text, f"{message.DESCRIPTOR.name}.{field}")
        if index is None:
            setattr(message, field, text)
        else:
            getattr(message, field)[index] = text
    for text in escaped.keys() & known:
        raise _refusal(escaped[text], text)
    if not escaped:
        return ()
    fields = list(dict.fromkeys(escaped.values()))
    more = f" and {len(fields) - _MAX_NAMED} more" if len(fields) > _MAX_NAMED else ""
    names = ", ".join(fields[:_MAX_NAMED])
    what = f"written with escapes, such as '{next(iter(escaped))}': {names}{more}"
    return (Finding(code="AOTC-I041", what=what[:300]),)


def _require_utf8_names(model: onnx.ModelProto) -> None:
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for index, value in enumerate(values):
            # Bytes if it is not UTF-8, unlike protobuf's type annotations say.
            name: Any = value.name
            if isinstance(name, bytes):
                raise _refusal(
                    f"graph.{kind}[{index}].name", name.decode("utf-8", "backslashreplace")
                )


def _refusal(where: str, text: str) -> AotcError:
    return AotcError(
        "AOTC-I002",
        "a name is not UTF-8",
        where=where,
        expected="UTF-8, as ONNX requires of all text",
        found=repr(text)[:200],
        fix="Export the model with a name in UTF-8, or load the file with onnx, set the field "
        "named above, and save it.",
    )


def _texts(message: Any, holder: str = "") -> Iterator[tuple[str, Any, str, int | None]]:
    """Every text below `message`, which is in the field `holder` of its parent.

    Yields the field that holds the text's message, the message, its own field, and its index in a
    list.
    """
    texts, lists, ones, many = _fields(message.DESCRIPTOR)
    for name in texts:
        yield holder, message, name, None
    for name in lists:
        for index in range(len(getattr(message, name))):
            yield holder, message, name, index
    for name in ones:
        if message.HasField(name):
            yield from _texts(getattr(message, name), name)
    for name in many:
        for item in getattr(message, name):
            yield from _texts(item, name)


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, ...], ...]:
    """Fields of a message by content: text, lists of text, a message, lists of messages."""
    found: tuple[list[str], ...] = ([], [], [], [])
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            found[field.is_repeated].append(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            found[2 + field.is_repeated].append(field.name)
    return tuple(tuple(names) for names in found)
