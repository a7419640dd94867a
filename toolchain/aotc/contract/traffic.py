"""Recorded requests: their shapes, one a line, as JSON Lines or CSV, read into counted sizes.

A line of `.jsonl` is an object: shapes by input (`{"ids": [1, 40]}`) or sizes by dim
(`{"batch": 1, "seq": 40}`), and a `count` where one line stands for several requests.  A `.csv`
has a header of dim names or positions `INPUT.AXIS`, and may have a column `count`.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from aotc.contract.codec.parsing import Json, ParseError
from aotc.contract.codec.spelling import nearest
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.manifest.interface import Value
from aotc.errors import AotcError
from aotc.files.failures import cannot_read

# Sizes above this are of no tensor that fits into memory.
MAX_SIZE = 2**31 - 1
_COUNT = "count"
_MOST_LINES = 20
_LINE_BYTES = 1 << 20


class Recorded(NamedTuple):
    """Requests by their sizes: `counts` has tuples in the order of `dims`."""

    path: str
    sha256: str
    dims: tuple[str, ...]
    counts: Mapping[tuple[int, ...], int]

    @property
    def requests(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    def sizes(self) -> Iterator[tuple[dict[str, int], int]]:
        """Sizes by dim, each with its requests."""
        for sizes, count in self.counts.items():
            yield dict(zip(self.dims, sizes, strict=True)), count


class _Line(Exception):
    """One line cannot be used; becomes an `AotcError` that names file and line."""

    def __init__(self, code: str, what: str, expected: str = "", found: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.expected, self.found = code, what, expected, found
        self.of_header = False
        """Whether a name is wrong, which in a table stands in the header."""


def read_traffic(path: str | Path, inputs: Sequence[Value] | None = None) -> Recorded:
    """The requests of a file; `inputs` give the dims their names where it holds shapes.

    Raises AOTC-I001 (no such file), S020 to S023; each bad line is named, up to twenty.
    """
    place = Path(path)
    reader = _Reader(inputs)
    digest = hashlib.sha256()
    errors: list[AotcError] = []
    counted: Counter[tuple[tuple[str, int], ...]] = Counter()
    try:
        with place.open("rb") as file:
            rows = _csv(file, digest) if place.suffix == ".csv" else _jsonl(file, digest)
            for number, row in rows:
                try:
                    sizes, count = reader.sizes(row)
                except _Line as bad:
                    if bad.of_header and place.suffix == ".csv":
                        # Each row would say the same.
                        errors = [_refusal(bad, place, 1)]
                        break
                    errors.append(_refusal(bad, place, number))
                    if len(errors) == _MOST_LINES:
                        break
                    continue
                if count:
                    counted[tuple(sorted(sizes.items()))] += count
    except OSError as error:
        raise cannot_read(error, "cannot read the traffic file", str(place)) from None
    if errors:
        first, *others = errors
        first.also = tuple(others)
        raise first
    if not counted:
        raise AotcError("AOTC-S023", "the file holds no request", where=str(place))
    return _recorded(counted, place, digest.hexdigest())


def _recorded(
    counted: Mapping[tuple[tuple[str, int], ...], int], place: Path, sha256: str
) -> Recorded:
    first = next(iter(counted))
    dims = tuple(name for name, _ in first)
    for sizes in counted:
        names = tuple(name for name, _ in sizes)
        if names != dims:
            raise AotcError(
                "AOTC-S020",
                "requests name different dims",
                where=str(place),
                expected=", ".join(dims),
                found=", ".join(names),
            )
    return Recorded(
        path=str(place),
        sha256=sha256,
        dims=dims,
        counts={tuple(size for _, size in sizes): n for sizes, n in sorted(counted.items())},
    )


def _refusal(bad: _Line, place: Path, number: int) -> AotcError:
    return AotcError(
        bad.code, bad.what, where=f"{place}, line {number}", expected=bad.expected, found=bad.found
    )


def _lines(file: io.BufferedIOBase, digest: hashlib._Hash) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(_LINE_BYTES):
        digest.update(line)
        number += 1
        if line.strip():
            yield number, line


def _jsonl(file: io.BufferedIOBase, digest: hashlib._Hash) -> Iterator[tuple[int, Json]]:
    for number, line in _lines(file, digest):
        try:
            yield number, strict_json(line.strip())
        except ParseError as error:
            yield number, _Line("AOTC-S020", "the line is no JSON", found=error.problems[0].what)


def _csv(file: io.BufferedIOBase, digest: hashlib._Hash) -> Iterator[tuple[int, Json]]:
    import csv

    header: list[str] | None = None
    for number, line in _lines(file, digest):
        try:
            # Spreadsheets begin their files with a byte order mark.
            cells = next(csv.reader([line.decode("utf-8-sig")], strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            yield number, _Line("AOTC-S020", "the line is no CSV", found=str(error))
            continue
        cells = [cell.strip() for cell in cells]
        if header is None:
            header = cells
            if not all(cells) or len(set(cells)) != len(cells) or all(map(_whole, cells)):
                wanted = "names of dims, each once"
                yield number, _Line("AOTC-S020", "the header names no dims", wanted, line.decode())
        elif len(cells) != len(header):
            yield (
                number,
                _Line(
                    "AOTC-S020",
                    "the line has another number of cells than the header",
                    str(len(header)),
                    str(len(cells)),
                ),
            )
        else:
            yield (
                number,
                {
                    name: int(cell) if _whole(cell) else cell
                    for name, cell in zip(header, cells, strict=True)
                },
            )


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18


class _Reader:
    """Turns one row into sizes by dim."""

    def __init__(self, inputs: Sequence[Value] | None) -> None:
        self._inputs = None if inputs is None else {value.name: value for value in inputs}
        self._dims: dict[str, str] = {}
        for value in inputs or ():
            for axis, dim in enumerate(value.shape or ()):
                self._dims[f"{value.name}.{axis}"] = str(dim)
                if isinstance(dim, str):
                    self._dims[dim] = dim

    def sizes(self, row: Json) -> tuple[dict[str, int], int]:
        """Sizes by dim, and how many requests the row stands for; raises `_Line`."""
        if isinstance(row, _Line):
            raise row
        if not isinstance(row, dict) or not row:
            raise _Line("AOTC-S020", "the line holds no shapes", "an object", _short(row))
        count = 1
        fields = dict(row)
        if _COUNT in fields and _COUNT not in (self._inputs or {}) and _COUNT not in self._dims:
            count = _size(_COUNT, fields.pop(_COUNT))
        sizes: dict[str, int] = {}
        for name, value in fields.items():
            for dim, size in self._of(name, value):
                if sizes.setdefault(dim, size) != size:
                    found = f"{sizes[dim]} and {size}"
                    raise _Line("AOTC-S020", f"dim {dim!r} has two sizes", "one", found)
        return sizes, count

    def _of(self, name: str, value: Json) -> Iterator[tuple[str, int]]:
        if isinstance(value, list):
            yield from self._of_shape(name, value)
            return
        if self._inputs is not None and name not in self._dims:
            close = nearest(name, tuple(self._dims))
            hint = f"; did you mean {close!r}?" if close else ""
            known = ", ".join(sorted({dim for dim in self._dims.values() if not dim.isdecimal()}))
            unknown = _Line("AOTC-S020", f"the model has no dim {name!r}{hint}", known, name)
            unknown.of_header = True
            raise unknown
        size = _size(name, value)
        dim = self._dims.get(name, name)
        if dim.isdecimal():
            _require_fixed(name, int(dim), size)
        else:
            yield dim, size

    def _of_shape(self, name: str, shape: list[Json]) -> Iterator[tuple[str, int]]:
        if self._inputs is None:
            for axis, size in enumerate(shape):
                yield f"{name}.{axis}", _size(f"{name}.{axis}", size)
            return
        value = self._inputs.get(name)
        if value is None:
            close = nearest(name, tuple(self._inputs))
            hint = f"; did you mean {close!r}?" if close else ""
            known = ", ".join(self._inputs)
            raise _Line("AOTC-S020", f"the model has no input {name!r}{hint}", known, name)
        declared = value.shape if value.shape is not None else (f"{name}.0",)
        if len(declared) != len(shape):
            raise _Line(
                "AOTC-S021",
                f"the shape of {name!r} has another rank",
                f"{len(declared)}: [{', '.join(map(str, declared))}]",
                f"{len(shape)}: {_short(shape)}",
            )
        for dim, size in zip(declared, shape, strict=True):
            checked = _size(name, size)
            if isinstance(dim, int):
                _require_fixed(name, dim, checked)
            else:
                yield dim, checked


def _require_fixed(name: str, wanted: int, size: int) -> None:
    if size != wanted:
        raise _Line(
            "AOTC-S021", f"the shape of {name!r} has another fixed size", str(wanted), str(size)
        )


def _size(name: str, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Line(
            "AOTC-S022", f"the size of {name!r} is no whole number", "an integer", _short(value)
        )
    if not 0 <= value <= MAX_SIZE:
        raise _Line(
            "AOTC-S022", f"the size of {name!r} is impossible", f"0..{MAX_SIZE}", str(value)
        )
    return value


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
