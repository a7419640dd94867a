"""Models of Hugging Face's hub: a folder as it lies on disk, or `hf://ORG/NAME@REVISION`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import file_sha256
from aotc.base.records import replace
from aotc.sources.base import (
    EXAMPLES,
    MODEL,
    MODULES,
    Answers,
    Captured,
    CaptureRequest,
    Importer,
)
from aotc.sources.hugging_face_folder import (
    HubFolder,
    HubName,
    hub_name,
    is_hub_folder,
    is_hub_name,
    read_hub_folder,
)
from aotc.sources.hugging_face_inputs import LONGEST
from aotc.spec.framework_capture import FrameworkCapture, SourceFile, StaticDim
from aotc.spec.shapes import DimRange

if TYPE_CHECKING:
    import numpy as np

    from aotc.sources.hugging_face_models import ExportedModel, LoadedModel

# What a folder is captured from: code of its own is fetched for who trusts it alone.
_PATTERNS: Final = ("*.json", "*.safetensors", "*.txt", "*.model")
# The option that says where a name of the hub was fetched to.
_FETCHED: Final = "fetched"
_DECIDING: Final = (".json", ".safetensors", ".py")
_LARGE: Final = 1 << 30


class HuggingFace(Importer):
    """A model of transformers or diffusers."""

    name: ClassVar[str] = "hf"
    extra: ClassVar[str] = "hf"
    title: ClassVar[str] = "a model of Hugging Face's hub"
    modules: ClassVar[tuple[str, ...]] = (
        *("torch", "transformers", "diffusers", "huggingface_hub", "safetensors"),
        *("onnxscript", "onnx_ir", "onnx", "numpy"),
    )
    distributions: ClassVar[tuple[str, ...]] = (
        *("torch", "transformers", "diffusers", "huggingface_hub", "safetensors"),
        *("onnxscript", "onnx-ir", "onnx", "numpy"),
    )

    def recognizes(self, source: str) -> bool:
        """A name of the hub, or a folder with a model's configuration or weights."""
        return is_hub_name(source) or is_hub_folder(Path(source))

    def require(self, source: str) -> None:
        """Raise what is wrong with the name or the folder; code of its own is judged later."""
        if is_hub_name(source):
            hub_name(source)
        else:
            read_hub_folder(Path(source), trusted=True)

    def files(self, source: str) -> tuple[Path, ...]:
        """The configuration, the weights and what else decides the capture; none for a name."""
        if is_hub_name(source):
            return ()
        return _deciding(Path(source))

    def model_name(self, source: str) -> str:
        """The name on the hub without its organization, or the folder's."""
        if is_hub_name(source):
            return hub_name(source).name.rpartition("/")[2]
        return Path(source).absolute().name

    def is_remote(self, source: str) -> bool:
        """Whether it is a name of the hub."""
        return is_hub_name(source)

    def fetch(self, request: CaptureRequest) -> CaptureRequest:
        """Find the name in the hub's cache, or fetch what is lacking; raises AOTC-I147."""
        asked = hub_name(request.source)
        patterns = (*_PATTERNS, "*.py") if request.trusted else _PATTERNS
        folder, failure = _snapshot(asked, patterns, offline=True)
        # A cache may lack files that another program did not ask for.
        if not folder or not _is_whole(Path(folder)):
            more, failure = _snapshot(asked, patterns, offline=False)
            folder = more or folder
        if not folder:
            at = f" --revision {asked.revision}" if asked.revision else ""
            raise AotcError(
                "AOTC-I147",
                f"{asked.name} is not in the hub's cache, and the hub does not answer",
                where=str(asked),
                expected=asked.revision or "the main branch",
                found=failure,
                fix=f"Fetch it first, where there is a network: hf download {asked.name}{at}.",
            )
        return replace(request, options={**request.options, _FETCHED: folder})

    def is_free(self, request: CaptureRequest) -> bool:
        """Where code of the folder may run, which transformers keeps a copy of."""
        return request.trusted

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Load the model, try its dims, and export it."""
        from aotc.sources.hugging_face_models import export_model, load_model

        hub = _folder(request)
        model = load_model(hub, trusted=request.trusted)
        exported = export_model(model)
        return _written(request, hub, model, exported, folder, self.versions())

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """The model itself, run by PyTorch operator by operator."""
        import torch

        from aotc.sources.hugging_face_models import load_model, model_call

        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        hub = _folder(request)
        model = load_model(hub, trusted=request.trusted, tried=False)

        def answer(given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
            found = model_call(model, given)
            return {name: found[name] for name in captured.outputs}

        return answer


def _snapshot(asked: HubName, patterns: Sequence[str], *, offline: bool) -> tuple[str, str]:
    """The folder of the cache that has the revision, or why there is none."""
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(
            asked.name,
            revision=asked.revision,
            allow_patterns=list(patterns),
            local_files_only=offline,
        )
    except Exception as error:
        text = str(error).strip()
        return "", f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]
    return str(folder), ""


def _is_whole(folder: Path) -> bool:
    """Whether a snapshot of the cache has all of its configuration and weights."""
    try:
        read_hub_folder(folder, trusted=True)
    except AotcError:
        return False
    return True


def _folder(request: CaptureRequest) -> HubFolder:
    """The folder that the source is, or was fetched to; raises what `read_hub_folder` does."""
    fetched = request.options.get(_FETCHED)
    hub = read_hub_folder(Path(fetched or request.source), trusted=request.trusted)
    return replace(hub, name=hub_name(request.source).name) if fetched else hub


def _written(
    request: CaptureRequest,
    hub: HubFolder,
    model: LoadedModel,
    exported: ExportedModel,
    folder: Path,
    versions: Mapping[str, str],
) -> Captured:
    """The files of a capture, and what it found."""
    import numpy as np
    import onnx_ir

    from aotc.sources.torch_program import take_modules

    program = exported.program
    modules = take_modules(program)
    (folder / MODULES).write_text(json.dumps(modules))
    size = sum(file.size for file in hub.weights)
    onnx_ir.save(program, folder / MODEL, external_data=f"{MODEL}.data" if size > _LARGE else None)
    inputs = [str(value.name) for value in program.graph.inputs]
    # One text or image at a time is in every range that is proven.
    examples = model.described.arrays({"batch": 1, "image_batch": 1})
    given: dict[str, Any] = {name: examples[name] for name in inputs}
    np.savez(folder / EXAMPLES, **given)
    files = _files(hub)
    framework = FrameworkCapture(
        importer=HuggingFace.name,
        format=f"{hub.library} model",
        source=str(hub_name(request.source))
        if is_hub_name(request.source)
        else Path(hub.folder).name,
        files=files,
        revision=hub.revision,
        weights_sha256=_weights_digest(hub, files),
        made_by=hub.made_by,
        versions=versions,
        exporter="transformers.exporters.OnnxExporter",
        opset=program.opset_imports.get("", 0),
        dims=exported.dims,
        static_dims=exported.static,
        guards=tuple(map(_guard, model.static)),
        branches=exported.branches,
        modules=len({path for path, _ in modules.values() if path}),
        trusted=request.trusted,
    )
    cached = any("total_sequence" in each.dims for each in model.described.inputs)
    return Captured(
        framework=framework,
        outputs=tuple(str(value.name) for value in program.graph.outputs),
        dims=_ranges(model, exported),
        relations=("total_sequence = past_sequence + sequence",) if cached else (),
        examples=EXAMPLES,
        modules=MODULES,
    )


def _guard(dim: StaticDim) -> str:
    """That the model itself takes one size of a dim."""
    at = f" ({dim.place})" if dim.place else ""
    return f"{dim.input}.{dim.axis} = {dim.size}: {dim.why}{at}"


def _ranges(model: LoadedModel, exported: ExportedModel) -> dict[str, DimRange]:
    """The ranges that the config states of free dims, up to what a build tries by running.

    The sum of a past and what is added has the range that follows from both.
    """
    found = {}
    for dim in exported.dims:
        known = model.described.dims.get(dim.name)
        if known is None or known.max is None:
            continue
        limit = min(known.max, LONGEST)
        past = dim.name == "past_sequence"
        found[dim.name] = DimRange(min=0 if past else 1, max=limit - past)
    return found


def _files(hub: HubFolder) -> tuple[SourceFile, ...]:
    """The files that decide the capture, with their digests."""
    folder = Path(hub.folder)
    found = (
        SourceFile(name=path.name, size=path.stat().st_size, sha256=file_sha256(path))
        for path in _deciding(folder)
    )
    return tuple(found)


def _deciding(folder: Path) -> tuple[Path, ...]:
    """Files of a folder that may decide what is captured, by name."""
    return tuple(
        sorted(path for path in folder.iterdir() if path.suffix in _DECIDING and path.is_file())
    )


def _weights_digest(hub: HubFolder, files: Sequence[SourceFile]) -> str:
    """sha256 of the lines `SHA256  NAME` of all files of weights, as sha256sum writes them."""
    names = {file.name for file in hub.weights}
    lines = [f"{file.sha256}  {file.name}\n" for file in files if file.name in names]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
