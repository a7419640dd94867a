"""The export format `triton`: a model repository for the ONNX Runtime backend of Triton."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.folders import EXPORTED
from aotc.base.records import record
from aotc.base.text import listed, printable
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding, Fixture, Value, ValueShapes
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.shapes import Dim
from aotc.spec.variant import Optimization
from aotc.tools.export import MAX_TAKEN_BYTES, ExportSource, Layout, Taken
from aotc.tools.onnx_folder import EVIDENCE, README, needs_in_words, places, reverified

_VERSION: Final = "1"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_TYPES: Final[Mapping[str, str]] = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
}
# `optimization.graph.level` as the backend reads it; without one it enables all.
_LEVELS: Final[Mapping[Optimization, int | None]] = {
    "disable": 2,
    "basic": -1,
    "extended": 1,
    "all": None,
}
# The session options that the backend takes from `parameters`.
_TAKEN: Final = frozenset({"session.use_device_allocator_for_initializers"})
_MAX_BATCH: Final = 2**31 - 1
_MAGIC: Final = b"\x93NUMPY"
_UNCHECKED: Final = """\
**No longer checked**, as `aotc.load` does it with the artifact: the signature, and the digests of
these files; whether the host fits (operating system, CPU features, drivers); on which provider each
node runs; values outside of those that were proven; and, before the first call, the golden answers:
the warm-up requests run, and nobody looks at what they answer.

**The version of ONNX Runtime is that of Triton's image**, not the one of the proof. An older one
may not know the operator set or operators of ONNX Runtime's own that this graph has, and then
refuses to load it; another one may compute other last digits."""


@record
class _Config:
    """What `config.pbtxt` says of batches: the dim that is the batch, and its largest size."""

    batch: str = ""
    max_batch: int = 0


def layout(source: ExportSource) -> Layout:
    """A model repository with one model in one version, its warm-up data, and a README.md.

    Raises AOTC-I225 if the backend cannot run the variant as it was proven, and I226 if the name is
    none that Triton takes.
    """
    variant, name = source.variant, source.name
    if _NAME.fullmatch(name) is None or name in (README, EXPORTED):
        raise AotcError(
            "AOTC-I226",
            "the name of the model is not one that Triton serves",
            where="--name",
            expected="letters, digits, '.', '_' and '-', at most 255, a letter or digit first, and "
            f"neither {README} nor {EXPORTED}",
            found=name,
        )
    _require_fit(source)
    config = _batches(source)
    warmups = {each.name: each for each in _warmups(source)}
    taken = {
        f"{name}/warmup/{_data_file(fixture, number)}": Taken(
            tensor.path, _text_data(config) if tensor.path.endswith(".json") else _data(config)
        )
        for fixture in warmups.values()
        for number, tensor in enumerate(fixture.inputs)
    }
    text = "".join(f"{line}\n" for line in _config_lines(source, config, warmups.values()))
    dropped = sorted(variant.session.config.keys() - _TAKEN)
    findings: tuple[Finding, ...] = ()
    if dropped:
        what = f"Triton's backend does not set {listed(dropped)}, with which it was proven"
        findings = (Finding(code="AOTC-I227", what=what, where=f"variant {variant.name}"),)
    return Layout(
        files={f"{name}/{_VERSION}/{path}": file for path, file in places(variant).items()},
        texts={
            f"{name}/config.pbtxt": text,
            README: "".join(f"{line}\n" for line in _readme(source, config, dropped)),
        },
        taken=taken,
        evidence=f"{name}/{EVIDENCE}",
        findings=findings,
    )


# What the backend can run.


def _require_fit(source: ExportSource) -> None:
    """Raise AOTC-I225 with the first thing that the backend does not do."""
    manifest, variant = source.manifest, source.variant
    for value in (*manifest.inputs, *manifest.outputs):
        shape = _shape_of(manifest, value)
        if value.kind != "tensor" or value.dtype not in _TYPES:
            form = value.dtype if value.kind == "tensor" else f"{value.kind} of {value.dtype}"
            raise _unfit(source, f"value {value.name}", f"tensors of {listed(tuple(_TYPES))}", form)
        if shape is None:
            raise _unfit(source, f"value {value.name}", "a known number of dims", "none")
        if 0 in _dims(manifest, value, _sizes(source), _Config()):
            raise _unfit(source, f"value {value.name}", "sizes of at least 1", "a size of 0")
    others = [each for each in variant.providers if each not in (CPU, CAPTURING.ort_name)]
    plugins = [each.provider or each.name for each in variant.requirements.plugins]
    if others or plugins:
        found = listed(tuple(dict.fromkeys((*others, *plugins))))
        raise _unfit(source, "providers", f"{CPU} or {CAPTURING.ort_name}", found)
    if libraries := variant.requirements.custom_ops:
        found = listed([each.name for each in libraries])
        raise _unfit(source, "custom operators", "none", found)
    if variant.session.optimization not in _LEVELS:
        found = variant.session.optimization
        raise _unfit(source, "graph optimization level", listed(tuple(_LEVELS)), found)


def _unfit(source: ExportSource, where: str, expected: str, found: str) -> AotcError:
    what = "Triton's ONNX Runtime backend cannot run the variant as it was proven"
    where = f"variant {source.variant.name}: {where}"
    return AotcError("AOTC-I225", what, where=where, expected=expected, found=found)


def _shape_of(manifest: Manifest, value: Value) -> tuple[int | str, ...] | None:
    """The shape of a value: of an output what runs showed, where the graph has but a name.

    None: its rank is unknown to who only opens the model.
    """
    stated = _stated(manifest, value)
    seen = (stated.produced or stated.inferred) if stated is not None else None
    if stated is None or seen is None or (value.shape is None and stated.inferred is None):
        return value.shape
    if value.shape is None or len(value.shape) != len(seen):
        return seen
    pairs = zip(value.shape, seen, strict=True)
    return tuple(own if isinstance(own, int) else found for own, found in pairs)


def _stated(manifest: Manifest, value: Value) -> ValueShapes | None:
    """What is known of the shape of an output."""
    if value in manifest.inputs:
        return None
    return next((each for each in manifest.shapes if each.name == value.name), None)


# Batches.


def _batches(source: ExportSource) -> _Config:
    """Whether calls can be joined along a dim that is first in every input and output.

    It has to be free from 1 to its maximum, to be nowhere else, and nothing may follow from it.
    """
    manifest, variant = source.manifest, source.variant
    domain = variant.domain or manifest.domain
    # Dims that are one by another name; the others that follow depend on what they follow from.
    same = {
        relation.dim: relation.terms[0]
        for relation in domain.relations
        if relation.enforced and len(relation.terms) == 1 and not relation.constant
    }
    shapes = [
        [same.get(str(size), size) for size in _shape_of(manifest, value) or ()]
        for value in (*manifest.inputs, *manifest.outputs)
    ]
    first = {shape[0] if shape else None for shape in shapes}
    drawn = manifest.random is not None and manifest.random.draws
    if len(first) != 1 or not manifest.inputs or drawn:
        return _Config()
    (batch,) = first
    dim = domain.dims.get(batch) if isinstance(batch, str) else None
    if dim is None or not isinstance(batch, str) or batch in variant.buckets:
        return _Config()
    gaps = any(1 <= size <= dim.max for size in dim.gaps)
    if not dim.spans(1) or dim.multiple_of != 1 or gaps or dim.max < 2:
        return _Config()
    elsewhere = any(batch in str(size).split(" + ") for shape in shapes for size in shape[1:])
    others = (relation for relation in domain.relations if relation.dim not in same)
    if elsewhere or any(batch in relation.terms for relation in others):
        return _Config()
    return _Config(batch=batch, max_batch=min(dim.max, _MAX_BATCH))


def _sizes(source: ExportSource) -> dict[str, int]:
    """The dims whose sizes are fixed for the variant, and those that follow from them alone."""
    domain = source.variant.domain or source.manifest.domain
    found = {name: dim.min for name, dim in domain.dims.items() if dim.min == dim.max}
    found |= source.variant.buckets
    for relation in domain.relations:
        if relation.enforced and all(term in found for term in relation.terms):
            found[relation.dim] = relation.value(found)
    return found


def _dims(manifest: Manifest, value: Value, sizes: Mapping[str, int], config: _Config) -> list[int]:
    """The dims that a request or an answer has, without the batch; -1 where the size is free.

    Triton loads no model of whose outputs ONNX Runtime says anything else, so a size that only runs
    showed counts only where others are fixed, as ONNX Runtime computes it of these.
    """
    shape = _shape_of(manifest, value) or ()
    shapes = [value.shape]
    if (stated := _stated(manifest, value)) is not None:
        shapes += [stated.inferred, stated.produced if sizes else None]
    found = [-1] * len(shape)
    for each in shapes:
        if each is not None and len(each) == len(shape):
            found = [max(_size(size, sizes), at) for size, at in zip(each, found, strict=True)]
    return found[1:] if config.batch else found


def _size(size: int | str, sizes: Mapping[str, int]) -> int:
    """A size, that of a dim, or the sum of some, if all are known; else -1."""
    total = 0
    for part in str(size).split(" + "):
        known = int(part) if part.isdecimal() else sizes.get(part)
        if known is None:
            return -1
        total += known
    return total


# Warm-up requests, whose data is that of fixtures.


def _warmups(source: ExportSource) -> Iterator[Fixture]:
    """The first fixture of each combination of sizes that the graph takes as they are.

    All data is at most `MAX_TAKEN_BYTES`, as the server has it in memory while it loads the model.
    """
    manifest, variant = source.manifest, source.variant
    domain = variant.domain or manifest.domain
    bytes_of = {entry.path: entry.size for entry in manifest.files}
    seen, total = set(), 0
    for fixture in manifest.fixtures:
        sizes = tuple(sorted(fixture.sizes.items()))
        size = sum(bytes_of[tensor.path] for tensor in fixture.inputs)
        taken = variant.name not in fixture.excluded_variants and all(
            _takes(dim, variant.buckets.get(name), fixture.sizes.get(name))
            for name, dim in domain.dims.items()
        )
        given = [value for value in manifest.inputs if 0 not in value.shape_at(fixture.sizes)]
        whole = len(given) == len(manifest.inputs) == len(fixture.inputs)
        if not taken or not whole or sizes in seen or total + size > MAX_TAKEN_BYTES:
            continue
        seen.add(sizes)
        total += size
        yield fixture


def _takes(dim: Dim, bucket: int | None, size: int | None) -> bool:
    if size is None or size < 1:
        return False
    return size == bucket if bucket is not None else dim.spans(size)


def _data_file(fixture: Fixture, number: int) -> str:
    return f"{fixture.name}-{number}.bin"


def _data(config: _Config) -> Callable[[bytes], bytes]:
    """Makes the numbers of a request of a `.npy` file: of one in a batch, which Triton repeats."""

    def taken(content: bytes) -> bytes:
        wide = content[6:7] != b"\x01"
        start = 12 if wide else 10
        length = int.from_bytes(content[8:start], "little")
        header = ast.literal_eval(content[start : start + length].decode("latin-1"))
        if not content.startswith(_MAGIC) or header["fortran_order"]:
            raise ValueError("not an array as builds write them")
        data = content[start + length :]
        return data[: len(data) // header["shape"][0]] if config.batch else data

    return taken


def _text_data(config: _Config) -> Callable[[bytes], bytes]:
    """The same of a tensor of text: each with its length in 4 bytes, the lowest first."""

    def taken(content: bytes) -> bytes:
        stated = strict_json(content)
        count = math.prod(stated["shape"][1:] if config.batch else stated["shape"])
        texts = [text.encode("utf-8") for text in stated["data"][:count]]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)

    return taken


# The text of config.pbtxt.


def _config_lines(
    source: ExportSource, config: _Config, warmups: Iterable[Fixture]
) -> Iterator[str]:
    manifest, variant, described = source.manifest, source.variant, source.described
    sizes = _sizes(source)
    yield f"# Variant {variant.name} of the artifact sha256-{described.artifact_id}"
    yield f"name: {_quoted(source.name)}"
    yield 'backend: "onnxruntime"'
    yield 'default_model_filename: "model.onnx"'
    yield f"max_batch_size: {config.max_batch}"
    for field, values in (("input", manifest.inputs), ("output", manifest.outputs)):
        for value in values:
            dims = _dims(manifest, value, sizes, config)
            yield f"{field} {{"
            yield f"  name: {_quoted(value.name)}"
            yield f"  data_type: {_TYPES[value.dtype]}"
            yield f"  dims: [ {', '.join(map(str, dims or [1]))} ]"
            # A request has at least one dim, which the backend drops itself outside of batches.
            if not dims and config.batch:
                yield "  reshape { shape: [ ] }"
            yield "}"
    on_gpu = CAPTURING.ort_name in variant.providers
    yield f"instance_group {{ kind: {'KIND_GPU' if on_gpu else 'KIND_CPU'} count: 1 }}"
    yield f"version_policy {{ specific {{ versions: [ {_VERSION} ] }} }}"
    if config.batch:
        yield "dynamic_batching { }"
    yield from _optimization(source)
    options = {key: value for key, value in variant.session.config.items() if key in _TAKEN}
    if variant.session.threads is not None:
        options["intra_op_thread_count"] = str(variant.session.threads)
    for key, text in sorted(options.items()):
        yield f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(text)} }} }}"
    for fixture in warmups:
        yield from _warmup(manifest, fixture, config)


def _optimization(source: ExportSource) -> Iterator[str]:
    level = _LEVELS[source.variant.session.optimization]
    cuda = CAPTURING.ort_name
    options = source.described.session.provider_options.get(cuda, {})
    if level is None and not options:
        return
    yield "optimization {"
    if level is not None:
        yield f"  graph {{ level: {level} }}"
    if options:
        yield '  execution_accelerators { gpu_execution_accelerator { name: "cuda"'
        for key, value in sorted(options.items()):
            yield f"    parameters {{ key: {_quoted(key)} value: {_quoted(value)} }}"
        yield "  } }"
    yield "}"


def _warmup(manifest: Manifest, fixture: Fixture, config: _Config) -> Iterator[str]:
    values = {value.name: value for value in manifest.inputs}
    yield "model_warmup {"
    yield f"  name: {_quoted(fixture.name)}"
    yield f"  batch_size: {fixture.sizes[config.batch] if config.batch else 1}"
    for number, tensor in enumerate(fixture.inputs):
        value = values[tensor.name]
        shape = value.shape_at(fixture.sizes)[1 if config.batch else 0 :]
        yield "  inputs {"
        yield f"    key: {_quoted(tensor.name)}"
        yield "    value {"
        yield f"      data_type: {_TYPES[value.dtype]}"
        yield f"      dims: [ {', '.join(map(str, shape or (1,)))} ]"
        yield f"      input_data_file: {_quoted(_data_file(fixture, number))}"
        yield "    }"
        yield "  }"
    yield "}"


def _quoted(text: str) -> str:
    """A string of protobuf's text format: bytes beyond printable ASCII as octal numbers."""
    found = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in text.encode("utf-8")
    )
    return f'"{found}"'


# README.md.


def _readme(source: ExportSource, config: _Config, dropped: list[str]) -> Iterator[str]:
    manifest, variant, described = source.manifest, source.variant, source.described
    yield f"# {source.name}"
    yield ""
    yield f"Variant `{variant.name}` of an artifact of aotc, as a model repository for Triton."
    yield f"The artifact is `sha256-{described.artifact_id}`."
    yield ""
    yield _UNCHECKED
    yield ""
    if described.unproven:
        why = printable(described.unproven)
        yield f"**Its answers were not compared with the original model's**: {why}."
        yield ""
    if dropped:
        yield (
            "**Options of the proof that the backend does not set**: "
            + listed([f"`{key}`" for key in dropped])
            + "."
        )
        yield ""
    yield "## Serve it"
    yield ""
    yield "```sh"
    yield "tritonserver --model-repository=$PWD --disable-auto-complete-config"
    yield "```"
    yield ""
    yield "## Sizes"
    yield ""
    # Names in them are those of whoever made the model.
    yield from (f"- {printable(line)}" for line in _sizes_in_words(source, config))
    yield ""
    yield "## It was proven with"
    yield ""
    yield from (f"- {line}" for line in needs_in_words(variant.requirements))
    opsets = [f"{name or 'ai.onnx'} {number}" for name, number in manifest.source.opsets.items()]
    yield f"- Operator sets of the model that it was built of: {listed(opsets)}."
    own = manifest.source.contrib_ops
    if own:
        yield f"- Operators of ONNX Runtime's own in it: {listed(own)}."
    if variant.session.optimization == "disable":
        yield "- The graph is optimized already, and has what that version of ONNX Runtime fuses."
    yield ""
    if source.reverify:
        yield from reverified()


def _sizes_in_words(source: ExportSource, config: _Config) -> Iterator[str]:
    sizes = source.described.sizes
    if config.batch:
        yield (
            f"`{config.batch}` is the batch: 1..{config.max_batch}, which Triton holds requests to."
            " It joins requests along it; nobody proved that the rows of an answer do not depend on"
            " each other, and its last digits may depend on what it was joined with."
        )
    else:
        yield "No batches: requests have every dim, and Triton joins none of them."
    free = {name: text for name, text in sizes.items() if name != config.batch}
    for name, text in free.items():
        fixed = text.isdecimal()
        held = "which Triton holds requests to" if fixed else "which nobody holds requests to"
        yield f"`{name}` {text}, {held}."
    for relation in (source.variant.domain or source.manifest.domain).relations:
        yield f"`{relation}`, which nobody holds requests to."
    scalars = [
        value.name
        for value in (*source.manifest.inputs, *source.manifest.outputs)
        if not _dims(source.manifest, value, {}, config)
    ]
    if scalars:
        yield f"{listed(scalars)}: of one number, for which requests and answers have a dim of 1."
