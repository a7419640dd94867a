"""Inputs and outputs of a model as files: `.npy`, `.npz`, `.json` for what those cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aotc.contract.codec.spelling import nearest
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.payload_files import Fixture
from aotc.engine import values
from aotc.engine.array_files import read_members
from aotc.errors import AotcError

# A load reads fixtures, and needs nothing of what writes files.
if TYPE_CHECKING:
    from aotc.contract.results.command_reports import RunOutput

_FORM = "NAME=FILE.npy, NAME=FILE.json or FILE.npz"


def read_inputs(words: Sequence[str], inputs: Sequence[Value]) -> dict[str, values.Data]:
    """The inputs that `words` give, each `NAME=FILE` or an archive with inputs by name.

    Of an archive only the model's inputs are read, so that it may hold labels too.
    Raises AOTC-I001 (no such file) and I027 (a word, name or file that cannot be used).
    """
    names = [value.name for value in inputs]
    found: dict[str, values.Data] = {}
    for word in words:
        # Names may hold '=' themselves: the longest that fits is meant.
        name = max((n for n in names if word.startswith(f"{n}=")), key=len, default=None)
        if name is not None:
            path = Path(word[len(name) + 1 :])
            given = {name: _read_member(path, name) if _is_archive(path) else _read_value(path)}
        elif word.endswith(".npz"):
            given = _read_archive(Path(word), names)
        else:
            raise _unknown(word, names)
        twice = sorted(found.keys() & given.keys())
        if twice:
            raise AotcError("AOTC-I027", f"input {twice[0]!r} is given twice", where=word)
        found |= given
    return found


def _unknown(word: str, names: Sequence[str]) -> AotcError:
    given, equals, _ = word.partition("=")
    if not equals:
        return AotcError("AOTC-I027", "the input has no usable form", expected=_FORM, found=word)
    close = nearest(given, tuple(names))
    return AotcError(
        "AOTC-I027",
        f"the model has no input {given!r}" + (f"; did you mean {close!r}?" if close else ""),
        expected=", ".join(names),
        found=given,
    )


def _read_value(path: Path) -> values.Data:
    if not path.is_file():
        raise AotcError("AOTC-I001", "no such input file", where=str(path))
    return values.load(path, refusal="AOTC-I027")


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def _read_member(path: Path, name: str) -> values.Data:
    """The one array of an archive, or of several the one that is called as the input."""
    given, held = _members(path, (name,), one=True)
    if not given:
        raise AotcError(
            "AOTC-I027",
            f"the archive holds several arrays, and none of them is called {name!r}"
            if held
            else "the archive holds no array",
            where=str(path),
            expected=f"one array, or one called {name}",
            found=", ".join(held),
            fix=f"Save it alone, as .npy or with numpy.savez(file, {name}=array).",
        )
    return next(iter(given.values()))


def _members(
    path: Path, names: Sequence[str], *, one: bool = False
) -> tuple[dict[str, values.Data], tuple[str, ...]]:
    """Arrays of an archive that are among `names`, or its only `one`; and what it holds."""
    if not path.is_file():
        raise AotcError("AOTC-I001", "no such input file", where=str(path))
    try:
        # Given a path, numpy leaves the file open where it is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            held = tuple(archive.files)
            wanted = held if one and len(held) == 1 else names
            return read_members(archive.zip, wanted), held
    except Exception as error:
        # As of one array: zip and numpy let out whatever a file makes of them.
        raise AotcError(
            "AOTC-I027", "the file is no .npz archive", where=str(path), found=str(error)[:300]
        ) from None


def _read_archive(path: Path, names: Sequence[str]) -> dict[str, values.Data]:
    given, held = _members(path, names)
    if not given:
        raise AotcError(
            "AOTC-I027",
            "the archive holds no input of the model",
            where=str(path),
            expected=", ".join(names),
            found=", ".join(held),
        )
    return given


def read_fixture(payload: Path, fixture: Fixture) -> dict[str, values.Data]:
    """A fixture's inputs, from a payload that was verified; raises AOTC-G014."""
    return {
        tensor.name: values.load(payload / tensor.path, refusal="AOTC-G014")
        for tensor in fixture.inputs
    }


def write_outputs(folder: Path, outputs: Mapping[str, values.Data]) -> dict[str, Path]:
    """Write each output to a file named after it in `folder`, which is made; each whole or not.

    See `aotc.files.names` for names that are not plain.  Each file is there whole or not at all.

    Raises AOTC-I017 (a link, a folder or a device has its name), I018 (full disk) and I026.
    """
    from aotc.files.failures import cannot_write
    from aotc.files.names import file_names
    from aotc.files.replacing import put_in_place
    from aotc.files.work_folders import work_folder

    written: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder / "outputs") as work:
            for name, file in file_names(outputs, ".npy").items():
                draft = values.save(outputs[name], work / file)
                place = folder / draft.name
                _require_plain(place)
                put_in_place(draft, place, force=True)
                written[name] = place
    except OSError as error:
        raise cannot_write(error, "cannot write the outputs", str(folder)) from None
    return written


def _require_plain(place: Path) -> None:
    """Who else may write the folder may have put a link there, to a file of this user's."""
    from aotc.files.replacing import reason_to_keep

    kept = reason_to_keep(place)
    if kept:
        raise AotcError(
            "AOTC-I017",
            f"the output's file exists and {kept}",
            where=str(place),
            fix="Name another folder with --output-dir, or remove it yourself.",
        )


def describe_output(name: str, value: values.Data, file: Path | None = None) -> RunOutput:
    """An output in words, with the least, mean and most of its finite numbers."""
    from aotc.contract.results.command_reports import RunOutput

    least = mean = most = None
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size:
        numbers = value.astype(np.float64)
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size:
            least, mean, most = (float(f(numbers)) for f in (np.min, np.mean, np.max))
    return RunOutput(
        name=name,
        value=values.describe(value),
        minimum=least,
        mean=mean,
        maximum=most,
        file=str(file) if file is not None else "",
    )


def resize(
    fixture: Mapping[str, values.Data],
    inputs: Sequence[Value],
    sizes: Mapping[str, int],
) -> dict[str, values.Data]:
    """A fixture's inputs with the dims that `sizes` names at those sizes, values repeated.

    Repeating keeps values that the model can take, such as token ids.  Raises AOTC-I027 where
    an input is no tensor of known dims, or has nothing to repeat.
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
    return result
