"""Consistency of the shapes of a manifest: buckets, relations, padding and fixtures.

The types do not express these rules; without the check, a call could fail, or allocate more memory
than there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aotc.contract.codec.parsing import Problem
from aotc.contract.known_providers import CAPTURING, GRAPH_OPTION
from aotc.contract.shapes.domain import Domain

if TYPE_CHECKING:
    from aotc.contract.manifest.interface import Value
    from aotc.contract.manifest.payload_files import Fixture
    from aotc.contract.manifest.variant import DroppedVariant, Variant
    from aotc.contract.shapes.padding_rules import Crop, Padding

_CAPTURING: Final = CAPTURING.ort_name
_MAX_SIZE = 2**31
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_UNSIGNED = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
_LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38}


def domain_problems(domain: Domain, variants: Iterable[Variant]) -> Iterator[Problem]:
    """Contradictions among the sizes of dims and the relations between them."""
    yield from _problems_of_domain(domain, "domain")
    for index, variant in enumerate(variants):
        if variant.domain is not None:
            yield from _problems_of_domain(variant.domain, f"variants[{index}].domain")


def _problems_of_domain(domain: Domain, path: str) -> Iterator[Problem]:
    for name, dim in domain.dims.items():
        where = f"{path}.dims.{name}"
        if not dim.min <= dim.opt <= dim.max <= _MAX_SIZE:
            yield Problem(where, f"{dim.min}, {dim.opt}, {dim.max} are not increasing")
        increasing = list(dim.buckets) == sorted(set(dim.buckets))
        if not increasing or not all(dim.min <= size <= dim.max for size in dim.buckets):
            yield Problem(f"{where}.buckets", "are not increasing within the bounds")
        if dim.pad_from is not None and dim.pad_from > dim.max:
            yield Problem(f"{where}.pad_from", f"{dim.pad_from} is more than max {dim.max}")
    known = set(domain.dims)
    for index, relation in enumerate(domain.relations):
        where = f"{path}.relations[{index}]"
        if relation.dim in known:
            yield Problem(where, f"{relation.dim} is free, or has a relation already")
        if not known.issuperset(relation.terms):
            yield Problem(
                where, "has a term that is neither free nor the dim of an earlier relation"
            )
        if abs(relation.constant) > _MAX_SIZE:
            yield Problem(where, f"adds {relation.constant}")
        known.add(relation.dim)


def bucket_problems(
    domain: Domain, variants: Iterable[Variant], dropped: Iterable[DroppedVariant]
) -> Iterator[Problem]:
    """Variants for buckets that the domain does not have, or for the same buckets."""
    dims = domain.dims
    bucketed = {name for name, dim in dims.items() if dim.buckets}
    seen = set()
    for index, variant in enumerate(variants):
        where = f"variants[{index}].buckets"
        if variant.buckets and variant.buckets.keys() != bucketed:
            yield Problem(where, "do not name the bucketed dims of the domain")
        elif any(size not in dims[name].buckets for name, size in variant.buckets.items()):
            yield Problem(where, "are not buckets of the domain")
        key = (variant.spec or variant.name, *sorted(variant.buckets.items()))
        if key in seen:
            yield Problem(where, "are also those of another variant")
        seen.add(key)
    for index, variant_left_out in enumerate(dropped):
        if not bucketed.issuperset(variant_left_out.buckets):
            yield Problem(f"dropped[{index}].buckets", "name dims without buckets")


def capture_problems(domain: Domain, variants: Iterable[Variant]) -> Iterator[Problem]:
    """Captured sizes outside the domain, or without the provider option that allows captures."""
    for index, variant in enumerate(variants):
        where = f"variants[{index}].graphs"
        allowed = {
            provider
            for provider, options in variant.session.provider_options.items()
            if options.get(GRAPH_OPTION, "0") != "0"
        }
        if allowed - {_CAPTURING}:
            yield Problem(where, f"{', '.join(sorted(allowed))} has no CUDA graphs")
        if bool(allowed) != (variant.graphs is not None):
            yield Problem(where, f"must be stated exactly if {GRAPH_OPTION} is 1")
        if variant.graphs is None:
            continue
        if _CAPTURING not in variant.providers:
            yield Problem(where, "are for CUDA, which is not among the providers")
        sizes = variant.graphs.sizes
        if domain.dims and not sizes:
            yield Problem(f"{where}.sizes", "name no sizes of the free dims")
        if len(sizes) > variant.graphs.max_count:
            yield Problem(f"{where}.sizes", f"are more than max_count {variant.graphs.max_count}")
        if len({tuple(sorted(captured.items())) for captured in sizes}) < len(sizes):
            yield Problem(f"{where}.sizes", "name one combination twice")
        for number, captured in enumerate(sizes):
            if what := _capture_problem(domain, variant.buckets, captured):
                yield Problem(f"{where}.sizes[{number}]", what)


def _capture_problem(
    domain: Domain, buckets: Mapping[str, int], captured: Mapping[str, int]
) -> str:
    if captured.keys() != domain.dims.keys():
        return "does not name exactly the free dims"
    for name, size in captured.items():
        dim = domain.dims[name]
        # A dim with buckets is captured at these only: other sizes are not expected there.
        inside = size in dim.buckets if dim.buckets else dim.spans(size)
        if not inside or buckets.get(name, size) != size:
            return f"has {name}={size}, which the variant does not take"
    return ""


def padding_problems(
    padding: Padding | None,
    domain: Domain,
    inputs: Sequence[Value],
    outputs: Iterable[Value],
    fixtures: Iterable[Fixture],
) -> Iterator[Problem]:
    """Padding rules that are missing, or that name values or dims that do not exist."""
    if padding is None:
        if any(dim.pad_from is not None for dim in domain.dims.values()):
            yield Problem("padding", "is missing, and a dim is padded")
        return
    given = {value.name: value for value in inputs}
    produced = {value.name: value for value in outputs}
    named = {dim for value in inputs for dim in value.shape or () if isinstance(dim, str)}
    for name, spec in padding.inputs.items():
        if name not in given:
            yield Problem(f"padding.inputs.{name}", "is not an input")
        elif not _fits(spec.value, given[name].dtype):
            yield Problem(
                f"padding.inputs.{name}.value", f"is not a value of type {given[name].dtype}"
            )
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
        return "does not name an output that is a tensor"
    if crop.axis >= (64 if output.shape is None else len(output.shape)):
        return f"has axis {crop.axis}, which the output does not have"
    if not named.issuperset(crop.dims):
        return "names a dim that no input has"
    return f"adds {crop.constant}" if abs(crop.constant) > _MAX_SIZE else ""
