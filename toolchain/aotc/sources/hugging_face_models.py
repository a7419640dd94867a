"""A model of a hub's folder in its own framework: loaded, tried at sizes, called, exported.

Everything here runs in a sandboxed process, where torch, transformers and diffusers are imported.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.sources.hugging_face_folder import CONFIG, HubFolder
from aotc.sources.hugging_face_inputs import (
    LONGEST,
    Cached,
    Described,
    FreeDim,
    cache_name,
    describe,
    settings_of,
)
from aotc.sources.torch_module import decided, decisions, own_place
from aotc.spec.framework_capture import CapturedBranch, CapturedDim, StaticDim

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_SHOWN: Final = 5
# Names of the parameter that takes a decoder's cache: of transformers 5.24, and before.
_CACHES: Final = ("cache", "past_key_values")
# Layers of a cache that grow by each token; others hold states, or a window, of one size.
_GROWING: Final = frozenset({"DynamicLayer", "DynamicSlidingWindowLayer"})
_LAYER: Final = re.compile(r"(?:cache|past_key_values)\.layers\.(\d+)\.(key|value)s")
_SYMBOL: Final = re.compile(r"[A-Za-z_]\w*")
# Where a limit of a config counts positions that no text has, as RoBERTa's does.
_RESERVED: Final = 2


@record(frozen=False)
class LoadedModel:
    """A model in its framework, ready to be called, with what it takes."""

    module: Any
    hub: HubFolder
    described: Described
    cache: str
    """The parameter that takes its cache; empty: it takes none."""
    static: tuple[StaticDim, ...] = ()
    """Dims of which its own code takes one size."""
    kept: tuple[StaticDim, ...] = ()
    """Dims that are exported with one size although its code takes others."""

    @property
    def name(self) -> str:
        """Its class."""
        return self.hub.architecture


def load_model(hub: HubFolder, *, trusted: bool = False, tried: bool = True) -> LoadedModel:
    """The model of a folder, in float32, with what it takes; `tried`: as running it shows.

    Raises AOTC-I141 (no such class in the library), I146 (weights for another model), I148.
    """
    module = _from_folder(hub, trusted=trusted)
    module.eval()
    parameters = {
        name: of.default is inspect.Parameter.empty
        for name, of in inspect.signature(module.forward).parameters.items()
        if of.kind in (of.POSITIONAL_OR_KEYWORD, of.KEYWORD_ONLY)
    }
    cached, cache = _cache_of(module, parameters)
    for part in module.modules():
        if hasattr(getattr(part, "config", None), "use_cache"):
            part.config.use_cache = bool(cache)
    described = describe(
        parameters,
        settings_of(module.config),
        model=hub.architecture,
        tokenizer=_tokenizer_inputs(hub),
        cached=cached,
    )
    model = LoadedModel(module=module, hub=hub, described=described, cache=cache)
    return _tried(model) if tried else model


def _from_folder(hub: HubFolder, *, trusted: bool) -> Any:
    import torch

    if hub.library == "diffusers":
        import diffusers as library

        library.utils.logging.set_verbosity_error()
        kind = library.ModelMixin
    else:
        import transformers as library

        library.logging.set_verbosity_error()
        library.logging.disable_progress_bar()
        kind = library.PreTrainedModel
    try:
        found: Any = (
            _own_class(hub)
            if hub.custom_code and trusted
            else getattr(library, hub.architecture, None)
        )
    except ImportError as error:
        raise _unloaded(hub, error) from error
    # Others are read from files that were not looked at, such as pipelines and tokenizers.
    is_model = inspect.isclass(found) and issubclass(found, kind)
    if not is_model:
        raise AotcError(
            "AOTC-I141",
            f"{hub.library} {library.__version__} has no model {hub.architecture}",
            where=str(Path(hub.folder) / CONFIG),
            expected=f"a class of models of {hub.library}",
            found=hub.architecture,
        )
    more: dict[str, Any] = {"torch_dtype": torch.float32}
    if hub.library == "transformers":
        # What a config asks for may be a kernel of the hub, which is code.
        more = {
            "dtype": torch.float32,
            "trust_remote_code": bool(hub.custom_code) and trusted,
            "attn_implementation": None,
            "experts_implementation": None,
        }
    try:
        module, loaded = found.from_pretrained(
            hub.folder,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **more,
        )
    except MemoryError:
        raise
    # Libraries check the values of a config by errors of many kinds, some of their own.
    except Exception as error:
        raise _unloaded(hub, error) from error
    missing = sorted(map(str, loaded.get("missing_keys", ())))
    if missing:
        raise AotcError(
            "AOTC-I146",
            f"the weights have {len(missing)} tensors too few for {hub.architecture}, which would "
            "be random numbers",
            where=hub.folder,
            expected=", ".join(missing[:_SHOWN]),
            found=f"{sum(len(file.tensors) for file in hub.weights)} tensors",
        )
    return module


def _unloaded(hub: HubFolder, error: Exception) -> AotcError:
    return AotcError(
        "AOTC-I146",
        f"{hub.library} cannot load {hub.architecture} from {Path(hub.folder).name}",
        where=hub.folder,
        found=_first_line(error),
    )


def _tokenizer_inputs(hub: HubFolder) -> tuple[str, ...]:
    """The inputs that the folder's tokenizer gives, such as token_type_ids; empty: not known."""
    if not hub.tokenizer:
        return ()
    from transformers import AutoTokenizer

    # A tokenizer that does not load is none of the model's.
    with contextlib.suppress(Exception):
        tokenizer = AutoTokenizer.from_pretrained(
            hub.folder, local_files_only=True, trust_remote_code=False
        )
        return tuple(map(str, tokenizer.model_input_names))
    return ()


def _own_class(hub: HubFolder) -> Any:
    """The class that the folder's own code defines; it runs that code."""
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    for reference in hub.custom_code:
        if reference.rpartition(".")[2] == hub.architecture:
            return get_class_from_dynamic_module(reference, hub.folder, local_files_only=True)
    return None


def _cache_of(module: Any, parameters: Mapping[str, bool]) -> tuple[Cached | None, str]:
    """The cache that a decoder takes, if all of its layers are keys and values that grow.

    It is what the model leaves after a first call; and the parameter that takes it.
    """
    import torch

    name = next((each for each in _CACHES if each in parameters), "")
    config = getattr(module, "config", None)
    able = getattr(module, "can_generate", lambda: False)()
    if not name or not able or getattr(config, "is_encoder_decoder", False):
        return None, ""
    from transformers import DynamicCache

    own = {type(layer).__name__ for layer in DynamicCache(config=config).layers}
    if not own or not own <= _GROWING:
        return None, ""
    cache = DynamicCache()
    with torch.no_grad():
        module(input_ids=torch.ones(1, 2, dtype=torch.int64), **{name: cache}, use_cache=True)
    if any(getattr(layer, "keys", None) is None for layer in cache.layers):
        return None, ""
    shapes = [(layer.keys.shape, layer.values.shape) for layer in cache.layers]
    if any(len(shape) != 4 for both in shapes for shape in both):
        return None, ""
    layers = tuple((int(k[1]), int(k[3]), int(v[3])) for k, v in shapes)
    return Cached(layers=layers), name


def _tried(model: LoadedModel) -> LoadedModel:
    """The model with its dims as running it shows: which are free, and whether limits are met."""
    static: list[StaticDim] = []
    kept: list[StaticDim] = []
    for name, dim in model.described.dims.items():
        why, place = dim.kept, ""
        try:
            model_call(model, model.described.arrays({name: dim.other}))
        except Exception as error:
            why, place = _first_line(error), place_of_error(error)
        if not why:
            continue
        (kept if why == dim.kept else static).extend(
            StaticDim(
                input=each.name,
                axis=each.dims.index(name),
                size=dim.example,
                asked=name,
                why=why,
                place=place,
            )
            for each in model.described.inputs
            if name in each.dims
        )
    fixed = {each.asked for each in (*static, *kept)}
    free = model.described.fixed(fixed)
    tried = replace(model, described=free, static=tuple(static), kept=tuple(kept))
    limits = {name: _limit(tried, name, dim) for name, dim in free.dims.items()}
    dims = {name: replace(dim, max=limits[name]) for name, dim in free.dims.items()}
    return _with_unequal_sides(replace(tried, described=replace(free, dims=dims)))


def _with_unequal_sides(model: LoadedModel) -> LoadedModel:
    """The model with an example whose height is not its width: torch.export may make them one."""
    dims = model.described.dims
    height, width = dims.get("height"), dims.get("width")
    if height is None or width is None or height.example != width.example:
        return model
    wider = {**dims, "width": replace(width, example=width.other)}
    found = replace(model, described=replace(model.described, dims=wider))
    try:
        model_call(found, found.described.arrays({}))
    except Exception:
        return model
    return found


def _limit(model: LoadedModel, name: str, dim: FreeDim) -> int | None:
    """The largest size that the config states of a dim, where the model runs at it."""
    if dim.max is None or dim.max > LONGEST or name == "past_sequence":
        return dim.max
    for limit in (dim.max, dim.max - _RESERVED):
        sizes = {"batch": 1, "past_sequence": 0, name: limit}
        known = {each: size for each, size in sizes.items() if each in model.described.dims}
        with contextlib.suppress(Exception):
            model_call(model, model.described.arrays(known))
            return limit
    return None


def model_call(model: LoadedModel, arrays: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """What the model answers by itself, uncompiled, by names as the ONNX model has them."""
    import torch
    from transformers.exporters.utils import get_leaf_tensors

    with torch.no_grad():
        answer = model.module(**_arguments(model, arrays))
    found = {}
    for path, tensor in get_leaf_tensors(answer).items():
        name = output_name(path, model)
        if name:
            found[name] = (
                tensor.detach()
                .to(torch.float32 if tensor.is_floating_point() else tensor.dtype)
                .numpy()
            )
    return found


def _arguments(model: LoadedModel, arrays: Arrays) -> dict[str, Any]:
    """Arrays by the names of ONNX inputs as what `forward` takes."""
    import torch

    tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    if not model.cache:
        return tensors
    from transformers import DynamicCache

    layers: list[tuple[Any, ...]] = []
    while cache_name(len(layers), "key") in tensors:
        layers.append(
            tuple(tensors.pop(cache_name(len(layers), part)) for part in ("key", "value"))
        )
    return {**tensors, model.cache: DynamicCache(layers)}


def output_name(path: str, model: LoadedModel) -> str:
    """The name of the ONNX output at `path` of the answer; empty for what is not asked for.

    A cache's present follows its past by name; one that was not asked for is left out.  An output
    that is called as an input is gets a name of its own, as names of ONNX values must be.
    """
    layer = _LAYER.fullmatch(path)
    if layer is not None and model.cache:
        return f"present.{layer[1]}.{layer[2]}"
    if re.match(r"(cache|past_key_values)\b", path):
        return ""
    inputs = {each.name for each in model.described.inputs}
    return f"out_{path}" if path in inputs else path


def export_model(model: LoadedModel) -> ExportedModel:
    """The ONNX model by transformers' own exporter, with names of ours.

    Raises AOTC-I121 (the exporter fails).
    """
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    arguments = _arguments(model, model.described.arrays({}))
    shapes = {name: _dynamic(model, name, value) for name, value in arguments.items()}
    with decisions() as messages, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exported = OnnxExporter().export(
                model.module, arguments, OnnxConfig(dynamic_shapes=shapes)
            )
        except Exception as error:
            told = [place for _, place in messages if place]
            raise _export_failed(error, model.name, told[-1] if told else "") from None
    branches, reasons = decided(messages)
    program = exported.program
    _rename_values(program, model)
    dims, lost = _rename_dims(program, model)
    static = []
    for each in lost:
        why, _, place = reasons.get(f"{each.input}.{each.axis}", "").partition("\n")
        static.append(replace(each, why=why, place=place))
    return ExportedModel(
        program=program, dims=dims, static=(*model.kept, *static), branches=branches
    )


@record(frozen=False)
class ExportedModel:
    """A model of ONNX that was exported, in memory, with what became of its dims."""

    program: Any
    """An `onnx_ir.Model`."""
    dims: tuple[CapturedDim, ...]
    static: tuple[StaticDim, ...]
    """Dims at which the model itself takes other sizes, and the exported one does not."""
    branches: tuple[CapturedBranch, ...]


def _export_failed(error: BaseException, name: str, last: str) -> AotcError:
    """What the exporter ended with, at the line of the model's code that it could not take.

    Where the errors have none, that is the `last` line at which torch decided something for good.
    """
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    place = next(filter(None, map(place_of_error, reversed(chain))), last)
    text = re.sub(r"\x1b\[\d+m", "", str(chain[-1])).strip()
    first = next((line for line in text.splitlines() if line.strip()), "no message")
    return AotcError(
        "AOTC-I121",
        f"transformers cannot export {name}",
        where=place,
        found=f"{type(chain[-1]).__name__}: {first}"[:300],
    )


def _dynamic(model: LoadedModel, name: str, value: Any) -> Any:
    """Which axes of an argument may be of any size, as torch.export is told it."""
    import torch

    auto = torch.export.Dim.AUTO
    if name == model.cache:
        return [{0: auto, 2: auto} for _ in range(2 * len(value.layers))]
    dims = next(each.dims for each in model.described.inputs if each.name == name)
    return {axis: auto for axis, dim in enumerate(dims) if isinstance(dim, str)}


def _rename_values(program: Any, model: LoadedModel) -> None:
    """Give inputs and outputs the names that users know; leave out what was not asked for."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    graph = program.graph
    for value in graph.inputs:
        path = value.name.removeprefix("input.")
        layer = _LAYER.fullmatch(path)
        value.name = cache_name(int(layer[1]), layer[2]) if layer else path
    kept = []
    for value in list(graph.outputs):
        name = output_name(value.name.removeprefix("output."), model)
        if name:
            value.name = name
            kept.append(value)
    if len(kept) < len(graph.outputs):
        graph.outputs.clear()
        graph.outputs.extend(kept)
        RemoveUnusedNodesPass()(program)


def _rename_dims(
    program: Any, model: LoadedModel
) -> tuple[tuple[CapturedDim, ...], tuple[StaticDim, ...]]:
    """Give dims the names that we know them by; and those that became of one size nevertheless."""
    import onnx_ir

    known = {each.name: each.dims for each in model.described.inputs}
    names: dict[str, str] = {}
    free: dict[str, list[str]] = {}
    static: list[StaticDim] = []
    for value in program.graph.inputs:
        for axis, (dim, asked) in enumerate(zip(value.shape, known[value.name], strict=True)):
            if not isinstance(asked, str):
                continue
            if isinstance(dim, int):
                static.append(StaticDim(input=value.name, axis=axis, size=dim, asked=asked))
                continue
            # Dims that are one in the program have the name of the first.
            name = names.setdefault(str(dim.value), asked)
            free.setdefault(name, []).append(f"{value.name}.{axis}")
    parts = {text: name for text, name in names.items() if text.isidentifier()}
    for two in (("sequence", "past_sequence"), ("past_sequence", "sequence")):
        names[" + ".join(two)] = "total_sequence"

    def renamed(text: str) -> str:
        new = _SYMBOL.sub(lambda found: parts.get(found[0], found[0]), names.get(text, text))
        return names.get(new, new)

    for value in (
        *program.graph.inputs,
        *(output for node in program.graph.all_nodes() for output in node.outputs),
    ):
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int) and dim.value is not None:
                value.shape[axis] = onnx_ir.SymbolicDim(renamed(str(dim.value)))
    of_symbol = {name: text for text, name in names.items()}
    dims = tuple(
        CapturedDim(
            name=name,
            inputs=tuple(where),
            max=model.described.dims[name].max if name in model.described.dims else None,
            symbol=of_symbol[name],
        )
        for name, where in free.items()
    )
    return dims, tuple(static)


def place_of_error(error: BaseException) -> str:
    """Where a model's code raised, as FOLDER/FILE:LINE; empty: not in code of a model."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = (own_place(frame.filename, frame.lineno or 0) for frame in frames)
    return next(filter(None, places), "")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]
