"""The files that hold a model's external data: where they may lie, what they are, own copies.

Caches of model hubs lay files as links: `snapshots/REVISION/model.onnx` leads to `blobs/DIGEST`,
and so does its data.  A link may lead to where ONNX Runtime follows it, and to the blobs of the
same hub; anywhere else it would let a downloaded model take any file of this user into an artifact.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import onnx

from aotc.base.errors import AotcError
from aotc.base.files.confined import is_confined
from aotc.base.files.reading import open_plain
from aotc.base.progress import hashing
from aotc.base.records import replace
from aotc.graph.foreign_files import LFS_FIX, LFS_START
from aotc.graph.model import tensor_bytes
from aotc.spec.manifest import ExternalFile

if TYPE_CHECKING:
    import io

_BLOCK = 4 << 20


def path_with_data(names: Iterable[str], path: Path) -> Path:
    """`path`, or its target if it is a link and the external data of these `names` is there.

    Like ONNX Runtime: external data next to the link comes first.
    """
    return path if any(os.path.lexists(path.parent / each) for each in names) else path.resolve()


def locations(tensors: Iterable[onnx.TensorProto]) -> set[str]:
    """The files that tensors name for their data, as they are written."""
    return {
        pair.value for tensor in tensors for pair in tensor.external_data if pair.key == "location"
    }


def external_files(tensors: Iterable[onnx.TensorProto], model: Path) -> tuple[ExternalFile, ...]:
    """Check every file that `tensors` of the file `model` refer to, and compute its digest.

    Raises AOTC-I003 (missing), I004 (truncated), I005 (outside the folder), I006 (a link that leads
    elsewhere, or no plain file) and I086 (replaced meanwhile).
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
    files = {path: _external_file(model, path, end) for path, end in sorted(whole.items())}
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


def _external_file(model: Path, parts: PurePosixPath, end: int) -> ExternalFile:
    path = model.parent / parts
    with _opened(model, parts) as file:
        size = os.fstat(file.fileno()).st_size
        if size < end:
            is_pointer = file.read(len(LFS_START)) == LFS_START
            raise AotcError(
                "AOTC-I004",
                "external data is a Git LFS pointer, not the data itself"
                if is_pointer
                else "external data is truncated",
                where=str(path),
                expected=f"at least {end} bytes",
                found=f"{size} bytes",
                fix=LFS_FIX if is_pointer else "",
            )
        digest = _digest(file, size)
    return ExternalFile(location=str(parts), size=size, sha256=digest)


def _digest(file: io.BufferedReader, size: int) -> str:
    """The sha256 (hex) of an open file of `size` bytes."""
    hasher, buffer = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    with hashing(size) as tally:
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
            tally.add(count)
    return hasher.hexdigest()


def _opened(model: Path, parts: PurePosixPath) -> io.BufferedReader:
    """The file at `parts` from the folder of `model`, open; what is open is what is judged."""
    path = model.parent / parts
    try:
        file = open_plain(path)
    except FileNotFoundError:
        what = "external data file is missing"
        if path.is_symlink():
            what = f"external data is a link to a file that does not exist: {path.readlink()}"
        raise AotcError("AOTC-I003", what, where=str(path)) from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _unusable(path, "links that lead in a circle") from None
        if error.errno in (errno.EINVAL, errno.EISDIR):
            raise _unusable(path, "a folder or special file") from None
        raise AotcError(
            "AOTC-I003", f"cannot read external data: {error.strerror}", where=str(path)
        ) from None
    try:
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder) for folder in _folders(model)) or (
            is_confined(model) and real != Path(os.path.realpath(model.parent)) / parts
        ):
            raise _unusable(path, f"a link to {real}")
        # The name may be another file's by now.
        if not os.path.samestat(real.lstat(), os.fstat(file.fileno())):
            raise _changed(path)
    except OSError:
        file.close()
        raise _changed(path) from None
    except BaseException:
        file.close()
        raise
    return file


def _folders(model: Path) -> Iterator[Path]:
    """Where links to the data of `model` may lead: ONNX Runtime's folders, and those of its hub."""
    file = Path(os.path.realpath(model))
    yield from (Path(os.path.realpath(model.parent)), file.parent)
    for place in (Path(os.path.abspath(model)), file):  # noqa: PTH100
        for folder in place.parents:
            blobs = Path(os.path.realpath(folder.parent)) / "blobs"
            if folder.name == "snapshots" and blobs.is_dir() and not blobs.is_symlink():
                yield blobs


def _unusable(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I006",
        "external data is not a plain file in the model's folder",
        where=str(path),
        expected="a plain file in the model's folder, or a link to one there, to one next to the "
        "file that the model's own link leads to, or to one in the blobs of the same hub",
        found=found,
    )


def _changed(path: Path) -> AotcError:
    return AotcError("AOTC-I086", "the model was changed while it was built", where=str(path))


# Own copies of linked files.
#
# ONNX Runtime follows links of a model that it opens by its path alone, and onnx follows none; nor
# would a file with other names be this build's own.


def is_linked(files: Iterable[ExternalFile], model: Path) -> bool:
    """Whether any of the files is behind a link or has several names."""
    folder = Path(os.path.realpath(model.parent))
    paths = [folder / _path_in_model(file.location) for file in files]
    return any(Path(os.path.realpath(path)) != path or path.stat().st_nlink > 1 for path in paths)


def copy_files(files: Iterable[ExternalFile], model: Path, folder: Path) -> None:
    """Copy the checked files of `model` into `folder`, under their locations; raises AOTC-I086."""
    known = {_path_in_model(file.location): file for file in files}
    for parts, file in known.items():
        target = folder / parts
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with _opened(model, parts) as source, target.open("xb") as copy:
            while block := source.read(_BLOCK):
                digest.update(block)
                copy.write(block)
        if digest.hexdigest() != file.sha256:
            raise _changed(model.parent / parts)
