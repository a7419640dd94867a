"""Sessions of ONNX Runtime: the only place where they are created, run and asked for placement.

Session options are checked against our own list, as ONNX Runtime ignores unknown keys; the
session's providers are checked against the requested ones, as it may omit one.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.graph.values import NARROW_BITS, Data, dtype_name, numpy_dtype
from aotc.host.cpu import usable_cores
from aotc.providers.named_backends import (
    library_of,
    plugin_devices,
    prepare,
    with_threads,
    with_weights,
)
from aotc.providers.ort import (
    gpu_failure,
    import_onnxruntime,
    is_out_of_memory,
    new_session_options,
    ort_errors,
    ort_message,
    ort_text,
    too_little_memory,
)
from aotc.spec.manifest import WEIGHTS_OPTION
from aotc.spec.providers import BY_ORT_NAME, CPU, GRAPH_OPTION, MANIFEST_KEYS, MAX_THREADS, STANDARD
from aotc.spec.variant import LEVEL_NAMES, NodePlacement, Optimization, Placement, SessionSpec
from aotc.spec.versions import DRAWS_ANEW, DRAWS_KEY

if TYPE_CHECKING:
    import onnxruntime as ort


__all__ = [
    "CONFIG_KEYS",
    "TEXT_NOT_UTF8",
    "create_session",
    "import_onnxruntime",
    "level_name",
    "ort_errors",
    "ort_message",
    "ort_text",
    "reference_options",
    "run",
    "session_options",
]

_NO_COMPILE: Final = "session.disable_model_compile"
_CONTEXT: Final = "ep.context_file_path"
# In a manifest: the folder of a variant's weights.
WEIGHTS_PLACEHOLDER: Final = "${weights}"
_RECORD_PLACEMENT: Final = "session.record_ep_graph_assignment_info"
_WRITTEN_WEIGHTS: Final = "session.optimized_model_external_initializers"
_SHRINK: Final = "memory.enable_memory_arena_shrinkage"
_PARALLEL_PACKING: Final = "session.prepack.enable_parallel"

# All keys that our sessions may have; those added here never occur in a manifest.
CONFIG_KEYS: Final = MANIFEST_KEYS | {
    _CONTEXT,
    WEIGHTS_OPTION,
    _NO_COMPILE,
    _RECORD_PLACEMENT,
    _PARALLEL_PACKING,
    "session.collect_node_memory_stats_to_file",
    "session.optimized_model_external_initializers_file_name",
    "session.optimized_model_external_initializers_min_size_in_bytes",
    "session.save_external_prepacked_constant_initializers",
}

TEXT_NOT_UTF8: Final = "an output is text that is not UTF-8"
# The beginning of ONNX Runtime's messages.
_MESSAGE_PREFIX: Final = "[ONNXRuntimeError]"
# TensorProto.DataType of the types that numpy lacks.
_CODES: Final[Mapping[str, int]] = {
    "bfloat16": 16,
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "float8e8m0": 24,
    "uint4": 21,
    "int4": 22,
    "uint2": 25,
    "int2": 26,
}
_TYPES: Final = frozenset(f"tensor({name})" for name in _CODES)
_MAX_NAMED = 5


def session_options(
    spec: SessionSpec, *, threads: int | None = None, custom_ops: Sequence[Path] | None = None
) -> ort.SessionOptions:
    """Options for `spec`; `threads` is the number per operator (None: one per core).

    `custom_ops` are libraries of operators to register (None: those of the process).
    Raises `ValueError` for a config key that is not in `CONFIG_KEYS`, AOTC-I027 for a number of
    threads out of range, and AOTC-R028 for a library that cannot be registered.
    """
    runtime = import_onnxruntime()
    _require_known(spec)
    options = new_session_options(custom_ops)
    options.graph_optimization_level = getattr(
        runtime.GraphOptimizationLevel, LEVEL_NAMES[spec.optimization]
    )
    options.log_severity_level = 4
    if threads is not None and not 0 < threads <= MAX_THREADS:
        raise AotcError(
            "AOTC-I027",
            "the number of threads is out of range",
            expected=f"1..{MAX_THREADS}",
            found=str(threads),
        )
    # Even ONNX Runtime's default number is set explicitly: see `usable_cores`.
    if (number := usable_cores() if threads is None else threads) is not None:
        options.intra_op_num_threads = number
        options.inter_op_num_threads = 1
    for key, value in spec.config.items():
        options.add_session_config_entry(key, value)
    return options


def level_name(level: Optimization) -> str:
    """ONNX Runtime's name of an optimization level."""
    return LEVEL_NAMES[level]


def _require_known(spec: SessionSpec) -> None:
    unknown = sorted(set(spec.config) - CONFIG_KEYS)
    if unknown:
        raise ValueError(f"unknown session config keys: {', '.join(unknown)}")


def reference_options(
    *,
    level: Optimization = "disable",
    weights: Path | None = None,
    custom_ops: Sequence[Path] | None = None,
) -> ort.SessionOptions:
    """Options of the reference: no optimizations, and one thread for reproducible bits.

    `level` differs if there are no kernels without optimization; `weights` is the folder of the
    model's external data, if it is not the model's own.  `custom_ops` are libraries to
    register (None: those of the process).
    """
    config = {WEIGHTS_OPTION: str(weights)} if weights is not None else {}
    spec = SessionSpec(optimization=level, config=config)
    options = session_options(spec, threads=1, custom_ops=custom_ops)
    # With reuse, values share buffers if their dims have the same names, and a run fails if such
    # dims differ in size: the names in the file are claims that have to be tested.
    options.enable_mem_reuse = False
    return options


def create_session(
    model: bytes | Path,
    spec: SessionSpec,
    *,
    providers: Sequence[str],
    weights_folder: Path | None = None,
    context_path: Path | None = None,
    threads: int | None = None,
    record_placement: bool = False,
    parallel_packing: bool = False,
    refusal: str = "AOTC-R008",
    libraries: Mapping[str, Path] | None = None,
    compiles: bool = False,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    profile: Path | None = None,
    written: Path | None = None,
    custom_ops: Sequence[Path] | None = None,
    as_listed: bool = False,
) -> ort.InferenceSession:
    """A session with exactly `providers` (ONNX Runtime's names, in order of preference).

    For a model given as bytes, `weights_folder` has its external data, which is mapped, and the
    folder of `context_path` its compiled parts.  `${weights}` in provider options becomes that
    `weights_folder`.  `compiles` lets a provider compile now what was not compiled before, to
    measure it.  `parallel_packing` packs weights for the CPU provider on all threads, not on one.
    `libraries` are those of the user's own plugins, by ORT's name of the provider; `settings` are
    further options of providers, by such names, that are this process's own.  With `profile`, which
    begins the file's path, every run is profiled until `end_profiling` says which file it is.
    The graph as it is run is `written` to a file, with its weights beside it.
    `custom_ops` are libraries of operators to register (None: those of the process).
    With `as_listed` nodes run in the order of the graph as far as they can, and Shape at once: by
    default what only reads a value may run last, and all such values are kept until then.
    Raises AOTC-P004 if a provider is missing, `refusal` if ONNX Runtime refuses the model,
    AOTC-I019 and AOTC-I020, R028 for such a library, and `ValueError` for an unknown config key.
    """
    runtime = import_onnxruntime()
    _require_known(spec)
    try:
        number = spec.threads if threads is None else threads
        options = session_options(spec, threads=number, custom_ops=custom_ops)
        if as_listed:
            options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
        for key, value in own_entries(weights_folder, context_path, compiles).items():
            options.add_session_config_entry(key, value)
        if record_placement:
            options.add_session_config_entry(_RECORD_PLACEMENT, "1")
        if parallel_packing:
            options.add_session_config_entry(_PARALLEL_PACKING, "1")
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if written is not None:
            options.optimized_model_filepath = str(written)
            for key, value in (("file_name", written.name + ".bin"), ("min_size_in_bytes", "1024")):
                options.add_session_config_entry(f"{_WRITTEN_WEIGHTS}_{key}", value)
        stated = provider_settings(
            spec,
            providers,
            weights_folder=weights_folder,
            libraries=libraries,
            threads=threads,
            settings=settings,
        )
        _add_providers(options, stated)

        def opened() -> ort.InferenceSession:
            source = model if isinstance(model, bytes) else str(model)
            return runtime.InferenceSession(source, options, enable_fallback=0)

        session = opened() if profile is not None else drawing_anew(opened)
    except ort_errors() as error:
        if providers and _is_on_gpu(providers[0]) and is_out_of_memory(error):
            room = "room for the weights of this session"
            raise too_little_memory(room, ort_message(error)) from None
        if failed := gpu_failure(error):
            raise failed from None
        raise AotcError(
            refusal,
            "ONNX Runtime could not create the session",
            where="" if isinstance(model, bytes) else str(model),
            found=ort_message(error),
        ) from None
    _require(providers, session.get_providers())
    return session


def own_entries(
    weights_folder: Path | None, context_path: Path | None, compiles: bool = False
) -> dict[str, str]:
    """Config entries of a session beside those of its description; as for `create_session`."""
    entries = {} if compiles else {_NO_COMPILE: "1"}
    if weights_folder is not None:
        entries[WEIGHTS_OPTION] = str(weights_folder.resolve())
    if context_path is not None:
        entries[_CONTEXT] = str(context_path.resolve())
    return entries


class SeededSession:
    """A session whose runs are each the first of a session, until it is told to go on.

    So equal seeds draw equal numbers: ONNX Runtime's generators go on from run to run, and nothing
    else starts them anew.  Thread-safe as a session is; all but a run is that of the first one.
    """

    def __init__(
        self, first: ort.InferenceSession, opener: Callable[[], ort.InferenceSession]
    ) -> None:
        self.first, self._opener = first, opener
        self._unused = [first]
        self.kept: ort.InferenceSession | None = None
        """What runs go on with; None: each is the first of a session."""

    def opened(self) -> ort.InferenceSession:
        """The session of the next run."""
        try:
            return self.kept or self._unused.pop()
        except IndexError:
            return self._opener()

    def run(self, *arguments: Any) -> Any:
        """As of a session."""
        return self.opened().run(*arguments)

    def run_with_ort_values(self, *arguments: Any) -> Any:
        """As of a session."""
        return self.opened().run_with_ort_values(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.first, name)


def go_on(session: ort.InferenceSession) -> None:
    """Let runs go on from draw to draw from now on, the next one from the seeds.

    Raises AOTC-R008 if ONNX Runtime cannot open the session again.
    """
    if isinstance(session, SeededSession):
        session.kept = None
        try:
            session.kept = session.first = session.opened()
        except ort_errors() as error:
            what = "ONNX Runtime could not create the session again"
            raise AotcError("AOTC-R008", what, found=ort_message(error)) from None


def start_anew(session: ort.InferenceSession) -> None:
    """Let each run draw from the seeds again from now on."""
    if isinstance(session, SeededSession):
        session.kept = None


def drawing_anew(opener: Callable[[], ort.InferenceSession]) -> ort.InferenceSession:
    """What `opener` opens; a `SeededSession` if its graph says that each run draws anew."""
    session = opener()
    try:
        stated = session.get_modelmeta().custom_metadata_map.get(DRAWS_KEY)
    except UnicodeDecodeError:
        # Of a graph that is none of ours.
        return session
    if stated != DRAWS_ANEW:
        return session
    return cast("ort.InferenceSession", SeededSession(session, opener))


def _with_settings(spec: SessionSpec, settings: Mapping[str, Mapping[str, str]]) -> SessionSpec:
    """`spec` with `settings`, which alone allow captures: else runs would have to name graphs."""
    stated = {
        name: {key: value for key, value in options.items() if key != GRAPH_OPTION}
        for name, options in spec.provider_options.items()
    }
    options = {
        name: {**stated.get(name, {}), **settings.get(name, {})} for name in (*stated, *settings)
    }
    return replace(spec, provider_options=options)


def _add_providers(
    options: ort.SessionOptions,
    stated: Sequence[tuple[str, Mapping[str, str], Path | None]],
) -> None:
    """Add providers of ORT's wheel by name, and plugins by their devices."""
    for name, settings, library in stated:
        if library is not None:
            options.add_provider_for_devices(plugin_devices(name, library), settings)
        # ONNX Runtime adds the CPU itself, and refuses a second one next to a plugin.
        elif name != CPU:
            prepare(name)
            options.add_provider(name, settings)


def provider_settings(
    spec: SessionSpec,
    providers: Sequence[str],
    *,
    weights_folder: Path | None = None,
    libraries: Mapping[str, Path] | None = None,
    threads: int | None = None,
    settings: Mapping[str, Mapping[str, str]] | None = None,
) -> list[tuple[str, dict[str, str], Path | None]]:
    """Name, options, and library (of plugins alone) of each provider of a session, in order.

    Arguments are as for `create_session`.  Raises AOTC-P004 if ORT's wheel lacks one.
    """
    stated = libraries or {}
    found = {name: stated.get(name) or library_of(name) for name in providers}
    built_in = import_onnxruntime().get_available_providers()
    _require([name for name in providers if found[name] is None], built_in)
    spec = _with_settings(spec, settings or {})
    result = []
    for name in providers:
        options = {
            key: _with_weights_folder(value, weights_folder)
            for key, value in spec.provider_options.get(name, {}).items()
        }
        if threads is not None:
            options = with_threads(name, options, threads)
        if found[name] is None and name != CPU and weights_folder is not None:
            options = with_weights(name, options, weights_folder)
        result.append((name, options, found[name]))
    return result


def _with_weights_folder(value: str, weights_folder: Path | None) -> str:
    """A provider option with the placeholder replaced; it may be inside JSON."""
    if weights_folder is None or WEIGHTS_PLACEHOLDER not in value:
        return value
    return value.replace(WEIGHTS_PLACEHOLDER, json.dumps(str(weights_folder.resolve()))[1:-1])


def _require(wanted: Sequence[str], present: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in present]
    if missing:
        raise AotcError(
            "AOTC-P004",
            f"ONNX Runtime has no {' and no '.join(missing)}",
            expected=", ".join(wanted),
            found=", ".join(present),
        )


def run(
    session: ort.InferenceSession,
    inputs: Mapping[str, Data],
    outputs: Sequence[str] | None = None,
    *,
    ortvalues: bool | None = None,
    refusal: str = "AOTC-R005",
    options: ort.RunOptions | None = None,
) -> list[Data]:
    """The named outputs (None: all), in order; thread-safe.

    `ortvalues` tells whether a type needs `run_with_ortvalues` (None: ask the session); `options`
    are those of this run, by which it can be ended.  Raises `refusal` with ONNX Runtime's message,
    or with `TEXT_NOT_UTF8`.
    """
    if ortvalues is None:
        ortvalues = needs_ortvalues(session)
    try:
        if ortvalues:
            return run_with_ortvalues(session, inputs, outputs, options)
        result: list[Any] = session.run(outputs, inputs, options)
    except ort_errors() as error:
        if type(error) not in ort_errors():
            # Of a kind that others derived: a signal's handler interrupted the call.
            raise
        if isinstance(error, UnicodeDecodeError) and _MESSAGE_PREFIX not in ort_text(error):
            # ONNX Runtime's Python API returns text as `str`, which fails here.
            raise AotcError(refusal, TEXT_NOT_UTF8, found=repr(ort_text(error))[:200]) from None
        if _is_on_gpu(session.get_providers()[0]) and is_out_of_memory(error):
            room = "room for the activations of this call"
            raise too_little_memory(room, ort_message(error)) from None
        if failed := gpu_failure(error):
            raise failed from None
        raise AotcError(
            refusal, "ONNX Runtime failed while it ran the model", found=ort_message(error)
        ) from None
    return result


@contextmanager
def ended_after(seconds: float) -> Iterator[ort.RunOptions]:
    """Options of a run that fails if it takes longer, at the end of the node that runs then."""
    options = import_onnxruntime().RunOptions()
    timer = threading.Timer(seconds, lambda: setattr(options, "terminate", True))
    timer.start()
    try:
        yield options
    finally:
        timer.cancel()


def shrinking_run(arena: str) -> ort.RunOptions:
    """Options of a run at whose end an arena, such as `gpu:0`, gives back what is not in use."""
    options = import_onnxruntime().RunOptions()
    options.add_run_config_entry(_SHRINK, arena)
    return options


def _is_on_gpu(ort_name: str) -> bool:
    """Whether a provider computes on a device apart: the host's memory is limited otherwise."""
    known = BY_ORT_NAME.get(ort_name)
    return known is not None and known.asynchronous


# Tensors of element types that numpy lacks.
#
# ONNX Runtime's numpy binding accepts no bfloat16, float8 or integers below a byte, so their bits
# are passed as unsigned integers in an `OrtValue` with the ONNX type. Integers of 4 and 2 bits are
# packed there, the first in the lowest bits, and take a byte each in numpy.


def onnx_code(name: str) -> int | None:
    """TensorProto.DataType of an element type that numpy lacks; None for others."""
    return _CODES.get(name)


def needs_ortvalues(session: ort.InferenceSession) -> bool:
    """Whether an input or output of the session is a tensor of such a type."""
    return any(arg.type in _TYPES for arg in (*session.get_inputs(), *session.get_outputs()))


def run_with_ortvalues(
    session: ort.InferenceSession,
    inputs: Mapping[str, Data],
    outputs: Sequence[str] | None,
    options: ort.RunOptions | None = None,
) -> list[Data]:
    """Run a session that has inputs or outputs of such types.

    If a requested output has such a type, all inputs and outputs have to be tensors.  Raises what
    ONNX Runtime raises.
    """
    wanted = [arg for arg in session.get_outputs() if outputs is None or arg.name in outputs]
    if not any(arg.type in _TYPES for arg in wanted):
        given = {name: _as_ortvalue(value) for name, value in inputs.items()}
        found: list[Data] = session.run(outputs, given, options)
        return found
    kind = import_onnxruntime().OrtValue
    ort_inputs = {}
    for name, value in inputs.items():
        item = _as_ortvalue(value)
        if item is value:
            item = kind.ortvalue_from_numpy(np.asarray(value, order="C"))
        ort_inputs[name] = item
    return [_to_numpy(value) for value in session.run_with_ort_values(outputs, ort_inputs, options)]


def _as_ortvalue(value: Data) -> Any:
    """A tensor of such a type as an `OrtValue`; any other value unchanged."""
    name = dtype_name(value.dtype) if isinstance(value, np.ndarray | np.generic) else ""
    if name not in _CODES:
        return value
    array = np.asarray(value, order="C")
    bits = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    if name in NARROW_BITS:
        bits = packed(bits, NARROW_BITS[name])
    kind = import_onnxruntime().OrtValue
    return kind.ortvalue_from_numpy_with_onnx_type(bits, _CODES[name])


def packed(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Integers of `bits` in a byte each, as an array of that shape whose first bytes hold them all.

    ONNX Runtime computes the element count from the shape, and reads as many bits.
    """
    per_byte = 8 // bits
    flat = array.reshape(-1) & ((1 << bits) - 1)
    rows = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed = np.bitwise_or.reduce(rows << shifts, axis=1, dtype=np.uint8)
    result = np.zeros(array.shape, np.uint8)
    result.reshape(-1)[: packed.size] = packed
    return result


def _unpacked(data: bytes, bits: int, elements: int) -> bytes:
    """One byte per element, its bits the lowest, as in numpy arrays of such types."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * bits
    flat = (np.frombuffer(data, np.uint8)[:, None] >> shifts).reshape(-1)[:elements]
    return (flat & ((1 << bits) - 1)).tobytes()


def _to_numpy(value: Any) -> Data:
    name = value.data_type().removeprefix("tensor(").removesuffix(")")
    if name not in _CODES:
        return value.numpy()
    dtype = numpy_dtype(name)
    shape = tuple(value.shape())
    elements = int(np.prod(shape, dtype=np.int64))
    size = -(-elements * NARROW_BITS.get(name, 8 * dtype.itemsize) // 8)
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    if name in NARROW_BITS:
        data = _unpacked(data, NARROW_BITS[name], elements)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)


def observe(session: ort.InferenceSession) -> Placement:
    """The placement of a session that was created with `record_placement`.

    Nodes are in ONNX Runtime's order and include those of control-flow subgraphs.
    """
    nodes = []
    for subgraph in session.get_provider_graph_assignment_info():
        for node in subgraph.get_nodes():
            nodes.append(
                NodePlacement(
                    name=node.name,
                    op=op_name(node.domain, node.op_type),
                    provider=subgraph.ep_name,
                )
            )
    return placement_of(tuple(nodes), observed=True)


def placement_of(nodes: tuple[NodePlacement, ...], *, observed: bool) -> Placement:
    """A placement with its shares and partitions counted."""
    counts = Counter(node.provider for node in nodes)
    return Placement(
        origin="observed" if observed else "predicted",
        nodes=nodes,
        share={name: round(count / len(nodes), 4) for name, count in sorted(counts.items())},
        partitions=sum(1 for _ in groupby(nodes, key=lambda node: node.provider)),
    )


def op_name(domain: str, op_type: str) -> str:
    """`domain::op_type`; without the domain for ONNX's own operators."""
    return op_type if domain in STANDARD else f"{domain}::{op_type}"


def differences(promised: Placement, observed: Placement) -> tuple[str, ...]:
    """The differences in any order, one line per node; empty if there are none."""
    if promised.nodes == observed.nodes:
        return ()
    before = Counter((node.name, node.op, node.provider) for node in promised.nodes)
    after = Counter((node.name, node.op, node.provider) for node in observed.nodes)
    missing, added = before - after, after - before
    lines = []
    for name, op, provider in list(missing.elements()):
        moved = next((key for key in added if key[:2] == (name, op)), None)
        if moved is not None:
            lines.append(f"node {name!r} ({op}) runs on {moved[2]}, promised {provider}")
            added = added - Counter([moved])
        else:
            lines.append(f"node {name!r} ({op}) no longer exists, promised on {provider}")
    lines.extend(
        f"node {name!r} ({op}) runs on {provider}, and was not promised"
        for name, op, provider in added.elements()
    )
    return tuple(lines)


def summary(lines: tuple[str, ...]) -> str:
    """The first few differences in one line, with the number of the others."""
    more = len(lines) - _MAX_NAMED
    return "; ".join(lines[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def verdicts(
    compatibility: Mapping[str, str], libraries: Mapping[str, Path]
) -> dict[str, tuple[str, str]]:
    """Verdict and compatibility string, by ORT's name of the provider.

    The verdict is the name of ORT's `OrtCompiledModelCompatibility`: `EP_SUPPORTED_OPTIMAL`,
    `EP_SUPPORTED_PREFER_RECOMPILATION`, `EP_UNSUPPORTED` or `EP_NOT_APPLICABLE`.  Raises AOTC-P004
    if a plugin cannot be registered.
    """
    if not compatibility:
        return {}
    import_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    found = {}
    for provider, text in compatibility.items():
        library = libraries.get(provider) or library_of(provider)
        if library is None:
            continue
        verdict = native.get_model_compatibility_for_ep_devices(
            plugin_devices(provider, library), text
        )
        found[provider] = (verdict.name, text)
    return found
