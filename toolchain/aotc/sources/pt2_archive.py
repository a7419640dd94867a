"""Archives of exported programs (`.pt2`), read without PyTorch, before it is let near one.

`torch.export.load` runs what is in a file: it unpickles sample inputs, constants and weights, and
evaluates texts.  So a file is read here first, as data: its structure (`stored_zip`), what the
program says of itself (`exported_text`), its weights' sizes, its sample inputs (`plain_pickle`).
What PyTorch loads then is another archive, made in memory of what was recognized: no pickle is in
it, and no byte of the file's structure.

The layout is that of PyTorch 2.8 and newer (`torch/export/pt2_archive/constants.py`):

    ROOT/archive_format                            pt2
    ROOT/archive_version                           0
    ROOT/byteorder                                 little
    ROOT/.data/version, ROOT/.data/serialization_id
    ROOT/models/model.json                         the program
    ROOT/data/weights/model_weights_config.json    and weight_0, weight_1 …: bytes of tensors
    ROOT/data/constants/model_constants_config.json  and tensor_0 …; others are pickles
    ROOT/data/sample_inputs/model.pt               what the program was exported with
    ROOT/extra/…                                   files of whoever saved it, which are left alone
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain
from aotc.base.records import record
from aotc.graph.foreign_files import refuse_foreign
from aotc.sources.exported_text import MAX_PROGRAM_BYTES, ProgramText, expression_in_words
from aotc.sources.plain_pickle import PlainValues, reach
from aotc.sources.stored_zip import Entry, Rewritten, entry_sha256, read_entries, read_entry

if TYPE_CHECKING:
    import io

_NAME: Final = "model"
_PROGRAM: Final = "models/model.json"
_SAMPLES: Final = "data/sample_inputs/model.pt"
_WEIGHTS: Final = "data/weights/"
_CONSTANTS: Final = "data/constants/"
_CONFIGS: Final = {
    _WEIGHTS: "data/weights/model_weights_config.json",
    _CONSTANTS: "data/constants/model_constants_config.json",
}
_PAYLOADS: Final = {_WEIGHTS: re.compile(r"weight_\d+"), _CONSTANTS: re.compile(r"tensor_\d+")}
_MARKS: Final = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_OF_THE_WRITER: Final = (".data/version", ".data/serialization_id", ".format_version",
                         ".storage_alignment", "version")  # fmt: skip
_MAX_SMALL: Final = 1 << 10
_MAX_TAIL: Final = 1 << 20
_MAX_SAMPLES: Final = 1 << 30
# A record of the list of an archive's files, with PyTorch's mark as the name.
_LISTED: Final = re.compile(
    rb"PK\x01\x02.{42}(?:[^/]{1,255}/)?(?:archive_format|serialized_exported_program\.json)",
    re.DOTALL,
)

# Bytes of an element, by PyTorch's number and name of its type.
_TYPES: Final[Mapping[int, tuple[str, int]]] = {
    **{1: ("uint8", 1), 2: ("int8", 1), 3: ("int16", 2), 4: ("int32", 4), 5: ("int64", 8)},
    **{6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("complex32", 4)},
    **{10: ("complex64", 8), 11: ("complex128", 16), 12: ("bool", 1), 13: ("bfloat16", 2)},
    **{28: ("uint16", 2), 29: ("float8_e4m3fn", 1), 30: ("float8_e5m2", 1)},
    **{31: ("float8_e4m3fnuz", 1), 32: ("float8_e5m2fnuz", 1), 33: ("float8_e8m0fnu", 1)},
    **{34: ("uint32", 4), 35: ("uint64", 8)},
}

_SAVE_AGAIN: Final = (
    "Load it with the PyTorch that saved it, and save it again with PyTorch 2.8 or newer: "
    "torch.export.save(torch.export.load('FILE'), 'new.pt2')."
)
_EXPORT: Final = (
    "Export the module that it belongs to: torch.export.save(torch.export.export(module, "
    "example_inputs, dynamic_shapes=...), 'model.pt2')."
)


@record(kw_only=False)
class ProgramInput:
    """An input of a program: sizes are numbers, or dims and what is computed of them, as text."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@record
class ExportedArchive:
    """What an archive says of its program.

    `ranges` are the least and the greatest value by dim or expression of dims, None where it is not
    bounded; `guards` are conditions on inputs that the export relied on, in PyTorch's words.
    `operators` are counted by name.  `weights` is by name the type, sizes and bytes of each.
    `replaced_types` are types of arguments and results which are read as tuples or dicts of their
    parts.
    `weights_sha256` is None where the bytes of weights were not read.
    """

    torch_version: str
    schema_version: str
    inputs: tuple[ProgramInput, ...]
    outputs: tuple[str, ...]
    ranges: Mapping[str, tuple[int | None, int | None]]
    guards: tuple[str, ...]
    operators: Mapping[str, int]
    devices: tuple[str, ...]
    weights: Mapping[str, tuple[str, tuple[int, ...], int]]
    mutated: tuple[str, ...]
    replaced_types: tuple[str, ...]
    weights_sha256: str | None = None


class Pt2File:
    """An open `.pt2` file that was read and recognized whole; use with `with`."""

    def __init__(self, path: Path) -> None:
        """Raises AOTC-I130 to I137: see `aotc explain`, and I001 if it cannot be read."""
        self._path = path
        try:
            self._file: io.BufferedReader = open_plain(path)
        except OSError as error:
            raise cannot_read(error, "cannot read the program", str(path)) from None
        try:
            self._read()
        except AotcError as error:
            self._file.close()
            if path.name not in error.where:
                error.where = ": ".join(part for part in (path.name, error.where) if part)
            error.fix = error.fix.replace("FILE", path.name)
            raise
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Pt2File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def _read(self) -> None:
        head = self._file.read(_MAX_SMALL)
        if not head.startswith(b"PK\3\4"):
            refuse_foreign(head, self._path)
            raise AotcError("AOTC-I130", "the file is no archive, which a .pt2 file is")
        self._root, self._entries = self._recognized(read_entries(self._file))
        program = ProgramText(self._bytes(_PROGRAM, MAX_PROGRAM_BYTES), "ExportedProgram", _PROGRAM)
        self._files: dict[str, bytes] = {
            **_MARKS,
            ".data/version": b"6\n",
            _PROGRAM: _json(program.content),
            # An empty one is none, for PyTorch.
            _SAMPLES: b"",
        }
        self._tensors: dict[str, dict[str, Any]] = {}
        for folder, config in _CONFIGS.items():
            text = ProgramText(self._bytes(config, MAX_PROGRAM_BYTES), "PayloadConfig", config)
            program.devices |= text.devices
            self._tensors |= dict(self._payloads(folder, text.content["config"]))
            self._files[config] = _json(text.content)
        self._require_weights(program.content)
        self._require_all_used()
        self.samples = self._sample_inputs()
        self.content = _said(program, self._tensors)

    def _recognized(self, entries: tuple[Entry, ...]) -> tuple[str, dict[str, Entry]]:
        """The folder that all is in, and the files by their names in it."""
        roots = {entry.name.partition("/")[0] for entry in entries if "/" in entry.name}
        names = {entry.name.partition("/")[2] for entry in entries}
        flat = {entry.name for entry in entries}
        _refuse_others(names, flat)
        if len(roots) != 1 or any("/" not in name for name in flat):
            raise AotcError(
                "AOTC-I130",
                "the archive is not as PyTorch writes one: its files are not in one folder",
                found=", ".join(sorted(roots)[:3]),
            )
        (root,) = roots
        found = {entry.name.removeprefix(f"{root}/"): entry for entry in entries}
        for name in (*_MARKS, _PROGRAM, *_CONFIGS.values(), _SAMPLES):
            if name not in found:
                raise AotcError(
                    "AOTC-I130", "the archive is not as PyTorch writes one: a file is missing",
                    where=name,
                )  # fmt: skip
        for name, expected in _MARKS.items():
            data = read_entry(self._file, found[name], _MAX_SMALL)
            if data != expected:
                raise AotcError(
                    "AOTC-I133" if name == "archive_version" else "AOTC-I130",
                    "the archive is of another kind than is read",
                    where=name,
                    expected=repr(expected),
                    found=repr(data[:40]),
                )
        return root, found

    def _bytes(self, name: str, limit: int) -> bytes:
        return read_entry(self._file, self._entries[name], limit)

    def _payloads(
        self, folder: str, config: Mapping[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each tensor of a folder, found to be in its bytes."""
        types: dict[str, int] = {}
        for name, meta in config.items():
            where = f"{_CONFIGS[folder]}: {name}"
            path, tensor = meta["path_name"], meta["tensor_meta"]
            if not _PAYLOADS[folder].fullmatch(path) or meta["use_pickle"] or tensor is None:
                raise AotcError(
                    "AOTC-I131", "a weight or constant is kept as a pickle", where=where, found=path
                )
            entry = self._entries.get(folder + path)
            if entry is None:
                raise AotcError("AOTC-I137", "a weight has no bytes", where=where, found=path)
            shape, strides, offset = _numbers(tensor, where)
            dtype, size = _type_of(tensor["dtype"], where)
            if types.setdefault(path, tensor["dtype"]) != tensor["dtype"]:
                _unfitting(where, "one type for one file", dtype)
            needed = reach(shape, strides, offset) * size
            if needed > entry.size or entry.size % size or (not entry.size and 0 not in shape):
                _unfitting(where, f"{needed} bytes of {dtype}", f"{entry.size} bytes")
            yield name, {"entry": entry, "dtype": dtype, "shape": shape, "folder": folder}

    def _require_all_used(self) -> None:
        """Every file is known, or one of those that are left alone."""
        used = {each["entry"].name for each in self._tensors.values()}
        for name, entry in self._entries.items():
            known = name in self._files or name in _OF_THE_WRITER or name.startswith("extra/")
            if not known and entry.name not in used:
                if name.rpartition("/")[2].startswith(("opaque_obj_", "custom_obj_")):
                    raise AotcError("AOTC-I131", "the archive holds a pickle", where=name)
                raise AotcError(
                    "AOTC-I130", "the archive holds a file that belongs to nothing", where=name
                )

    def _sample_inputs(self) -> PlainValues | None:
        """The inputs that the program was exported with; None: it has none."""
        data = self._bytes(_SAMPLES, _MAX_SAMPLES)
        if not data:
            return None
        if not data.startswith(b"PK\3\4"):
            raise AotcError("AOTC-I131", "sample inputs are a bare pickle", where=_SAMPLES)
        try:
            return PlainValues(data, _SAMPLES)
        except AotcError as error:
            error.where = _SAMPLES
            raise

    def _require_weights(self, program: Mapping[str, Any]) -> None:
        """Every weight that the program reads is there."""
        kept = {_WEIGHTS: set[str](), _CONSTANTS: set[str]()}
        for name, tensor in self._tensors.items():
            kept[tensor["folder"]].add(name)
        for spec in program["graph_module"]["signature"]["input_specs"]:
            ((kind, item),) = spec.items()
            wanted, folder = "", _WEIGHTS
            if kind == "parameter":
                wanted = item["parameter_name"]
            elif kind == "buffer":
                wanted, folder = item["buffer_name"], _WEIGHTS if item["persistent"] else _CONSTANTS
            elif kind == "tensor_constant":
                wanted, folder = item["tensor_constant_name"], _CONSTANTS
            if wanted and wanted not in kept[folder]:
                raise AotcError(
                    "AOTC-I137", "a weight that the program reads is missing", where=wanted
                )

    def rewritten(self) -> Rewritten:
        """The archive that PyTorch may load: made anew, of what was recognized, in memory.

        The bytes of weights are read from the file as they are asked for.
        """
        # PyTorch takes the first folder for the root.
        files = {f"{_NAME}/{name}": data for name, data in self._files.items()}
        kept = {}
        for tensor in self._tensors.values():
            entry = tensor["entry"]
            kept[f"{_NAME}/{entry.name.removeprefix(self._root + '/')}"] = entry
        return Rewritten(self._file, files, kept)

    def weights_sha256(self) -> str:
        """One digest (hex) of all weights and constants, by name, type, sizes and bytes.

        Reads all of them; raises AOTC-I130 for bytes that are damaged.
        """
        import hashlib

        digests: dict[str, str] = {}
        whole = hashlib.sha256()
        for name, tensor in sorted(self._tensors.items()):
            entry = tensor["entry"]
            if entry.name not in digests:
                digests[entry.name] = entry_sha256(self._file, entry)
            sizes = ",".join(map(str, tensor["shape"]))
            whole.update(f"{name}\0{tensor['dtype']}\0{sizes}\0{digests[entry.name]}\n".encode())
        return whole.hexdigest()


def looks_like_pt2(path: Path) -> bool:
    """Whether the list of a ZIP archive's files, at its end, names PyTorch's mark of a `.pt2`."""
    with contextlib.suppress(OSError), open_plain(path) as file:
        if file.read(4) == b"PK\3\4":
            file.seek(max(0, file.seek(0, 2) - _MAX_TAIL))
            return _LISTED.search(file.read()) is not None
    return False


def _refuse_others(names: set[str], flat: set[str]) -> None:
    """Raise AOTC-I132 for archives of PyTorch that hold no program of today's form."""
    if "serialized_exported_program.json" in flat | names:
        _other("an exported program of PyTorch 2.7 or older, which holds pickles", _SAVE_AGAIN)
    if f"{_WEIGHTS}{_NAME}.pt" in names or f"{_CONSTANTS}{_NAME}.pt" in names:
        _other(
            "an exported program whose weights are pickles, as older versions wrote", _SAVE_AGAIN
        )
    if any(name.startswith("data/aotinductor/") for name in names):
        _other(
            "compiled by AOTInductor for one machine, and holds libraries",
            "Build from the exported program that it was compiled of.",
        )
    if "constants.pkl" in names and "data.pkl" in names:
        _other("a TorchScript module (torch.jit.save), whose code is of PyTorch alone", _EXPORT)
    if "data.pkl" in names:
        _other("a pickle of weights or modules (torch.save), which runs code when loaded", _EXPORT)
    if any(name.startswith("data/executorch/") for name in names):
        _other(
            "a program of ExecuTorch",
            "Build from the exported program that it was lowered from.",
        )
    models = sorted(name for name in names if name.startswith("models/"))
    if len(models) > 1 or (models and models != [_PROGRAM]):
        shown = ", ".join(models[:5])
        _other(
            f"of several programs, or one with a name of its own ({shown})",
            "Save one program a file: torch.export.save(program, 'model.pt2').",
        )
    if "archive_format" in names and not models:
        _other("an archive of PyTorch without a program", _EXPORT)


def _other(what: str, fix: str) -> NoReturn:
    raise AotcError("AOTC-I132", f"the file is {what}", fix=fix)


def _said(program: ProgramText, tensors: Mapping[str, Mapping[str, Any]]) -> ExportedArchive:
    content = program.content
    module = content["graph_module"]
    version = content["schema_version"]
    values = module["graph"]["tensor_values"]
    mutated = [
        next(iter(spec.values())).get("buffer_name")
        or next(iter(spec.values())).get("user_input_name", "")
        for spec in module["signature"]["output_specs"]
        if "buffer_mutation" in spec or "user_input_mutation" in spec
    ]
    outputs = (
        spec["user_output"]["arg"]
        for spec in module["signature"]["output_specs"]
        if "user_output" in spec
    )
    return ExportedArchive(
        torch_version=str(content.get("torch_version") or ""),
        schema_version=f"{version['major']}.{version['minor']}",
        inputs=tuple(_inputs(module["signature"]["input_specs"], values)),
        outputs=tuple(_name_of(each) for each in outputs),
        ranges={
            dim: (bounds.get("min_val"), bounds.get("max_val"))
            for dim, bounds in content["range_constraints"].items()
        },
        guards=tuple(program.guards),
        operators=dict(sorted(program.operators.items())),
        devices=tuple(sorted(program.devices)),
        weights={
            name: (tensor["dtype"], tensor["shape"], tensor["entry"].size)
            for name, tensor in tensors.items()
        },
        mutated=tuple(mutated),
        replaced_types=tuple(sorted(program.replaced_types)),
    )


def _inputs(specs: list[Any], values: Mapping[str, Any]) -> Iterator[ProgramInput]:
    for spec in specs:
        argument = spec.get("user_input", {}).get("arg", {})
        if "as_tensor" in argument:
            name = argument["as_tensor"]["name"]
            meta = values.get(name)
            if meta is None:
                raise AotcError("AOTC-I134", "an input of the program is not described", where=name)
            dtype, _ = _type_of(meta["dtype"], name)
            yield ProgramInput(name, dtype, tuple(_size(each) for each in meta["sizes"]))
        elif argument and "as_none" not in argument:
            yield ProgramInput(_name_of(argument), "", ())
        elif "constant_input" in spec:
            yield ProgramInput(spec["constant_input"]["name"], "", ())


def _name_of(argument: Mapping[str, Any]) -> str:
    ((kind, value),) = argument.items()
    if isinstance(value, dict):
        return str(value.get("name") or value.get("as_name") or "")
    return "" if kind == "as_none" else str(value)


def _size(size: Mapping[str, Any]) -> int | str:
    if "as_int" in size:
        return int(size["as_int"])
    return expression_in_words(size["as_expr"]["expr_str"])


def _numbers(tensor: Mapping[str, Any], where: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and offset of a weight, which are numbers that a machine can have."""
    every = [*tensor["sizes"], *tensor["strides"], tensor["storage_offset"]]
    numbers = [each.get("as_int") for each in every]
    ranks = len(tensor["sizes"])
    for number in numbers:
        if number is None or not 0 <= number < 1 << 62:
            _unfitting(where, "sizes of a weight", str(number))
    if len(tensor["strides"]) != ranks or ranks > 64:
        _unfitting(where, f"{ranks} strides", str(len(tensor["strides"])))
    return tuple(numbers[:ranks]), tuple(numbers[ranks:-1]), numbers[-1]


def _type_of(number: int, where: str) -> tuple[str, int]:
    if number not in _TYPES:
        _unfitting(where, "a type of PyTorch", str(number))
    return _TYPES[number]


def _unfitting(where: str, expected: str, found: str) -> NoReturn:
    raise AotcError(
        "AOTC-I137", "a tensor does not fit its bytes", where=where, expected=expected, found=found
    )


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
