"""Sessions of ONNX Runtime: the only place where they are created and run.

Session options are checked against our own list, as ONNX Runtime ignores unknown keys; the
session's providers are checked against the requested ones, as it may omit one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.backends.onnxruntime_import import (
    import_onnxruntime,
    is_out_of_memory,
    ort_errors,
    ort_message,
    ort_text,
    too_little_memory,
)
from aotc.contract.known_providers import BY_ORT_NAME, CPU, GRAPH_OPTION
from aotc.contract.manifest.ort_package import WEIGHTS_OPTION
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.session_keys import MANIFEST_KEYS, MAX_THREADS
from aotc.engine.named_backends import (
    library_of,
    plugin_devices,
    prepare,
    with_threads,
    with_weights,
)
from aotc.engine.ortvalue import needs_ortvalues, run_with_ortvalues
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.host.cores import usable_cores
from aotc.records import replace

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

_LEVELS: Final = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
TEXT_NOT_UTF8: Final = "an output is text that is not UTF-8"
# The beginning of ONNX Runtime's messages.
_MESSAGE_PREFIX: Final = "[ONNXRuntimeError]"


def session_options(spec: SessionSpec, *, threads: int | None = None) -> ort.SessionOptions:
    """Options for `spec`; `threads` is the number per operator (None: one per core).

    Raises `ValueError` for a config key that is not in `CONFIG_KEYS`, and AOTC-I027 for a number of
    threads out of range.
    """
    runtime = import_onnxruntime()
    _require_known(spec)
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(
        runtime.GraphOptimizationLevel, _LEVELS[spec.optimization]
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
    return _LEVELS[level]


def _require_known(spec: SessionSpec) -> None:
    unknown = sorted(set(spec.config) - CONFIG_KEYS)
    if unknown:
        raise ValueError(f"unknown session config keys: {', '.join(unknown)}")


def reference_options(
    *, level: Optimization = "disable", weights: Path | None = None
) -> ort.SessionOptions:
    """Options of the reference: no optimizations, and one thread for reproducible bits.

    `level` differs if there are no kernels without optimization; `weights` is the folder of the
    model's external data, if it is not the model's own.
    """
    config = {WEIGHTS_OPTION: str(weights)} if weights is not None else {}
    options = session_options(SessionSpec(optimization=level, config=config), threads=1)
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
) -> ort.InferenceSession:
    """A session with exactly `providers` (ONNX Runtime's names, in order of preference).

    For a model given as bytes, `weights_folder` has its external data, which is mapped, and the
    folder of `context_path` its compiled parts.  `${weights}` in provider options becomes that
    `weights_folder`.  `compiles` lets a provider compile now what was not compiled before, to
    measure it.  `parallel_packing` packs weights for the CPU provider on all threads, not on one.
    `libraries` are those of the user's own plugins, by ORT's name of the provider; `settings` are
    further options of providers, by such names, that are this process's own.  With `profile`, which
    begins the file's path, every run is profiled until `end_profiling` says which file it is.
    Raises AOTC-P004 if a provider is missing, `refusal` if ONNX Runtime refuses the model,
    AOTC-I019 and AOTC-I020, and `ValueError` for an unknown config key.
    """
    runtime = import_onnxruntime()
    _require_known(spec)
    try:
        options = session_options(spec, threads=spec.threads if threads is None else threads)
        if not compiles:
            options.add_session_config_entry(_NO_COMPILE, "1")
        if record_placement:
            options.add_session_config_entry(_RECORD_PLACEMENT, "1")
        if parallel_packing:
            options.add_session_config_entry(_PARALLEL_PACKING, "1")
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if weights_folder is not None:
            options.add_session_config_entry(WEIGHTS_OPTION, str(weights_folder.resolve()))
        if context_path is not None:
            options.add_session_config_entry(_CONTEXT, str(context_path.resolve()))
        _add_providers(
            options,
            providers,
            _with_settings(spec, settings or {}),
            weights_folder,
            libraries or {},
            threads,
        )
        session: ort.InferenceSession = runtime.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, enable_fallback=0
        )
    except ort_errors() as error:
        if providers and _is_on_gpu(providers[0]) and is_out_of_memory(error):
            room = "room for the weights of this session"
            raise too_little_memory(room, ort_message(error)) from None
        raise AotcError(
            refusal,
            "ONNX Runtime could not create the session",
            where="" if isinstance(model, bytes) else str(model),
            found=ort_message(error),
        ) from None
    _require(providers, session.get_providers())
    return session


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
    providers: Sequence[str],
    spec: SessionSpec,
    weights_folder: Path | None,
    stated: Mapping[str, Path],
    threads: int | None,
) -> None:
    """Add providers of ORT's wheel by name, and plugins by their devices."""
    libraries = {name: stated.get(name) or library_of(name) for name in providers}
    built_in = import_onnxruntime().get_available_providers()
    _require([name for name in providers if libraries[name] is None], built_in)
    for name in providers:
        settings = {
            key: _with_weights_folder(value, weights_folder)
            for key, value in spec.provider_options.get(name, {}).items()
        }
        if threads is not None:
            settings = with_threads(name, settings, threads)
        library = libraries[name]
        if library is not None:
            options.add_provider_for_devices(plugin_devices(name, library), settings)
        # ONNX Runtime adds the CPU itself, and refuses a second one next to a plugin.
        elif name != CPU:
            if weights_folder is not None:
                settings = with_weights(name, settings, weights_folder)
            prepare(name)
            options.add_provider(name, settings)


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
) -> list[Data]:
    """The named outputs (None: all), in order; thread-safe.

    `ortvalues` tells whether a type needs `run_with_ortvalues` (None: ask the session).  Raises
    `refusal` with ONNX Runtime's message, or with `TEXT_NOT_UTF8`.
    """
    if ortvalues is None:
        ortvalues = needs_ortvalues(session)
    try:
        if ortvalues:
            return run_with_ortvalues(session, inputs, outputs)
        result: list[Any] = session.run(outputs, inputs)
    except ort_errors() as error:
        if isinstance(error, UnicodeDecodeError) and _MESSAGE_PREFIX not in ort_text(error):
            # ONNX Runtime's Python API returns text as `str`, which fails here.
            raise AotcError(refusal, TEXT_NOT_UTF8, found=repr(ort_text(error))[:200]) from None
        if _is_on_gpu(session.get_providers()[0]) and is_out_of_memory(error):
            room = "room for the activations of this call"
            raise too_little_memory(room, ort_message(error)) from None
        raise AotcError(
            refusal, "ONNX Runtime failed while it ran the model", found=ort_message(error)
        ) from None
    return result


def _is_on_gpu(ort_name: str) -> bool:
    """Whether a provider computes on a device apart: the host's memory is limited otherwise."""
    known = BY_ORT_NAME.get(ort_name)
    return known is not None and known.asynchronous
