"""What an ONNX file contains: graphs, nodes, tensors, external data, and what is refused."""

from __future__ import annotations

import errno
import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain, require_model_file
from aotc.base.records import replace
from aotc.graph.view import every_graph, every_node
from aotc.graph.wire_count import MAX_DIMS, MalformedWire, refuse_costly, too_deep
from aotc.spec.manifest import ExternalFile
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
RANDOM_OPS = frozenset(
    (
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    )
)
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
        raise _no_model(path) from None


def _no_model(path: Path) -> AotcError:
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
        raise _no_model(path) from None
    if model.ir_version < 1 or not model.opset_import or not model.graph.output:
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


def path_with_data(tensors: Iterable[onnx.TensorProto], path: Path) -> Path:
    """`path`, or its target if it is a link and the external data is there.

    Like ONNX Runtime: external data next to the link comes first.
    """
    for tensor in tensors:
        for pair in tensor.external_data:
            if pair.key == "location" and os.path.lexists(path.parent / pair.value):
                return path
    return path.resolve()


def locations(tensors: Iterable[onnx.TensorProto]) -> set[str]:
    """The files that tensors name for their data, as they are written."""
    return {
        pair.value for tensor in tensors for pair in tensor.external_data if pair.key == "location"
    }


def external_files(tensors: Iterable[onnx.TensorProto], folder: Path) -> tuple[ExternalFile, ...]:
    """Check every file in `folder` that `tensors` refer to, and compute its digest.

    Raises AOTC-I003 (missing), I004 (truncated), I005 (outside the folder), I006 (link).
    """
    ends: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entry = {pair.key: pair.value for pair in tensor.external_data}
        location = entry.get("location", "")
        try:
            offset = int(entry.get("offset", "0"))
            length = int(entry.get("length", "0")) or tensor_bytes(tensor)
        except ValueError:
            offset = length = -1
        if offset < 0 or length < 0:
            raise AotcError(
                "AOTC-I004",
                "offset or length is not a valid size",
                where=f"{tensor.name} in {location}",
            )
        ends[location] = max(ends.get(location, 0), offset + length)
    # One file may be written in many ways (`./a`, `././a`), and is hashed once.
    whole: dict[PurePosixPath, int] = {}
    for location, end in ends.items():
        path = _path_in_model(location)
        whole[path] = max(whole.get(path, 0), end)
    files = {path: _external_file(folder, path, end) for path, end in sorted(whole.items())}
    return tuple(
        replace(files[_path_in_model(location)], location=location) for location in sorted(ends)
    )


def _path_in_model(location: str) -> PurePosixPath:
    parts = PurePosixPath(location.replace("\\", "/"))
    if not location or parts.is_absolute() or ".." in parts.parts or "\0" in location:
        raise AotcError(
            "AOTC-I005", "external data lies outside the model's folder", where=repr(location)
        )
    return parts


def _external_file(folder: Path, parts: PurePosixPath, end: int) -> ExternalFile:
    path = folder
    for part in parts.parts:
        path = path / part
        if path.is_symlink():
            raise AotcError("AOTC-I006", "external data is a symbolic link", where=str(path))
    try:
        with open_plain(path) as file:
            status = os.fstat(file.fileno())
            if status.st_nlink > 1:
                raise _not_own_file(path, f"{status.st_nlink} hard links")
            if status.st_size < end:
                raise AotcError(
                    "AOTC-I004",
                    "external data is truncated",
                    where=str(path),
                    expected=f"at least {end} bytes",
                    found=f"{status.st_size} bytes",
                )
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise AotcError("AOTC-I003", "external data file is missing", where=str(path)) from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EISDIR):
            raise _not_own_file(path, "a folder or special file") from None
        raise AotcError(
            "AOTC-I003", f"cannot read external data: {error.strerror}", where=str(path)
        ) from None
    return ExternalFile(location=str(parts), size=status.st_size, sha256=digest)


def _not_own_file(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I006",
        "external data is not a plain file with one hard link",
        where=str(path),
        expected="a plain file with 1 hard link",
        found=found,
    )


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


def refuse_operators(
    nodes: Iterable[onnx.NodeProto], initializers: Iterable[onnx.TensorProto]
) -> None:
    """Check all nodes and initializers of a model, those of subgraphs and functions included.

    Raises AOTC-I010 (EPContext) and I011 (random numbers).
    """
    all_nodes = tuple(nodes)
    true = _true_constants(all_nodes, initializers)
    for node in all_nodes:
        where = f"node {node.name or node.op_type}"
        if node.domain == MICROSOFT and node.op_type == EP_CONTEXT:
            raise AotcError("AOTC-I010", "the model holds an EPContext node", where=where)
        if node.domain not in STANDARD:
            continue
        if node.op_type in RANDOM_OPS:
            raise AotcError("AOTC-I011", f"{node.op_type} draws random numbers", where=where)
        # The third input of Dropout is `training_mode`.
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in true:
            raise AotcError(
                "AOTC-I011", "Dropout in training mode draws random numbers", where=where
            )


def _true_constants(
    nodes: Iterable[onnx.NodeProto], initializers: Iterable[onnx.TensorProto]
) -> frozenset[str]:
    """Names of constants with the boolean value true."""
    flags = {tensor.name: tensor for tensor in initializers}
    for node in nodes:
        # ONNX Runtime refuses a Constant without an output.
        if node.op_type == "Constant" and node.output:
            flags.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return frozenset(
        name
        for name, tensor in flags.items()
        if tensor.data_type == onnx.TensorProto.BOOL
        and (any(tensor.raw_data) or any(tensor.int32_data))
    )


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
