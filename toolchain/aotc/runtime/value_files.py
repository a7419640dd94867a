"""A model's inputs and outputs in files: `.npy`, `.npz`, and `.json` for other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aotc.base.errors import AotcError
from aotc.base.text import did_you_mean
from aotc.graph import values
from aotc.graph.allowed_arrays import cut_to_allowed
from aotc.graph.values import open_npz
from aotc.spec.payload import Fixture, Value

if TYPE_CHECKING:
    from aotc.spec.command_reports import RunOutput


_EXPECTED_FORM = "NAME=FILE.npy, NAME=FILE.json or FILE.npz"


def read_inputs(words: Sequence[str], inputs: Sequence[Value]) -> dict[str, values.Data]:
    """Read the inputs that `words` name, each `NAME=FILE` or an archive with inputs by name.

    Only the model's inputs are read from an archive, so that it may also hold labels.  The order of
    elements and of bytes in a file is of no matter: values are the same.  Raises
    AOTC-I001 (no such file) and I027 (a word, name or file that cannot be used).
    """
    names = [value.name for value in inputs]
    found: dict[str, values.Data] = {}
    for word in words:
        # Names may contain '=': the longest match counts.
        name = max((n for n in names if word.startswith(f"{n}=")), key=len, default=None)
        if name is not None:
            path = Path(word[len(name) + 1 :])
            is_archive = path.suffix.lower() == ".npz"
            given = {name: _read_member(path, name) if is_archive else _read_value(path)}
        elif word.endswith(".npz"):
            given = _read_archive(Path(word), names)
        else:
            raise _unknown_input_error(word, names)
        repeated = sorted(found.keys() & given.keys())
        if repeated:
            raise AotcError("AOTC-I027", f"input {repeated[0]!r} is given twice", where=word)
        found |= given
    return found


def _unknown_input_error(word: str, names: Sequence[str]) -> AotcError:
    given, equals, _ = word.partition("=")
    if not equals:
        return AotcError(
            "AOTC-I027", "the input is not of a usable form", expected=_EXPECTED_FORM, found=word
        )
    return AotcError(
        "AOTC-I027",
        f"the model has no input {given!r}{did_you_mean(given, names)}",
        expected=", ".join(names),
        found=given,
    )


def _read_value(path: Path) -> values.Data:
    if not path.is_file():
        raise AotcError("AOTC-I001", "no such input file", where=str(path))
    return _in_memory(values.load(path, refusal="AOTC-I027"))


def _in_memory(value: values.Data) -> values.Data:
    """`value`, with an array in C order and this machine's byte order, as calls take it."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return value
    return np.asarray(values.in_native_order(value), order="C")


def _read_member(path: Path, name: str) -> values.Data:
    """The only array of an archive, or else the one with the input's name."""
    given, array_names = _read_members(path, (name,), one=True)
    if not given:
        raise AotcError(
            "AOTC-I027",
            f"the archive holds several arrays, and none of them is called {name!r}"
            if array_names
            else "the archive holds no array",
            where=str(path),
            expected=f"one array, or one called {name}",
            found=", ".join(array_names),
            fix=f"Save it alone, as .npy or with numpy.savez(file, {name}=array).",
        )
    return next(iter(given.values()))


def _read_members(
    path: Path, names: Sequence[str], *, one: bool = False
) -> tuple[dict[str, values.Data], tuple[str, ...]]:
    """Arrays of an archive that are among `names`, or its only `one`; and the names of all."""
    if not path.is_file():
        raise AotcError("AOTC-I001", "no such input file", where=str(path))
    try:
        with open_npz(path) as archive:
            wanted = archive.names if one and len(archive.names) == 1 else names
            arrays = archive.arrays(wanted)
            return {name: _in_memory(array) for name, array in arrays.items()}, archive.names
    except Exception as error:
        # As for a single array, zip and numpy raise any kind of error for a malformed file.
        raise AotcError(
            "AOTC-I027", "the file is not a .npz archive", where=str(path), found=str(error)[:300]
        ) from None


def _read_archive(path: Path, names: Sequence[str]) -> dict[str, values.Data]:
    given, array_names = _read_members(path, names)
    if not given:
        raise AotcError(
            "AOTC-I027",
            "the archive holds no input of the model",
            where=str(path),
            expected=", ".join(names),
            found=", ".join(array_names),
        )
    return given


def read_fixture(payload: Path, fixture: Fixture) -> dict[str, values.Data]:
    """A fixture's inputs, from a verified payload; raises AOTC-G014."""
    return {
        tensor.name: values.load(payload / tensor.path, refusal="AOTC-G014")
        for tensor in fixture.inputs
    }


def write_outputs(folder: Path, outputs: Mapping[str, values.Data]) -> dict[str, Path]:
    """Write each output to a file named after it in `folder`, which is created if needed.

    See `aotc.base.files.names` for names that are not usable as file names.  Each file is written
    completely or not at all.  Returns the files by name of output.

    Raises AOTC-I017 (a link, a folder or a device has its name), I018 (full disk) and I026.
    """
    # A load only reads fixtures, and does not import what writes files.
    from aotc.base.files.failures import cannot_write
    from aotc.base.files.names import file_names
    from aotc.base.files.replacing import put_in_place
    from aotc.base.files.work_folders import work_folder

    written: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder / "outputs") as work:
            for name, file in file_names(outputs, ".npy").items():
                draft = values.save(outputs[name], work / file)
                target = folder / draft.name
                _require_plain(target)
                put_in_place(draft, target, force=True)
                written[name] = target
    except OSError as error:
        raise cannot_write(error, "cannot write the outputs", str(folder)) from None
    return written


def _require_plain(target: Path) -> None:
    """Another user with access to the folder may have put a link there, to a file of this user."""
    from aotc.base.files.replacing import reason_to_keep

    kept = reason_to_keep(target)
    if kept:
        raise AotcError(
            "AOTC-I017",
            f"the output's file exists and {kept}",
            where=str(target),
            fix="Name another folder with --output-dir, or remove it yourself.",
        )


def describe_output(name: str, value: values.Data, file: Path | None = None) -> RunOutput:
    """An output in words, with minimum, mean and maximum of its finite numbers."""
    from aotc.spec.command_reports import RunOutput

    minimum = mean = maximum = None
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size:
        numbers = value.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size:
            minimum, mean, maximum = (float(f(numbers)) for f in (np.min, np.mean, np.max))
    return RunOutput(
        name=name,
        value=values.describe(value),
        minimum=minimum,
        mean=mean,
        maximum=maximum,
        file=str(file) if file is not None else "",
    )


def resize(
    fixture: Mapping[str, values.Data],
    inputs: Sequence[Value],
    sizes: Mapping[str, int],
) -> dict[str, values.Data]:
    """A fixture's inputs with the dims in `sizes` resized, by repeating values.

    Repeating keeps values that the model accepts, such as token ids; one that the input excludes at
    these sizes becomes the nearest that it allows.  Raises AOTC-I027 if an input
    is not a tensor with known dims, or has nothing to repeat.
    """
    result = dict(fixture)
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, str) or dim not in sizes:
                continue
            array = result.get(value.name)
            if isinstance(array, np.ndarray) and array.shape[axis] == sizes[dim]:
                continue
            if not isinstance(array, np.ndarray) or array.shape[axis] == 0:
                raise AotcError(
                    "AOTC-I027", f"input {value.name!r} cannot be resized", where=f"dim {dim}"
                )
            take = np.arange(sizes[dim]) % array.shape[axis]
            result[value.name] = np.take(array, take, axis=axis)
        if value.allowed is not None:
            result[value.name] = cut_to_allowed(result[value.name], value, sizes)
    return result
