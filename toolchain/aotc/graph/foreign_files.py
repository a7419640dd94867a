"""What a file is that was given for an ONNX model and is none, by its first bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aotc.base.errors import AotcError

LFS_START: Final = b"version https://git-lfs.github.com/spec/"
LFS_FIX: Final = (
    "Fetch the file itself: run 'git lfs pull' in the repository, or download it again."
)
# Suffixes that models of other kinds have, of which some are ZIP archives, as packed artifacts are.
OTHER_SUFFIXES: Final = (
    *(".ort", ".pb", ".pbtxt", ".pt", ".pth", ".pt2", ".keras", ".safetensors", ".tflite"),
)
_TORCH_FIX: Final = (
    "Make the module of it, and export that: torch.export.save(torch.export.export(module, inputs, "
    "dynamic_shapes=...), 'model.pt2')."
)
_WEIGHTS_FIX: Final = (
    "It holds weights without a graph. Export the model that it belongs to, for example with "
    "'optimum-cli export onnx', or download its .onnx file."
)
_AGAIN: Final = (
    "Open the address in a browser: it may ask for a login. Then download the file itself."
)
_TEXT = 512
_MAX_MEMBERS = 10_000


class _Kind(NamedTuple):
    """One kind of file: what it is in words, what to do, and whether some bytes are one."""

    words: str
    fix: str
    fits: Callable[[bytes], bool]


def _starts(*starts: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(starts)


def _at_four(mark: bytes) -> Callable[[bytes], bool]:
    return lambda data: data[4:8] == mark


def _is_safetensors(data: bytes) -> bool:
    # The length of a JSON header, and the header.
    return (
        int.from_bytes(data[:8], "little") < 1 << 32
        and re.match(rb'\{\s*["}]', data[8:72]) is not None
    )


def _is_html(data: bytes) -> bool:
    head = data[:_TEXT].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body", b"<!--"))


def _is_json(data: bytes) -> bool:
    return re.match(rb'(\xef\xbb\xbf)?\s*[{\[]\s*["{\]}]', data[:_TEXT]) is not None


def _is_pickle(data: bytes) -> bool:
    return (
        data[:1] == b"\x80"
        and data[1:2] in (b"\2", b"\3", b"\4", b"\5")
        and data[2:3] in b"}c\x8a\x95("
    )


def _is_tar(data: bytes) -> bool:
    return data[257:262] == b"ustar"


_KINDS: Final = (
    _Kind("a Git LFS pointer, not the model itself", LFS_FIX, _starts(LFS_START)),
    _Kind(
        "a pointer of git-annex, not the model itself",
        "Fetch the file itself: run 'git annex get FILE' in the repository.",
        _starts(b"/annex/objects/"),
    ),
    _Kind(
        "a GGUF file of llama.cpp",
        "GGUF holds weights without an ONNX graph. Export the original model to ONNX, for example "
        "with 'optimum-cli export onnx'.",
        _starts(b"GGUF", b"FUGG"),
    ),
    _Kind(
        "a TensorFlow Lite model",
        "Convert it to ONNX first: python -m tf2onnx.convert --tflite FILE --output model.onnx.",
        _at_four(b"TFL3"),
    ),
    _Kind(
        "a model in ONNX Runtime's own format (.ort)",
        "Build from the .onnx file that it was made of.",
        _at_four(b"ORTM"),
    ),
    _Kind("a safetensors file", _WEIGHTS_FIX, _is_safetensors),
    _Kind(
        "an HDF5 file, such as Keras writes",
        "Convert the model to ONNX first: model.export('model.onnx', format='onnx') in Keras 3.",
        _starts(b"\x89HDF\r\n\x1a\n"),
    ),
    _Kind(
        "a pickle, such as PyTorch wrote before 1.6 and scikit-learn's users write",
        "Loading it runs what its author wrote. Export the model where you trust that: with "
        "torch.export.save to a .pt2 file, or with skl2onnx.",
        _is_pickle,
    ),
    _Kind("an HTML or XML page, such as an error of a server", _AGAIN, _is_html),
    _Kind(
        "a JSON document, such as a configuration or an error of a server",
        "Name the .onnx file; if this is it, download it again.",
        _is_json,
    ),
    _Kind(
        "a numpy array",
        "Name the .onnx file; inputs are given with --fixtures.",
        _starts(b"\x93NUMPY"),
    ),
    _Kind("compressed by gzip", "Unpack it first: gunzip FILE.", _starts(b"\x1f\x8b")),
    _Kind("compressed by zstd", "Unpack it first: unzstd FILE.", _starts(b"\x28\xb5\x2f\xfd")),
    _Kind("compressed by xz", "Unpack it first: unxz FILE.", _starts(b"\xfd7zXZ\0")),
    _Kind("a tar archive", "Unpack it first, and name the .onnx file in it.", _is_tar),
)


def refuse_foreign(data: bytes, path: Path) -> None:
    """Raise AOTC-I002 if the bytes of the file `path` are those of another known kind of file."""
    found = _zip_kind(data) if data.startswith(b"PK\3\4") else None
    for kind in _KINDS:
        if found is None and kind.fits(data):
            found = kind.words, kind.fix
    if found is not None:
        words, fix = found
        raise AotcError(
            "AOTC-I002",
            f"the file is no ONNX model, but {words}",
            where=str(path),
            fix=fix.replace("FILE", path.name),
        )


def _zip_kind(data: bytes) -> tuple[str, str]:
    """What a ZIP archive is, by the names of its members."""
    names = list(itertools.islice(_members(data), _MAX_MEMBERS))
    if not names:
        # Cut off: the list of members is at its end.
        return "a damaged ZIP archive", "Download it again; a PyTorch file is one, too."
    last = {name.rpartition("/")[2] for name in names}
    if "archive_format" in last or any("/models/" in f"/{name}" for name in names):
        return "a PyTorch exported program (.pt2)", "Give it a name that ends in .pt2."
    if any(f"/{name}".endswith("/payload/aotc.json") for name in names):
        return "a packed artifact, built already", "See 'aotc inspect FILE'."
    if {"data.pkl", "constants.pkl"} <= last:
        return "a TorchScript module (torch.jit.save)", _TORCH_FIX
    if "data.pkl" in last:
        return "a PyTorch file (.pt), a pickle of weights or modules", _TORCH_FIX
    if {"config.json", "metadata.json"} <= last and any(n.endswith(".h5") for n in last):
        return "a Keras model (.keras)", (
            "Convert it to ONNX first: model.export('model.onnx', format='onnx') in Keras 3."
        )
    if names and all(name.endswith(".npy") for name in names):
        return "a numpy archive (.npz)", "Name the .onnx file; inputs are given with --fixtures."
    inside = next((name for name in names if name.endswith(".onnx")), "")
    return "a ZIP archive", f"Unpack it first, and name {inside or 'the .onnx file'} in it."


def _members(data: bytes) -> Iterator[str]:
    """Names in the list of a ZIP archive's members, which nobody needs to unpack."""
    for found in re.finditer(rb"PK\x01\x02", data):
        length = int.from_bytes(data[found.start() + 28 : found.start() + 30], "little")
        name = data[found.start() + 46 : found.start() + 46 + length]
        yield name.decode("utf-8", "replace")
