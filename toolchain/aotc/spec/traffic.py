"""What running models record: the shapes of their requests, and counters of their calls.

A traffic file is JSON Lines or CSV with one request per line.  A line of `.jsonl` is an object with
shapes by input (`{"ids": [1, 40]}`) or sizes by dim (`{"batch": 1, "seq": 40}`), and with a `count`
if it stands for several requests.  A `.csv` has a header with names of dims or positions
`INPUT.AXIS`, and may have a column `count`.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import open_plain
from aotc.base.records import field, record
from aotc.base.text import did_you_mean
from aotc.spec.codec import Json, ParseError
from aotc.spec.json import strict_json
from aotc.spec.payload import Value

# No tensor with a larger size fits into memory.
MAX_SIZE = 2**31 - 1
_COUNT = "count"
_MAX_REPORTED = 20
_LINE_BYTES = 1 << 20


class RecordedTraffic(NamedTuple):
    """Recorded requests, counted by their sizes.

    The keys of `counts` are sizes in the order of `dims`; its values are numbers of requests.
    `sha256` is the hexadecimal digest of the file at `path`.
    """

    path: str
    sha256: str
    dims: tuple[str, ...]
    counts: Mapping[tuple[int, ...], int]

    @property
    def requests(self) -> int:
        """The number of requests."""
        return sum(self.counts.values())

    def sizes(self) -> Iterator[tuple[dict[str, int], int]]:
        """Pairs of sizes by dim and the number of requests with these sizes."""
        for sizes, count in self.counts.items():
            yield dict(zip(self.dims, sizes, strict=True)), count


class _LineError(Exception):
    """A line cannot be used; it becomes an `AotcError` that names file and line."""

    def __init__(self, code: str, what: str, expected: str = "", found: str = "") -> None:
        super().__init__(what)
        self.code, self.what, self.expected, self.found = code, what, expected, found
        self.is_header = False
        """Whether the header of a CSV file is wrong, and so every line."""


def read_traffic(path: str | Path, inputs: Sequence[Value] | None = None) -> RecordedTraffic:
    """Read a traffic file.  The model's `inputs` name the dims if the file holds shapes.

    Raises AOTC-I001 (there is no such file), S020 (a line is unreadable), S021 (a shape does not
    fit the model), S022 (a size is impossible) or S023 (there are no requests).  Up to twenty bad
    lines are reported.
    """
    place = Path(path)
    is_csv = place.suffix == ".csv"
    reader = _RowReader(inputs)
    digest = hashlib.sha256()
    errors: list[AotcError] = []
    counted: Counter[tuple[tuple[str, int], ...]] = Counter()
    try:
        with open_plain(place) as file:
            read_row = _CsvReader() if is_csv else _json_row
            for number, line in _lines(file, digest):
                try:
                    row = read_row(line)
                    if is_csv and row is None:
                        continue
                    sizes, count = reader.sizes(row)
                except _LineError as bad:
                    if bad.is_header and is_csv:
                        # Each row would say the same.
                        errors = [_refusal(bad, place, 1)]
                        break
                    errors.append(_refusal(bad, place, number))
                    if len(errors) == _MAX_REPORTED:
                        break
                    continue
                if count:
                    counted[tuple(sorted(sizes.items()))] += count
    except OSError as error:
        raise cannot_read(error, "cannot read the traffic file", str(place)) from None
    if errors:
        raise with_others(errors)
    if not counted:
        raise AotcError("AOTC-S023", "the file holds no request", where=str(place))
    return _recorded(counted, place, digest.hexdigest())


def _recorded(
    counted: Mapping[tuple[tuple[str, int], ...], int], place: Path, sha256: str
) -> RecordedTraffic:
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
    return RecordedTraffic(
        path=str(place),
        sha256=sha256,
        dims=dims,
        counts={tuple(size for _, size in sizes): n for sizes, n in sorted(counted.items())},
    )


def _refusal(bad: _LineError, place: Path, number: int) -> AotcError:
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


def _json_row(line: bytes) -> Json:
    try:
        return strict_json(line.strip())
    except ParseError as error:
        found = error.problems[0].what
        raise _LineError("AOTC-S020", "the line is not JSON", found=found) from None


class _CsvReader:
    """Reads lines of a CSV file, of which the first is the header, for which it returns None."""

    def __init__(self) -> None:
        self._header: list[str] | None = None

    def __call__(self, line: bytes) -> Json:
        import csv

        try:
            # Spreadsheets begin their files with a byte order mark.
            cells = next(csv.reader([line.decode("utf-8-sig")], strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise _LineError("AOTC-S020", "the line is not CSV", found=str(error)) from None
        cells = [cell.strip() for cell in cells]
        header = self._header
        if header is None:
            self._header = cells
            if not all(cells) or len(set(cells)) != len(cells) or all(map(_is_integer, cells)):
                what, wanted = "the header does not name dims", "names of dims, each once"
                raise _LineError("AOTC-S020", what, wanted, line.decode())
            return None
        if len(cells) != len(header):
            what = "the line does not have as many cells as the header"
            raise _LineError("AOTC-S020", what, str(len(header)), str(len(cells)))
        pairs = zip(header, cells, strict=True)
        return {name: int(cell) if _is_integer(cell) else cell for name, cell in pairs}


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 18


class _RowReader:
    """Reads rows as sizes by dim."""

    def __init__(self, inputs: Sequence[Value] | None) -> None:
        self._inputs = None if inputs is None else {value.name: value for value in inputs}
        self._dims: dict[str, str] = {}
        for value in inputs or ():
            for axis, dim in enumerate(value.shape or ()):
                self._dims[f"{value.name}.{axis}"] = str(dim)
                if isinstance(dim, str):
                    self._dims[dim] = dim

    def sizes(self, row: Json) -> tuple[dict[str, int], int]:
        """Sizes by dim, and the number of requests of a row; raises `_LineError`."""
        if not isinstance(row, dict) or not row:
            raise _LineError(
                "AOTC-S020", "the line holds no shapes", "an object", _abbreviated(row)
            )
        count = 1
        fields = dict(row)
        if _COUNT in fields and _COUNT not in (self._inputs or {}) and _COUNT not in self._dims:
            count = _checked_size(_COUNT, fields.pop(_COUNT))
        sizes: dict[str, int] = {}
        for name, value in fields.items():
            for dim, size in self._sizes_of_field(name, value):
                if sizes.setdefault(dim, size) != size:
                    found = f"{sizes[dim]} and {size}"
                    raise _LineError("AOTC-S020", f"dim {dim!r} has two sizes", "one", found)
        return sizes, count

    def _sizes_of_field(self, name: str, value: Json) -> Iterator[tuple[str, int]]:
        if isinstance(value, list):
            yield from self._sizes_of_shape(name, value)
            return
        if self._inputs is not None and name not in self._dims:
            known = ", ".join(sorted({dim for dim in self._dims.values() if not dim.isdecimal()}))
            what = f"the model has no dim {name!r}{did_you_mean(name, self._dims)}"
            unknown = _LineError("AOTC-S020", what, known, name)
            unknown.is_header = True
            raise unknown
        size = _checked_size(name, value)
        dim = self._dims.get(name, name)
        if dim.isdecimal():
            _require_fixed(name, int(dim), size)
        else:
            yield dim, size

    def _sizes_of_shape(self, name: str, shape: list[Json]) -> Iterator[tuple[str, int]]:
        if self._inputs is None:
            for axis, size in enumerate(shape):
                yield f"{name}.{axis}", _checked_size(f"{name}.{axis}", size)
            return
        value = self._inputs.get(name)
        if value is None:
            what = f"the model has no input {name!r}{did_you_mean(name, self._inputs)}"
            raise _LineError("AOTC-S020", what, ", ".join(self._inputs), name)
        declared = value.shape if value.shape is not None else (f"{name}.0",)
        if len(declared) != len(shape):
            raise _LineError(
                "AOTC-S021",
                f"the shape of {name!r} has another rank",
                f"{len(declared)}: [{', '.join(map(str, declared))}]",
                f"{len(shape)}: {_abbreviated(shape)}",
            )
        for dim, size in zip(declared, shape, strict=True):
            checked = _checked_size(name, size)
            if isinstance(dim, int):
                _require_fixed(name, dim, checked)
            else:
                yield dim, checked


def _require_fixed(name: str, wanted: int, size: int) -> None:
    if size != wanted:
        raise _LineError(
            "AOTC-S021", f"the shape of {name!r} has another fixed size", str(wanted), str(size)
        )


def _checked_size(name: str, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        what = f"the size of {name!r} is not an integer"
        raise _LineError("AOTC-S022", what, "an integer", _abbreviated(value))
    if not 0 <= value <= MAX_SIZE:
        raise _LineError(
            "AOTC-S022", f"the size of {name!r} is impossible", f"0..{MAX_SIZE}", str(value)
        )
    return value


def _abbreviated(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# Counters of the calls of a loaded model, as `aotc run --metrics FILE.json` writes them.


@record
class GuardCount:
    """Calls that were refused or failed for one reason at one place."""

    code: str
    where: Annotated[str, "dim or input; empty if the refusal names none"]
    calls: int


@record
class TransferTelemetry:
    """Inputs and outputs that calls copied to and from the device; 0 on the CPU.

    ONNX Runtime's own copies inside a session are not among them.  Copies are timed in a few of the
    calls that aotc copies for, those with captured graphs: then each is awaited.
    """

    to_device_bytes: int = 0
    from_device_bytes: int = 0
    timed_calls: int = 0
    timed_bytes: int = 0
    timed_seconds: float = 0.0


@record
class VariantTelemetry:
    """Calls that ran on one variant."""

    calls: int
    routes: Annotated[Mapping[str, int], "calls, by the reason why this variant ran them"]
    input_elements: Annotated[int, "elements of inputs, as callers passed them"]
    padding_elements: Annotated[int, "elements that padding added"]
    padding_share: Annotated[float, "padding's share of the elements that ran"]
    first_call_seconds: Annotated[float | None, "None before the first call"]
    first_call_delta_seconds: Annotated[float | None, "first call minus the median of the latest"]
    total_seconds: Annotated[float, "total of all calls"]
    latency_seconds: Annotated[
        Mapping[str, float], "p50, p90, p99 and max of the latest calls; empty before the first"
    ]
    fallbacks: Annotated[
        Mapping[str, int],
        "calls that did not run as the artifact prefers, by what was otherwise: another variant, "
        "the placement of nodes, no captured graph",
    ] = field(default_factory=dict)
    captures: Annotated[int, "CUDA graphs that were captured"] = 0
    memory_failures: Annotated[
        Mapping[str, int], "calls that failed for want of memory, by reason code"
    ] = field(default_factory=dict)
    transfers: TransferTelemetry = TransferTelemetry()
    nodes: Annotated[Mapping[str, int], "nodes by provider, as observed at load"] = field(
        default_factory=dict
    )
    misplaced_nodes: Annotated[int, "of these, those not where the artifact promises"] = 0


@record
class TelemetryReport:
    """What `Model.telemetry` returns: every counter since the model was loaded."""

    schema: Literal["aotc.telemetry/1"] = "aotc.telemetry/1"
    calls: Annotated[int, "calls that returned outputs"]
    out_of_domain: Annotated[int, "calls with a dim outside the proven range"]
    out_of_domain_by_dim: Mapping[str, int]
    refusals: Annotated[Mapping[str, int], "calls that were refused or failed, by reason code"]
    refusals_by_place: Annotated[
        tuple[GuardCount, ...], "calls that were refused or failed, by code and place"
    ]
    routes: Annotated[Mapping[str, int], "calls, by the reason why a variant ran them"]
    input_elements: int
    padding_elements: int
    padding_share: float
    first_call_seconds: float | None
    latency_seconds: Mapping[str, float]
    variants: Annotated[Mapping[str, VariantTelemetry], "loaded variants by name"]
    fallbacks: Annotated[
        Mapping[str, int], "calls that did not run as the artifact prefers, by what was otherwise"
    ] = field(default_factory=dict)
    captures: Annotated[int, "CUDA graphs that were captured"] = 0
    memory_failures: Annotated[
        Mapping[str, int], "calls that failed for want of memory, by reason code"
    ] = field(default_factory=dict)
