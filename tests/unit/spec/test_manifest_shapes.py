"""A manifest whose shapes contradict each other is refused before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from plain_manifest import CPU, manifest, variant

from aotc.spec.codec import Problem
from aotc.spec.manifest import (
    Manifest,
    bucket_problems,
    capture_problems,
    domain_problems,
    padding_problems,
)
from aotc.spec.payload import Fixture, Value
from aotc.spec.shapes import Crop, Dim, Domain, Padding, PadSpec, Relation
from aotc.spec.variant import GraphCapture, SessionSpec

IDS = Value(name="ids", dtype="uint8", shape=("batch", "seq"))
OUT = Value(name="y", dtype="float32", shape=("batch", "seq", 8))
SEQ = Dim(min=4, max=16, opt=8, buckets=(4, 8, 16), outside=("pad",), pad_from=1, origin="stated")
BATCH = Dim(min=1, max=4, opt=1)
RELATION = Relation(dim="total", terms=("seq",))


def good() -> Manifest:
    domain = Domain(dims={"batch": BATCH, "seq": SEQ}, relations=(RELATION,))
    variants = tuple(
        replace(variant(f"v{size}"), spec="v", buckets={"seq": size}) for size in SEQ.buckets
    )
    padding = Padding(
        inputs={"ids": PadSpec(value=255)}, crops=(Crop(output="y", axis=1, dims=("seq",)),)
    )
    fixture = Fixture(
        name="opt", origin="generated", sizes={"batch": 1, "seq": 8}, inputs=(), outputs=()
    )
    made = manifest(IDS, domain=domain, variants=variants)
    return replace(made, outputs=(OUT,), padding=padding, fixtures=(fixture,))


def dims(**changed: Dim) -> Manifest:
    made = good()
    return replace(made, domain=replace(made.domain, dims={**made.domain.dims, **changed}))


def padded(padding: Padding) -> Manifest:
    return replace(good(), padding=padding)


def related(*relations: Relation) -> Manifest:
    made = good()
    return replace(made, domain=replace(made.domain, relations=relations))


def shape_problems(made: Manifest) -> list[Problem]:
    return [
        *domain_problems(made.domain, made.variants),
        *bucket_problems(made.domain, made.variants, made.dropped),
        *padding_problems(made.padding, made.domain, made.inputs, made.outputs, made.fixtures),
    ]


def test_a_good_manifest_has_no_problem() -> None:
    assert shape_problems(good()) == []


@pytest.mark.parametrize(
    ("made", "path", "what"),
    [
        (dims(batch=replace(BATCH, opt=9)), "domain.dims.batch", "1, 9, 4 are not increasing"),
        (dims(batch=replace(BATCH, max=2**50)), "domain.dims.batch", "are not increasing"),
        (dims(seq=replace(SEQ, buckets=(8, 4))), "domain.dims.seq.buckets", "not increasing"),
        (dims(seq=replace(SEQ, buckets=(8, 99))), "domain.dims.seq.buckets", "not increasing"),
        (dims(seq=replace(SEQ, pad_from=17)), "domain.dims.seq.pad_from", "more than max"),
        (related(Relation(dim="seq", terms=("batch",))), "domain.relations[0]", "is free"),
        (related(RELATION, RELATION), "domain.relations[1]", "has a relation already"),
        (related(Relation(dim="a", terms=("b",))), "domain.relations[0]", "neither free nor"),
        (
            related(Relation(dim="a", terms=("seq",), constant=2**52)),
            "domain.relations[0]",
            "adds",
        ),
        (padded(Padding(inputs={"idz": PadSpec()})), "padding.inputs.idz", "is not an input"),
        (
            padded(Padding(inputs={"ids": PadSpec(value=-1)})),
            "padding.inputs.ids.value",
            "is not a value of type uint8",
        ),
        (
            padded(Padding(inputs={"ids": PadSpec(value="abc")})),
            "padding.inputs.ids.value",
            "is not a value of type uint8",
        ),
        (
            replace(
                padded(Padding(inputs={"ids": PadSpec(value=1e300)})),
                inputs=(replace(IDS, dtype="float32"),),
            ),
            "padding.inputs.ids.value",
            "is not a value of type float32",
        ),
        (
            padded(Padding(crops=(Crop(output="y", axis=7, dims=("seq",)),))),
            "padding.crops[0]",
            "axis 7",
        ),
        (
            padded(Padding(crops=(Crop(output="z", axis=0, dims=("seq",)),))),
            "padding.crops[0]",
            "does not name an output",
        ),
        (
            padded(Padding(crops=(Crop(output="y", axis=1, dims=("total",)),))),
            "padding.crops[0]",
            "no input has",
        ),
        (replace(good(), padding=None), "padding", "missing"),
        (
            replace(good(), fixtures=(replace(good().fixtures[0], sizes={"seq": 8}),)),
            "fixtures[0].sizes",
            "every dim",
        ),
        (
            replace(good(), variants=(*good().variants, replace(good().variants[0], name="w"))),
            "variants[3].buckets",
            "another variant",
        ),
        (
            replace(good(), variants=(replace(good().variants[0], buckets={"seq": 5}),)),
            "variants[0].buckets",
            "not buckets of the domain",
        ),
        (
            replace(good(), variants=(replace(good().variants[0], buckets={"batch": 1}),)),
            "variants[0].buckets",
            "bucketed dims of the domain",
        ),
    ],
)
def test_contradictions_are_found(made: Manifest, path: str, what: str) -> None:
    problems = shape_problems(made)
    assert path in [problem.path for problem in problems]
    assert any(what in problem.what for problem in problems)


CUDA = "CUDAExecutionProvider"


def captured(*sizes: Mapping[str, int], **changed: Any) -> Manifest:
    """One dynamic variant on CUDA that captures `sizes`, with other fields."""
    made = good()
    fields = {
        "buckets": {},
        "providers": (CUDA,),
        "cuda_graphs": GraphCapture(sizes=sizes),
        "session": SessionSpec(
            optimization="all", provider_options={CUDA: {"enable_cuda_graph": "1"}}
        ),
        **changed,
    }
    return replace(made, variants=(replace(variant("v"), **fields),))


def test_captured_sizes_in_the_domain_are_good() -> None:
    made = captured({"batch": 1, "seq": 4}, {"batch": 1, "seq": 16})
    assert list(capture_problems(made.domain, made.variants)) == []
    static = captured({"batch": 1, "seq": 4}, buckets={"seq": 4})
    assert list(capture_problems(static.domain, static.variants)) == []
    assert list(capture_problems(good().domain, good().variants)) == []


@pytest.mark.parametrize(
    ("made", "path", "what"),
    [
        (captured({"seq": 4}), "sizes[0]", "does not name exactly the free dims"),
        (captured({"batch": 1, "seq": 4, "total": 4}), "sizes[0]", "exactly the free dims"),
        (captured({"batch": 1, "seq": 5}), "sizes[0]", "has seq=5, which the variant does not"),
        (captured({"batch": 9, "seq": 4}), "sizes[0]", "has batch=9"),
        (captured({"batch": 1, "seq": 4}, buckets={"seq": 8}), "sizes[0]", "has seq=4"),
        (captured({"batch": 1, "seq": 4}, {"seq": 4, "batch": 1}), "sizes", "combination twice"),
        (
            captured(cuda_graphs=GraphCapture(sizes=({"batch": 1, "seq": 4},) * 2, max_count=1)),
            "sizes",
            "more than max_count 1",
        ),
        (captured({"batch": 1, "seq": 4}, providers=CPU), "", "not among the providers"),
        (captured(cuda_graphs=GraphCapture(sizes=())), "sizes", "name no sizes of the free dims"),
        (captured(cuda_graphs=None), "", "exactly if enable_cuda_graph is 1"),
        (captured(session=SessionSpec(optimization="all")), "", "exactly if enable_cuda_graph"),
        (
            captured(
                session=SessionSpec(
                    optimization="all", provider_options={CPU[0]: {"enable_cuda_graph": "1"}}
                )
            ),
            "",
            "CPUExecutionProvider has no CUDA graphs",
        ),
    ],
)
def test_captures_that_contradict_the_domain_are_found(
    made: Manifest, path: str, what: str
) -> None:
    where = "variants[0].cuda_graphs" + (f".{path}" if path else "")
    found = list(capture_problems(made.domain, made.variants))
    assert any(problem.path == where and what in problem.what for problem in found), found
