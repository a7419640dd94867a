"""What a manifest says of shapes, held against itself: buckets, relations, padding, fixtures.

The types cannot say these things, and a reader that believes them without a look would fail at a
call, or ask for more memory than there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Problem
from aotc.contract.shapes.domain import Domain

if TYPE_CHECKING:
    from aotc.contract.manifest.interface import Value
    from aotc.contract.manifest.payload_files import Fixture
    from aotc.contract.manifest.variant import DroppedVariant, Variant
    from aotc.contract.shapes.padding_rules import Crop, Padding

_MOST = 2**31
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38}


def domain_problems(domain: Domain, variants: Iterable[Variant]) -> Iterator[Problem]:
    """Where sizes of dims, or relations between them, contradict each other."""
    yield from _domain(domain, "domain")
    for index, variant in enumerate(variants):
        if variant.domain is not None:
            yield from _domain(variant.domain, f"variants[{index}].domain")


def _domain(domain: Domain, path: str) -> Iterator[Problem]:
    for name, dim in domain.dims.items():
        where = f"{path}.dims.{name}"
        if not dim.min <= dim.opt <= dim.max <= _MOST:
            yield Problem(where, f"{dim.min}, {dim.opt}, {dim.max} are not rising")
        rising = list(dim.buckets) == sorted(set(dim.buckets))
        if not rising or not all(dim.min <= size <= dim.max for size in dim.buckets):
            yield Problem(f"{where}.buckets", "are not rising within the bounds")
        if dim.pad_from is not None and dim.pad_from > dim.max:
            yield Problem(f"{where}.pad_from", f"{dim.pad_from} is more than max {dim.max}")
    known = set(domain.dims)
    for index, relation in enumerate(domain.relations):
        where = f"{path}.relations[{index}]"
        if relation.dim in known:
            yield Problem(where, f"{relation.dim} is free, or follows already")
        if not known.issuperset(relation.terms):
            yield Problem(where, "has a term that is not known before it")
        if abs(relation.constant) > _MOST:
            yield Problem(where, f"adds {relation.constant}")
        known.add(relation.dim)


def bucket_problems(
    domain: Domain, variants: Iterable[Variant], dropped: Iterable[DroppedVariant]
) -> Iterator[Problem]:
    """Where variants are for other buckets than the domain's, or several are for the same."""
    dims = domain.dims
    bucketed = {name for name, dim in dims.items() if dim.buckets}
    seen = set()
    for index, variant in enumerate(variants):
        where = f"variants[{index}].buckets"
        if variant.buckets and variant.buckets.keys() != bucketed:
            yield Problem(where, "are not of the domain's dims")
        elif any(size not in dims[name].buckets for name, size in variant.buckets.items()):
            yield Problem(where, "are not the domain's")
        key = (variant.spec or variant.name, *sorted(variant.buckets.items()))
        if key in seen:
            yield Problem(where, "are those of another variant")
        seen.add(key)
    for index, left in enumerate(dropped):
        if not bucketed.issuperset(left.buckets):
            yield Problem(f"dropped[{index}].buckets", "are not of the domain's dims")


def padding_problems(
    padding: Padding | None,
    domain: Domain,
    inputs: Sequence[Value],
    outputs: Iterable[Value],
    fixtures: Iterable[Fixture],
) -> Iterator[Problem]:
    """Where rules of padding are of values or dims that are not there, or are missing."""
    if padding is None:
        if any(dim.pad_from is not None for dim in domain.dims.values()):
            yield Problem("padding", "missing, and a dim is padded")
        return
    given = {value.name: value for value in inputs}
    produced = {value.name: value for value in outputs}
    named = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    for name, spec in padding.inputs.items():
        if name not in given:
            yield Problem(f"padding.inputs.{name}", "is no input")
        elif not _fits(spec.value, given[name].dtype):
            yield Problem(f"padding.inputs.{name}.value", f"is no {given[name].dtype}")
    for index, crop in enumerate(padding.crops):
        if what := _crop_problem(crop, produced.get(crop.output), named):
            yield Problem(f"padding.crops[{index}]", what)
    for index, fixture in enumerate(fixtures):
        if not named.issubset(fixture.sizes):
            yield Problem(f"fixtures[{index}].sizes", "do not name every dim of the inputs")


def _fits(value: bool | int | float | str, dtype: str) -> bool:
    if dtype == "string" or isinstance(value, str):
        return dtype == "string" and isinstance(value, str)
    if dtype in _BITS:
        return value == int(value) and -(2 ** _BITS[dtype]) <= value < 2 ** _BITS[dtype]
    if dtype in _UNSIGNED:
        return value == int(value) and 0 <= value < 2 ** _UNSIGNED[dtype]
    return abs(value) <= _LARGEST.get(dtype, math.inf)


def _crop_problem(crop: Crop, output: Value | None, named: set[str]) -> str:
    if output is None or output.kind != "tensor":
        return "is of no output that is a tensor"
    if crop.axis >= (64 if output.shape is None else len(output.shape)):
        return f"has axis {crop.axis}, and the output has fewer"
    if not named.issuperset(crop.dims):
        return "is by a dim that no input has"
    return f"adds {crop.constant}" if abs(crop.constant) > _MOST else ""
