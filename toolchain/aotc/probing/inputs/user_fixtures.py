"""Fixtures given by the user: `.npz` files, or folders of ONNX test data (`input_N.pb`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.interface import Value
from aotc.engine import values
from aotc.engine.array_files import PickledObjects, read_members
from aotc.errors import AotcError
from aotc.files.test_data import data_sources


def read_fixtures(path: Path, inputs: Sequence[Value], folder: Path) -> list[Json]:
    """Convert the fixtures at `path` into value files below `folder`.

    `path` is a .npz file, a folder of ONNX test data, or a folder of either.  The keys of a .npz
    are input names; other keys are ignored, so that it may also hold labels or expected outputs.
    Returns the name and the input files of each fixture.  Raises AOTC-I001 (nothing is there) and
    I024 (the content does not fit the inputs) and I077 (it is pickled).
    """
    if not path.exists():
        raise AotcError("AOTC-I001", "no such fixtures", where=str(path))
    sources = data_sources(path)
    if not sources:
        raise AotcError(
            "AOTC-I024",
            "no fixtures in the folder",
            where=str(path),
            expected="*.npz, or folders with input_0.pb",
        )
    result = []
    for index, source in enumerate(sources):
        arrays = (
            _read_npz(source, inputs) if source.suffix == ".npz" else read_test_data(source, inputs)
        )
        place = folder / str(index)
        place.mkdir(parents=True)
        files = {}
        for number, value in enumerate(inputs):
            array = arrays[value.name]
            require_dtype(array, value, source)
            saved = values.save(array, place / f"input_{number}")
            files[value.name] = str(Path(saved).resolve())
        result.append({"name": source.stem, "inputs": files})
    return result


def _read_npz(path: Path, inputs: Sequence[Value]) -> dict[str, Any]:
    import numpy as np

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = read_members(archive.zip, [value.name for value in inputs])
    except PickledObjects as error:
        raise AotcError(
            "AOTC-I077", "the file holds Python objects", where=str(path), found=str(error)
        ) from None
    except Exception as error:
        # For a damaged archive numpy, zip and zlib raise any kind of error.
        raise AotcError("AOTC-I024", "not a .npz file", where=str(path), found=str(error)) from None
    missing = [value.name for value in inputs if value.name not in arrays]
    if missing:
        raise AotcError(
            "AOTC-I024", "inputs are missing", where=str(path), expected=", ".join(missing)
        )
    return arrays


def read_test_data(
    folder: Path, inputs: Sequence[Value], kind: str = "input", *, refusal: str = "AOTC-I024"
) -> dict[str, Any]:
    """Read ONNX test data from `folder`: `KIND_0.pb` and so on, in the order of `inputs`.

    Returns values by name.  Raises `refusal` if the files do not fit the inputs.
    """
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import numpy_helper

    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(re.sub(r"\D", "", p.stem) or 0))
    if len(files) != len(inputs):
        raise AotcError(
            refusal,
            f"the number of {kind}s differs",
            where=str(folder),
            expected=f"{len(inputs)} {kind}_N.pb",
            found=str(len(files)),
        )
    arrays: dict[str, Any] = {}
    for file, value in zip(files, inputs, strict=True):
        try:
            data = file.read_bytes()
            if value.kind == "sequence":
                arrays[value.name] = numpy_helper.to_list(onnx.SequenceProto.FromString(data))
            elif value.kind == "optional":
                arrays[value.name] = numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
            else:
                arrays[value.name] = numpy_helper.to_array(onnx.TensorProto.FromString(data))
        except (OSError, DecodeError, ValueError, TypeError) as error:
            raise AotcError(
                refusal,
                f"the file does not hold test data of this {kind}",
                where=str(file),
                found=str(error),
            ) from None
    return arrays


def require_dtype(array: Any, value: Value, source: Path, *, refusal: str = "AOTC-I024") -> None:
    """Raise `refusal` if a value's dtype is not that of its input."""
    dtype = getattr(array, "dtype", None)
    if value.kind != "tensor" or dtype is None:
        return
    text = dtype.kind in "OUS"
    kind = "fixture" if refusal == "AOTC-I024" else "sample"
    if (value.dtype == "string") != text or (not text and values.dtype_name(dtype) != value.dtype):
        raise AotcError(
            refusal,
            f"the {kind}'s type differs from the input's",
            where=f"{source.name}: {value.name}",
            expected=value.dtype,
            found=values.dtype_name(dtype),
        )
