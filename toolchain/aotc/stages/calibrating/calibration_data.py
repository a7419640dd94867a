"""Calibration data: the samples on which activations are observed, as value files.

They are those of `--calibration` or of the profile's `calibration.data`, else the user's fixtures.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.codec.parsing import Json, encode
from aotc.contract.profile import Profile
from aotc.contract.shapes.domain import Domain
from aotc.engine import values
from aotc.errors import AotcError
from aotc.files.test_data import data_sources
from aotc.probing.inputs.sample_files import (
    SampleCodes,
    read_samples,
    refuse_not_finite,
    shape_text,
)
from aotc.probing.inputs.user_fixtures import read_test_data, require_dtype
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import AnalyzedModel, SourceModel

_CODES: Final = SampleCodes(
    unreadable="AOTC-I073", inputs="AOTC-I074", shapes="AOTC-I075", pickled="AOTC-I077"
)
_INDEX: Final = "samples.json"


def require_calibration(options: BuildOptions) -> None:
    """Raise AOTC-I072 if ranges are to be observed and there is no data, and I001 as `data` says.

    It looks at no file's content, so that a long build need not begin.
    """
    path = options.calibration
    if path is not None and not path.exists():
        raise AotcError("AOTC-I001", "no such calibration data", where=str(path))
    if path is None and options.fixtures is None:
        static = _static_variants(options.profile)
        if static:
            raise _none(f"variant {static[0]}: quantization.form: static", "no data")


def calibration_samples(analyzed: AnalyzedModel, options: BuildOptions) -> tuple[Json, ...]:
    """The samples, each `{"inputs": {name: path of a value file}}`; none if no data was given.

    Those of calibration data, which are no fixtures, have the `sizes` of their named dims as well.
    They are written once in a build, as what is made of them is known by their paths.  They have
    the model's own dtypes, and sizes at which it runs without padding.  There are at most
    `calibration.max_samples`, the first ones.  Raises AOTC-I001 and I072 (there is no data), I073
    (it cannot be read), I074 (inputs), I075 (shapes), I076 (NaN or infinity), I077 (pickles).
    """
    require_calibration(options)
    if options.calibration is None:
        samples = _of_fixtures(analyzed)[: options.profile.calibration.max_samples]
        if not samples and options.fixtures is not None and _static_variants(options.profile):
            raise _none(str(options.fixtures), "NaN or infinity in every fixture")
        return samples
    # Without size 0, the model is analyzed again, and large arrays may be cut otherwise.
    domain = canonical_sha256(encode(analyzed.domain))[:12]
    folder = options.shared / f"calibration-{domain}"
    index = folder / _INDEX
    if not index.exists():
        found = _checked(options.calibration, analyzed)
        count = options.profile.calibration.max_samples
        written = _written(options.calibration, found, folder, count)
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
        "there is no sample to calibrate with",
        where=where,
        expected="a .npz file, a folder of such, or folders of ONNX test data",
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
    for where, sample, sizes in itertools.islice(samples, count):
        refuse_not_finite(sample, where, "AOTC-I076")
        place = folder / str(len(written))
        place.mkdir()
        files = {
            name: str(values.save(array, place / f"input_{number}").resolve())
            for number, (name, array) in enumerate(sample.items())
        }
        written.append({"inputs": files, "sizes": sizes})
    if not written:
        raise _none(str(path), "no sample")
    return written


def _checked(
    path: Path, analyzed: AnalyzedModel
) -> Iterator[tuple[str, dict[str, Any], dict[str, int]]]:
    """The samples, where each stands, and its sizes, at which the model runs."""
    source, domain = analyzed.source, analyzed.domain
    for where, sample in _read_all(path, source, domain.corner("min")):
        yield where, sample, _sizes(sample, source, domain, where)


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
        yield from read_samples(file, source.inputs, smallest, _CODES)
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
