"""Calibration: samples, the activations observed on them, and the ranges that follow."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import onnx

from aotc.base.errors import AotcError
from aotc.base.files.names import data_sources
from aotc.graph import values
from aotc.graph.allowed_arrays import require_allowed
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.types import AnalyzedModel, SourceModel
from aotc.precision.quantized_nodes import Observed
from aotc.precision.smoothing import Channels
from aotc.session.inference import groups_within
from aotc.session.sessions import create_session, run
from aotc.sizes.inputs.fixtures import read_test_data, require_dtype
from aotc.sizes.inputs.samples import read_samples, refuse_not_finite, shape_text
from aotc.spec.codec import Json, encode
from aotc.spec.json import canonical_sha256
from aotc.spec.profile import Profile
from aotc.spec.providers import CPU
from aotc.spec.shapes import Domain
from aotc.spec.variant import SessionSpec

_INDEX: Final = "samples.json"
Range = tuple[float, float]
Array = np.ndarray[Any, Any]
# Bins by method.  The entropy method tries a range for each two bins, so its time grows with the
# square of their number: a fifth of a second for each activation.
BINS: Final = {"entropy": 1024, "percentile": 2048}
# Bins of the entropy method's quantized distribution.
_QUANTIZED_BINS: Final = 128
# Bits of a float32 that tell no bin of `Magnitudes`, and how many values it counts at once.
_DROPPED_BITS: Final = 19
_COUNTED: Final = 1 << 20
# Shares of values that `auto` may cut off, and the part of the squared error that may be left then.
_CUT_SHARES: Final = (1e-5, 1e-4, 1e-3, 5e-3)
_LEFT: Final = 0.5
# Activations of one run that are held at once: bytes, or their number before they are known.
_HELD_BYTES: Final = 1 << 29
_FIRST_COUNT: Final = 64
# Kinds of numpy's dtypes: truth values, integers and text.
_NUMBERS: Final = "fiu"


def require_calibration(context: BuildContext) -> None:
    """Raise AOTC-I072 if ranges are to be observed and there is no data, and I001 as `data` says.

    It looks at no file's content, so that a long build need not begin.
    """
    path = context.calibration
    if path is not None and not path.exists():
        raise AotcError("AOTC-I001", "no such calibration data", where=str(path))
    if path is None and context.fixtures is None:
        static = _static_variants(context.profile)
        if static:
            raise _none(f"variant {static[0]}: quantization.form: static", "no data")


def calibration_samples(analyzed: AnalyzedModel, state: BuildState) -> tuple[Json, ...]:
    """The samples, each `{"inputs": {name: path of a value file}}`; none if no data was given.

    They are those of the calibration data, else the user's fixtures.  Those of calibration data
    have the `sizes` of their named dims as well.
    They are written once in a build, as what is made of them is known by their paths.  They have
    the model's own dtypes, and sizes at which it runs without padding.  There are at most
    `calibration.max_samples`, the first ones.  Raises AOTC-I001 and I072 (there is no data), I073
    (it cannot be read), I074 (inputs), I075 (shapes), I076 (NaN or infinity), I077 (pickles), I112
    (values that the profile excludes) and I115 (all is 0).
    """
    context = state.context
    require_calibration(context)
    if context.calibration is None:
        samples = _of_fixtures(analyzed)[: context.profile.calibration.max_samples]
        if not samples and context.fixtures is not None and _static_variants(context.profile):
            raise _none(str(context.fixtures), "NaN or infinity in every fixture")
        return samples
    # Without size 0, the model is analyzed again, and large arrays may be cut otherwise.
    domain = canonical_sha256(encode(analyzed.domain))[:12]
    folder = state.shared / f"calibration-{domain}"
    index = folder / _INDEX
    if not index.exists():
        found = _checked(context.calibration, analyzed)
        count = context.profile.calibration.max_samples
        written = _written(context.calibration, found, folder, count)
        index.write_text(json.dumps(written), encoding="utf-8")
    return tuple(json.loads(index.read_text(encoding="utf-8")))


def _static_variants(profile: Profile) -> list[str]:
    """Variants that are to be quantized statically, by words of the profile."""
    return [
        spec.name
        for spec in profile.variants
        if (spec.quantization or profile.quantization).form == "static"
        and (spec.precision or profile.precision) in ("int8", "auto")
    ]


def _none(where: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I072",
        "there are no calibration samples",
        where=where,
        expected="a .npz file, a folder of .npz files, or folders of ONNX test data",
        found=found,
    )


def _of_fixtures(analyzed: AnalyzedModel) -> tuple[Json, ...]:
    """The user's fixtures that are finite: that one is not is no mistake of a fixture."""
    found = []
    for reference in analyzed.references:
        paths = reference.inputs
        if reference.origin == "user" and all(
            values.is_finite(values.load(path)) for path in paths.values()
        ):
            found.append({"inputs": {name: str(path) for name, path in paths.items()}})
    return tuple(found)


def _written(
    path: Path,
    samples: Iterator[tuple[str, dict[str, Any], dict[str, int]]],
    folder: Path,
    count: int,
) -> list[Json]:
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Json] = []
    zeros: dict[str, bool] = {}
    for where, sample, sizes in itertools.islice(samples, count):
        refuse_not_finite(sample, where)
        for name, array in sample.items():
            if isinstance(array, np.ndarray) and array.size and array.dtype.kind in _NUMBERS:
                zeros[name] = zeros.get(name, True) and not (array != 0).any()
        place = folder / str(len(written))
        place.mkdir()
        files = {
            name: str(values.save(array, place / f"input_{number}").resolve())
            for number, (name, array) in enumerate(sample.items())
        }
        written.append({"inputs": files, "sizes": sizes})
    if not written:
        raise _none(str(path), "no sample")
    # Some may well be, such as the state that a recurrence begins with.
    if zeros and all(zeros.values()):
        raise AotcError(
            "AOTC-I115",
            "every sample of the calibration data is 0 throughout",
            where=str(path),
            expected="values of real inputs",
            found=f"{', '.join(zeros)}: 0 in {len(written)} samples",
        )
    return written


def _checked(
    path: Path, analyzed: AnalyzedModel
) -> Iterator[tuple[str, dict[str, Any], dict[str, int]]]:
    """The samples, where each stands, and its sizes, at which the model runs."""
    source, domain = analyzed.source, analyzed.domain
    for where, sample in _read_all(path, source, domain.corner("least")):
        sizes = _sizes(sample, source, domain, where)
        require_allowed(sample, source.inputs, sizes, code="AOTC-I112", where=where)
        yield where, sample, sizes


def _read_all(
    path: Path, source: SourceModel, smallest: Mapping[str, int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        files = data_sources(path)
    except OSError as error:
        raise AotcError(
            "AOTC-I073", "cannot read the folder", where=str(path), found=str(error.strerror)
        ) from None
    for file in files:
        for number, sample in enumerate(_read(file, source, smallest)):
            yield f"{file}, sample {number}", sample


def _read(file: Path, source: SourceModel, smallest: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    if not file.is_dir():
        yield from read_samples(file, source.inputs, smallest)
        return
    sample = read_test_data(file, source.inputs, refusal="AOTC-I073")
    for value in source.inputs:
        require_dtype(sample[value.name], value, file, refusal="AOTC-I074")
    yield sample


def _sizes(
    sample: Mapping[str, Any], source: SourceModel, domain: Domain, where: str
) -> dict[str, int]:
    """A sample's sizes of the named dims; raises AOTC-I075 if the model does not run at them."""
    sizes: dict[str, int] = {}
    for value in source.inputs:
        shape, declared = getattr(sample[value.name], "shape", None), value.shape
        if shape is None or declared is None:
            continue
        place = f"{where}: {value.name}"
        if len(shape) != len(declared) or any(
            isinstance(dim, int) and dim != size for dim, size in zip(declared, shape, strict=True)
        ):
            raise _wrong_sizes(
                "the sample's shape differs from the input's",
                place,
                shape_text(declared),
                shape_text(shape),
            )
        for dim, size in zip(declared, shape, strict=True):
            if isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                raise _wrong_sizes(
                    "inputs have different sizes of one dim",
                    place,
                    f"{dim} = {sizes[dim]}",
                    str(size),
                )
    for name, spec in domain.dims.items():
        if name in sizes and not (spec.spans(sizes[name]) or sizes[name] in spec.buckets):
            raise _wrong_sizes(
                "the sample has a size at which the model is not built to run",
                f"{where}: {name}",
                spec.text(),
                str(sizes[name]),
            )
    for relation in domain.relations:
        if relation.enforced and relation.is_broken(sizes):
            raise _wrong_sizes(
                "the sample's sizes do not fit each other",
                where,
                str(relation),
                f"{relation.dim} = {sizes[relation.dim]}",
            )
    return sizes


def _wrong_sizes(what: str, where: str, expected: str, found: str) -> AotcError:
    return AotcError("AOTC-I075", what, where=where, expected=expected, found=found)


class Magnitudes:
    """How often values are in each of 16 bins of every power of two, of both signs.

    Its range is that of the least squared error in 8 bits, among all values and some percentiles of
    them: M. Nagel et al., "A White Paper on Neural Network Quantization" (2021), section 3.1.  A
    value that is kept is off by a step's uniform noise, or by itself if it is below that, and one
    that is cut off by what is cut.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(1 << (32 - _DROPPED_BITS), np.int64)

    def add(self, values: Array) -> None:
        """Count finite values of any shape and floating-point type."""
        flat = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
        for start in range(0, flat.size, _COUNTED):
            bins = (flat[start : start + _COUNTED] >> _DROPPED_BITS).astype(np.int64)
            self._counts += np.bincount(bins, minlength=self._counts.size)

    def range(self, bounds: Range) -> Range:
        """`bounds`, or a part of them where cutting off the rest is far more exact."""
        (filled,) = np.nonzero(self._counts)
        middle = (filled.astype(np.uint32) << _DROPPED_BITS) | (1 << (_DROPPED_BITS - 1))
        centres = np.clip(middle.view(np.float32).astype(np.float64), *bounds)
        order = np.argsort(centres)
        centres, counts = centres[order], self._counts[filled][order]
        best, least = bounds, _LEFT * _squared_error(centres, counts, bounds)
        below, total = np.cumsum(counts), int(counts.sum())
        for share in _CUT_SHARES:
            cut = total * share / 2
            first = int(np.searchsorted(below, cut, side="right"))
            last = int(np.searchsorted(below, total - cut, side="left"))
            tried = float(centres[first]), float(centres[last])
            if (error := _squared_error(centres, counts, tried)) < least:
                best, least = tried, error
        return best


def _squared_error(centres: Array, counts: Array, bounds: Range) -> float:
    step = (max(bounds[1], 0.0) - min(bounds[0], 0.0)) / 255
    cut = centres - np.clip(centres, min(bounds[0], 0.0), max(bounds[1], 0.0))
    kept = np.minimum(step**2 / 12, centres**2)
    return float((counts * np.where(cut == 0, kept, cut**2)).sum())


class Histogram:
    """How often values are in each of as many bins as the method has, of one width.

    `bounds` are the smallest and the largest value, which differ; values outside are left out.
    Bins of `percentile` span them; those of `entropy` are symmetric, as its search needs it.
    """

    def __init__(self, method: Literal["entropy", "percentile"], bounds: Range) -> None:
        self._method = method
        self._bounds = bounds
        most = max(abs(bound) for bound in bounds)
        span = bounds if method == "percentile" else (-most, most)
        self._edges = np.linspace(*span, BINS[method] + 1, dtype=np.float64)
        self._counts = np.zeros(BINS[method], np.int64)

    def add(self, values: Array) -> None:
        """Count values of any shape and floating-point type."""
        span = (self._edges[0], self._edges[-1])
        exact = values.astype(np.float32, copy=False)
        self._counts += np.histogram(exact, self._counts.size, range=span)[0]

    def range(self, percentile: float) -> Range:
        """The range by the method, within the bounds; `percentile` is without effect for others."""
        if not self._counts.any():
            return self._bounds
        found = self._entropy() if self._method == "entropy" else self._percentile(percentile)
        return max(found[0], self._bounds[0]), min(found[1], self._bounds[1])

    def _percentile(self, percentile: float) -> Range:
        """Half of what the percentile leaves is cut off on each side: the range is not symmetric.

        So does ONNX Runtime's `HistogramCollector.compute_percentile` if it is not symmetric; it
        ends at the lower edge of the last bin, this at the upper one.
        """
        below = np.cumsum(self._counts)
        total = int(below[-1])
        cut = total * (100.0 - percentile) / 200.0
        first = int(np.searchsorted(below, cut, side="right"))
        last = int(np.searchsorted(below, total - cut, side="left"))
        return float(self._edges[first]), float(self._edges[last + 1])

    def _entropy(self) -> Range:
        """The range of the least divergence from the values, by ONNX Runtime's own search.

        Its source is Migacz, "8-bit inference with TensorRT", GTC 2017.
        """
        from onnxruntime.quantization.calibrate import HistogramCollector

        search = HistogramCollector(
            method=self._method,
            symmetric=False,
            num_bins=self._counts.size,
            num_quantized_bins=_QUANTIZED_BINS,
            percentile=100.0,
            scenario="same",
        )
        low, high = (np.float64(bound) for bound in self._bounds)
        histogram = (self._counts, self._edges, low, high, np.float64(self._edges[-1]))
        least, largest = search.get_entropy_threshold(histogram, _QUANTIZED_BINS)
        return float(least), float(largest)


def observed_ranges(
    request: Json, names: Sequence[str], by_channel: Collection[str] = ()
) -> dict[str, Observed]:
    """In the worker: the range and the shape of each activation of the source among `names`.

    Of those `by_channel` too, the ranges of channels.  They are computed once, and read from a file
    in the request's folder then.  Activations that no sample reaches are left out.  Raises R005 and
    R008 if the source does not run.
    """
    source = onnx.load(request["source"], load_external_data=False)
    made = {name for node in source.graph.node for name in node.output}
    made |= {value.name for value in source.graph.input}
    wanted = [name for name in names if name in made]
    channels = [name for name in wanted if name in by_channel]
    key = [wanted, channels, request["method"], request["percentile"], request["samples"]]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    kept = Path(request["folder"]) / f"ranges-{digest}.json"
    if not kept.exists():
        found = _observed(source, wanted, channels, request)
        written = Path(f"ranges-{digest}.json")
        written.write_text(json.dumps({name: _as_json(seen) for name, seen in found.items()}))
        kept.parent.mkdir(parents=True, exist_ok=True)
        written.replace(kept)
    return {name: _as_observed(*seen) for name, seen in json.loads(kept.read_text()).items()}


def _as_json(seen: Observed) -> Json:
    channels = seen.channels
    parts = None if channels is None else [channels.low, channels.high, channels.squares]
    return [seen.bounds, seen.shape, seen.clipped, parts and [part.tolist() for part in parts]]


def _as_observed(bounds: Json, shape: Json, clipped: Json, channels: Json) -> Observed:
    return Observed(
        None if bounds is None else (bounds[0], bounds[1]),
        tuple(shape),
        None if clipped is None else (clipped[0], clipped[1]),
        None if channels is None else Channels(*map(np.array, channels)),
    )


def _observed(
    source: onnx.ModelProto, names: Sequence[str], by_channel: Sequence[str], request: Json
) -> dict[str, Observed]:
    given = {value.name for value in source.graph.input}
    outputs = {value.name for value in source.graph.output}
    computed = [name for name in names if name not in given]
    source.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in computed if name not in outputs
    )
    session = create_session(
        source.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(request["weights"]),
    )
    dtypes = {arg.name: values.ort_type_to_value(arg).dtype for arg in session.get_inputs()}
    collect = _Ranges(by_channel, with_outliers=request["method"] == "auto")

    def each_group(names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Activations among `names`, as many as are held at once, of one sample after another."""
        for sample in request["samples"]:
            typed = {
                name: _as(dtypes.get(name), values.load(Path(path)))
                for name, path in sample["inputs"].items()
            }
            yield {name: typed[name] for name in names if name in given and name in typed}
            wanted = [name for name in names if name not in given]
            for group in groups_within(wanted, collect.held_bytes, _HELD_BYTES):
                yield dict(zip(group, run(session, typed, group), strict=True))

    for found in each_group(names):
        collect.add(found)
    if request["method"] in BINS:
        # Ranges are known first, so that a histogram has as many bins whatever they are.
        histograms = {
            name: Histogram(request["method"], bounds)
            for name, bounds in collect.bounds.items()
            if bounds[0] < bounds[1]
        }
        for found in each_group([name for name in names if name in histograms]):
            for name, value in found.items():
                histograms[name].add(value)
        for name, histogram in histograms.items():
            collect.bounds[name] = histogram.range(request["percentile"])
    return collect.observed(names)


def _as(dtype: str | None, value: Any) -> Any:
    """A sample of the model's own type as the type that the profile gives the input."""
    if dtype is None or not hasattr(value, "astype") or dtype not in ("float16", "bfloat16"):
        return value
    return value.astype(values.numpy_dtype(dtype))


class _Ranges:
    """The smallest and the largest of values that are given sample by sample, and their shapes.

    Of those `by_channel` also of each channel, and `with_outliers` the range without outliers.
    """

    def __init__(self, by_channel: Collection[str], *, with_outliers: bool) -> None:
        self._channels = {name: _ChannelRanges() for name in by_channel}
        self._magnitudes: dict[str, Magnitudes] = {}
        self._with_outliers = with_outliers
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.bounds: dict[str, Range] = {}
        self._wild: set[str] = set()

    def held_bytes(self, name: str) -> int:
        """What a value takes in float32; before it was seen, a share of what may be held."""
        if name not in self.shapes:
            return _HELD_BYTES // _FIRST_COUNT
        return 4 * math.prod(self.shapes[name])

    def add(self, found: Mapping[str, Any]) -> None:
        for name, value in found.items():
            if not isinstance(value, np.ndarray) or not value.size:
                continue
            if value.size >= math.prod(self.shapes.get(name, ())):
                self.shapes[name] = value.shape
            exact = value.astype(np.float32, copy=False)
            low, high = float(exact.min()), float(exact.max())
            if name in self._wild or not np.isfinite((low, high)).all():
                self._wild.add(name)
                self.bounds.pop(name, None)
                continue
            least, largest = self.bounds.get(name, (low, high))
            self.bounds[name] = min(low, least), max(high, largest)
            if self._with_outliers:
                self._magnitudes.setdefault(name, Magnitudes()).add(exact)
            if name in self._channels:
                self._channels[name].add(exact)

    def observed(self, names: Sequence[str]) -> dict[str, Observed]:
        """By name; without names that no run computed, and without bounds if not all are finite."""
        return {
            name: self._seen(name, self.bounds.get(name)) for name in names if name in self.shapes
        }

    def _seen(self, name: str, bounds: Range | None) -> Observed:
        if bounds is None:
            return Observed(None, self.shapes[name])
        clipped = self._magnitudes[name].range(bounds) if self._with_outliers else bounds
        channels = self._channels[name].found() if name in self._channels else None
        return Observed(bounds, self.shapes[name], clipped if clipped != bounds else None, channels)


class _ChannelRanges:
    """Ranges and squares of the channels of one value, unless samples differ in their number."""

    def __init__(self) -> None:
        self._sums: tuple[Array, Array, Array, int] | None = None
        self._differ = False

    def add(self, values: Array) -> None:
        """Add a sample of float32 whose last axis is of channels."""
        if not values.ndim:
            self._differ = True
            return
        rows = values.reshape(-1, values.shape[-1])
        low, high = rows.min(axis=0), rows.max(axis=0)
        # einsum needs no squares of all values at once.
        squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        count = len(rows)
        if self._sums is not None:
            before = self._sums
            if before[0].shape != low.shape:
                self._differ = True
                return
            low, high = np.minimum(low, before[0]), np.maximum(high, before[1])
            squares, count = squares + before[2], count + before[3]
        self._sums = low, high, squares, count

    def found(self) -> Channels | None:
        """Those of all samples; None if they have no channels, or not equally many."""
        if self._sums is None or self._differ:
            return None
        low, high, squares, count = self._sums
        return Channels(low.astype(np.float64), high.astype(np.float64), squares / count)
