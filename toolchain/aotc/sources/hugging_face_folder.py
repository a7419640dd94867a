"""A folder of Hugging Face's hub as it lies on disk: read and judged without any library of theirs.

`config.json` names the architecture, safetensors files hold the weights, in one file or in shards
that an index names. Nothing here runs code of the folder, imports torch or opens a pickle: what
cannot be built is refused here, before a process is started for it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from aotc.base.errors import AotcError
from aotc.base.files.reading import open_plain, read_at_most
from aotc.base.records import record

CONFIG: Final = "config.json"
# A path that is made of hf://ORG/NAME has one slash.
_SCHEME: Final = "hf:/"
# Names of the weights, each with its index: of transformers, and of diffusers.
_WEIGHTS: Final = ("model.safetensors", "diffusion_pytorch_model.safetensors")
_INDEX_SUFFIX: Final = ".index.json"
# Weights in forms whose loading runs code, or that other frameworks read.
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_OTHERS: Final = ("*.h5", "*.msgpack", "*.gguf", "*.ot")
# A pointer of Git LFS stands where the file itself was not fetched.
_LFS_POINTER: Final = b"version https://git-lfs"
# Limits of what is read of a folder that may be hostile.
_MOST_JSON_BYTES: Final = 64 << 20
_MOST_HEADER_BYTES: Final = 100 << 20
_SHOWN: Final = 5
_REFERENCE: Final = re.compile(
    r"hf://?(?P<name>[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?"
)
# Where a snapshot lies in the cache of the hub: models--ORG--NAME/snapshots/COMMIT.
_SNAPSHOT: Final = re.compile(r"models--(?P<name>[^/]+)/snapshots/(?P<revision>[0-9a-f]{40})/?$")


@record
class HubName:
    """A model of the hub by its name, such as hf://ORG/NAME@REVISION."""

    name: Annotated[str, "ORG/NAME"]
    revision: Annotated[str | None, "branch, tag or commit; None: the main branch"] = None

    def __str__(self) -> str:
        return f"hf://{self.name}@{self.revision}" if self.revision else f"hf://{self.name}"


@record
class WeightsFile:
    """A safetensors file of a folder."""

    name: str
    size: Annotated[int, "bytes"]
    tensors: tuple[str, ...]


@record
class HubFolder:
    """What a folder holds, as far as it decides whether and how it is exported."""

    folder: str
    library: Annotated[str, "transformers or diffusers"]
    architecture: Annotated[str, "name of the class, as the library exports it"]
    weights: tuple[WeightsFile, ...]
    tokenizer: Annotated[bool, "whether the folder has one"] = False
    custom_code: Annotated[
        tuple[str, ...], "classes that are code of the folder itself, as auto_map names them"
    ] = ()
    made_by: Annotated[str, "library and version that saved it; empty: it does not say"] = ""
    name: Annotated[str, "ORG/NAME on the hub; empty: unknown"] = ""
    revision: Annotated[str, "commit on the hub; empty: unknown"] = ""


def hub_name(source: str) -> HubName:
    """The model that `hf://ORG/NAME@REVISION` names.  Raises AOTC-I147."""
    found = _REFERENCE.fullmatch(source)
    if found is None or ".." in source:
        raise AotcError(
            "AOTC-I147",
            f"{source} is not a name of the hub",
            where=source,
            expected="hf://ORG/NAME or hf://ORG/NAME@REVISION",
            fix="Name the model as its page on the hub does, and its revision after an @.",
        )
    return HubName(name=found["name"], revision=found["revision"])


def is_hub_name(source: str) -> bool:
    """Whether `source` is meant as a name of the hub."""
    return source.startswith(_SCHEME)


def is_hub_folder(path: Path) -> bool:
    """Whether `path` is a folder that might be one of the hub's; what it lacks is told later.

    One that holds ONNX files and no weights of another form is not: its file is what to build.
    """
    if not path.is_dir():
        return False
    if any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*.bin")):
        return True
    exported = any(path.glob("*.onnx")) or any(path.glob("onnx/*.onnx"))
    return (path / CONFIG).is_file() and not exported


def read_hub_folder(path: Path, *, trusted: bool = False) -> HubFolder:
    """Read the folder `path`; only a `trusted` one may bring code of its own.

    Raises AOTC-I127 (code of its own), I140 (no configuration that names an architecture), I142
    (quantized), I143 (weights only in other formats), I144 (none), I145 (some missing or damaged).
    """
    config = _configuration(path)
    library, architecture = _architecture(path, config)
    custom = _custom_code(config)
    if custom and not trusted:
        raise AotcError(
            "AOTC-I127",
            f"the model {path.name} runs code of its own folder",
            where=str(path / CONFIG),
            expected=f"an architecture of {library}",
            found=f"auto_map: {', '.join(custom)[:200]}",
        )
    method = _quantization(config)
    if method:
        raise AotcError(
            "AOTC-I142",
            f"the weights of {path.name} are quantized for another runtime",
            where=str(path / CONFIG),
            expected="weights in float32, float16 or bfloat16",
            found=f"quantization_config: {method}",
        )
    weights = tuple(_weights(path))
    snapshot = _SNAPSHOT.search(path.absolute().as_posix())
    return HubFolder(
        folder=str(path),
        library=library,
        architecture=architecture,
        weights=weights,
        tokenizer=(path / "tokenizer_config.json").is_file(),
        custom_code=custom,
        made_by=_made_by(library, config),
        name=snapshot["name"].replace("--", "/") if snapshot else "",
        revision=snapshot["revision"] if snapshot else "",
    )


def _read_json(path: Path, code: str, kind: str) -> dict[str, Any]:
    """The object in a JSON file that a stranger wrote.  Raises `code`."""
    try:
        data = read_at_most(path, _MOST_JSON_BYTES)
        if len(data) > _MOST_JSON_BYTES:
            raise ValueError(f"it has more than {_MOST_JSON_BYTES >> 20} MiB")
        value = json.loads(data)
        if not isinstance(value, dict):
            raise ValueError(f"it holds a {type(value).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        pointer = _is_pointer(path)
        raise AotcError(
            code,
            f"{path.name} is not {kind}",
            where=str(path),
            expected="a JSON object",
            found="a pointer of Git LFS" if pointer else str(error)[:200],
            fix="Fetch the file itself: git lfs pull." if pointer else "",
        ) from error
    return value


def _configuration(path: Path) -> dict[str, Any]:
    """`config.json` of the folder.  Raises AOTC-I140."""
    file = path / CONFIG
    if file.is_file():
        return _read_json(file, "AOTC-I140", "the configuration of a model")
    pipeline = path / "model_index.json"
    if pipeline.is_file():
        parts = sorted(each.parent.name for each in path.glob(f"*/{CONFIG}"))
        raise AotcError(
            "AOTC-I140",
            f"{path.name} is a pipeline of several models",
            where=str(pipeline),
            expected="the folder of one model",
            found=f"folders {', '.join(parts)}" if parts else "none with a config.json",
            fix=f"Build each by itself: aotc build {path / (parts[0] if parts else 'NAME')}.",
        )
    adapter = (path / "adapter_config.json").is_file()
    raise AotcError(
        "AOTC-I140",
        f"{path.name} has no configuration",
        where=str(path),
        expected=CONFIG,
        found="an adapter (adapter_config.json) without the model it adapts" if adapter else "",
        fix="Merge the adapter into its model (merge_and_unload) and save that." if adapter else "",
    )


def _architecture(path: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """The library and the class that `config` names.  Raises AOTC-I140."""
    if isinstance(config.get("_class_name"), str) and "_diffusers_version" in config:
        return "diffusers", config["_class_name"]
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str) and named[0].isidentifier():
        return "transformers", named[0]
    raise AotcError(
        "AOTC-I140",
        f"the configuration of {path.name} names no architecture",
        where=str(path / CONFIG),
        expected='such as "architectures": ["BertForSequenceClassification"]',
        found=f"architectures: {named!r:.100}",
    )


def _custom_code(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes of the folder's own code, such as modeling_own.OwnModel."""
    named = config.get("auto_map")
    if not named:
        return ()
    return tuple(sorted(map(str, named.values() if isinstance(named, dict) else [named])))


def _made_by(library: str, config: Mapping[str, Any]) -> str:
    version = config.get("transformers_version") or config.get("_diffusers_version")
    return f"{library} {version}" if isinstance(version, str) else ""


def _quantization(config: Mapping[str, Any]) -> str:
    """How the weights were quantized for a runtime that we do not have; empty: not."""
    settings = config.get("quantization_config")
    return str(settings.get("quant_method", "unknown")) if isinstance(settings, dict) else ""


def _weights(path: Path) -> Iterator[WeightsFile]:
    """The weights of the folder, all there and whole.  Raises AOTC-I143, I144, I145."""
    for name in _WEIGHTS:
        if (path / name).is_file():
            yield _safetensors(path / name)
            return
        if (path / f"{name}{_INDEX_SUFFIX}").is_file():
            yield from _shards(path, path / f"{name}{_INDEX_SUFFIX}")
            return
    shards = sorted(each.name for each in path.glob("*-of-*.safetensors"))
    if shards:
        raise AotcError(
            "AOTC-I145",
            f"the index of the shards of {path.name} is missing",
            where=str(path),
            expected=f"{_WEIGHTS[0]}{_INDEX_SUFFIX}",
            found=", ".join(shards[:_SHOWN]),
        )
    for code, patterns in (("AOTC-I143", _PICKLES), ("AOTC-I143", _OTHERS)):
        found = sorted(each.name for pattern in patterns for each in path.glob(pattern))
        if found:
            raise AotcError(
                code,
                f"the weights of {path.name} are not in safetensors"
                + (": loading a pickle runs code" if patterns is _PICKLES else ""),
                where=str(path / found[0]),
                expected=_WEIGHTS[0],
                found=", ".join(found[:_SHOWN]),
            )
    found = sorted(each.name for each in path.glob("*.safetensors"))
    raise AotcError(
        "AOTC-I144",
        f"{path.name} holds no weights",
        where=str(path),
        expected=f"{_WEIGHTS[0]}, or {_WEIGHTS[0]}{_INDEX_SUFFIX} and its shards",
        found=", ".join(found[:_SHOWN]) or "no safetensors file",
    )


def _shards(path: Path, index: Path) -> Iterator[WeightsFile]:
    """The files that an index of shards names, with all the tensors that it promises of them."""
    promised = _read_json(index, "AOTC-I145", "an index of shards").get("weight_map")
    if not isinstance(promised, dict) or not promised:
        raise AotcError(
            "AOTC-I145",
            f"{index.name} is not an index of shards",
            where=str(index),
            expected="weight_map, from each tensor to its file",
            found=f"{promised!r:.100}",
        )
    names = sorted({str(name) for name in promised.values()})
    outside = [name for name in names if Path(name).name != name or "\\" in name]
    missing = [name for name in names if name not in outside and not (path / name).is_file()]
    if outside or missing:
        raise AotcError(
            "AOTC-I145",
            f"{len(outside or missing)} of {len(names)} shards of {path.name} "
            + ("are named outside its folder" if outside else "are missing"),
            where=str(index),
            expected=", ".join(names[:_SHOWN]) if outside else ", ".join(missing[:_SHOWN]),
            found="" if outside else f"{len(names) - len(missing)} of {len(names)} files",
        )
    for name in names:
        file = _safetensors(path / name)
        lacking = sorted(
            tensor for tensor, of in promised.items() if of == name and tensor not in file.tensors
        )
        if lacking:
            raise AotcError(
                "AOTC-I145",
                f"{name} lacks {len(lacking)} tensors that the index promises",
                where=str(path / name),
                expected=", ".join(lacking[:_SHOWN]),
                found=f"{len(file.tensors)} tensors",
            )
        yield file


def _safetensors(path: Path) -> WeightsFile:
    """The tensors that a safetensors file holds, by its header.  Raises AOTC-I145."""
    size = path.stat().st_size
    try:
        with open_plain(path) as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length > min(_MOST_HEADER_BYTES, size - 8):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        tensors = {name: of for name, of in header.items() if name != "__metadata__"}
        needed = (
            8 + length + max((int(of["data_offsets"][1]) for of in tensors.values()), default=0)
        )
        if needed != size:
            raise ValueError(f"it has {size} bytes, where its header tells of {needed}")
    except (
        *(ValueError, KeyError, TypeError, IndexError, AttributeError),
        *(RecursionError, OverflowError),
    ) as error:
        pointer = _is_pointer(path)
        raise AotcError(
            "AOTC-I145",
            f"{path.name} is {'a pointer of Git LFS' if pointer else 'damaged'}",
            where=str(path),
            expected="a whole safetensors file",
            found="" if pointer else str(error)[:200],
            fix="Fetch the file itself: git lfs pull." if pointer else "",
        ) from error
    return WeightsFile(name=path.name, size=size, tensors=tuple(sorted(tensors)))


def _is_pointer(path: Path) -> bool:
    """Whether a pointer of Git LFS stands in the file's place."""
    with open_plain(path) as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER
