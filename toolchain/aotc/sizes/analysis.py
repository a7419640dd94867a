"""The worker job that analyzes a model: a single job, so that a large model is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import onnx

from aotc.base.errors import AotcError
from aotc.graph.allowed_arrays import require_allowed
from aotc.graph.decisions import Decisions
from aotc.graph.parted_axes import parted_axes
from aotc.graph.symbols import Symbols
from aotc.sizes.ahead import run_ahead
from aotc.sizes.inputs.fixtures import FixtureInputs, hints_like, plan_fixtures, refuse_out_of_range
from aotc.sizes.output_shapes import (
    axes_of,
    inferred_graph,
    inferred_shapes,
    plan_padding,
    value_shapes,
)
from aotc.sizes.reference import Reference, write_golden_outputs
from aotc.sizes.runs import TooManyAtOnceError
from aotc.sizes.showing import Showing
from aotc.sizes.stated_values import fixtures_at_ends, refuse_stated_values, tried_values
from aotc.sizes.trials import ENDED, Trial
from aotc.spec.codec import Json, decode, encode
from aotc.spec.conditions import Condition
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import ParitySpec
from aotc.spec.profile import ProbeLimits
from aotc.spec.shapes import DimRange, Domain, PadSpec
from aotc.spec.variant import Optimization

# By what ended the search: the limits of the profile.
_LIMITS = {
    "combined": "fails",
    "size": "exceeds probe.max_size, of a batch 1024, or of an image 4096",
    "bytes": "exceeds probe.max_input_bytes or probe.max_activation_bytes, or the share of them "
    "that sizes beyond the usual ones have",
    "flops": "exceeds probe.max_flops, or the share of it that sizes beyond the usual ones have",
    "runs": f"was not tried: the search {ENDED['runs']}",
    "time": f"was not tried: the search {ENDED['time']}",
}


def analyze_job(request: Json) -> Json:
    """In the worker: domain, fixtures, their outputs, and declared against produced shapes.

    `None` if runs did not go side by side, and are to go one after the other.
    """
    symbols = decode(Symbols, request["symbols"])
    reference = Reference(
        model=Path(request["model"]),
        graph=Path(request["graph"]),
        weights=Path(request["weights"]),
        symbols=symbols,
        outputs=tuple(decode(Value, item) for item in request["outputs"]),
        hints=request["hints"],
        seed=request["parity"].get("seed", ParitySpec().seed),
    )
    probe = decode(ProbeLimits, request["probe"])
    reference.conditions = tuple(decode(Condition, item) for item in request["conditions"])
    reference.try_empty, reference.try_further = request["empties"], request["further"]
    reference.resume(request["deadly"], probe.run_seconds, request["done"], request["spent"])
    stated = {name: DimRange.from_json(item) for name, item in request["stated"].items()}
    given = [FixtureInputs.read(item, reference.inputs) for item in request["given"]]
    refuse_out_of_range(given, stated)
    if request["custom_ops"]:
        reference.hints = hints_like(given, reference.inputs, reference.hints)
    for item in given:
        where = f"fixture {item.name}"
        require_allowed(item.inputs, reference.inputs, item.sizes, code="AOTC-I112", where=where)
    parity = decode(ParitySpec, request["parity"])
    if request["side_by_side"] and not request["deadly"]:
        try:
            reference.ahead = run_ahead(reference, stated, parity)
        except TooManyAtOnceError:
            return None
    domain = _proven_domain(reference, stated, probe, given)
    fixtures = plan_fixtures(domain, parity, reference.inputs_at, given)
    ends, failed_ends = fixtures_at_ends(reference, domain)
    fixtures += ends
    place, weights = Path(request["graph"]), Path(request["graph_weights"])

    # When the first fixture is answered: inference makes constants that no machine may hold.
    @cache
    def inferred() -> onnx.ModelProto | None:
        return inferred_graph(place)

    @cache
    def parted() -> dict[str, tuple[PartedAxis, ...]]:
        graph = inferred()
        return parted_axes(graph) if graph is not None else {}

    @cache
    def showing() -> Showing:
        return Showing.of(reference, place, weights, parted())

    side_by_side = request["side_by_side"]
    try:
        fixtures += reference.padded_fixtures(domain, side_by_side=side_by_side)
        runs, findings = write_golden_outputs(
            reference,
            fixtures,
            Path("fixtures"),
            side_by_side=side_by_side,
            noted=lambda fixture, outputs: showing().note(fixture, outputs),
        )
    except TooManyAtOnceError:
        return None
    except AotcError as error:
        refuse_stated_values(reference, error.found)
        raise
    if request["seeded"] and fixtures:
        reference.require_repeats(fixtures[0])
    showing().search_answers()
    branches = None
    if request["control_flow"]:
        branches = showing().search_branches(domain, reference.level)
    more = write_golden_outputs(
        reference, showing().added, Path("fixtures"), side_by_side=False, first=len(fixtures)
    )
    runs, findings = runs + more[0], findings + more[1]
    axes = [
        axes_of(index, value, reference.observed_runs, reference.dims)
        for index, value in enumerate(reference.outputs)
    ]
    padding = plan_padding(
        domain,
        reference.inputs,
        reference.outputs,
        axes,
        {name: decode(PadSpec, item) for name, item in request["pads"].items()},
        request["crops"],
    )
    graph = inferred()
    shapes = inferred_shapes(graph) if graph is not None else {}
    decisions = Decisions(graph or onnx.load(place, load_external_data=False))
    return {
        "parted": {name: [encode(axis) for axis in axes] for name, axes in parted().items()},
        "shapes": [encode(item) for item in value_shapes(reference.outputs, axes, shapes)],
        "padding": encode(padding) if padding is not None else None,
        "domain": encode(domain),
        "references": runs,
        "decided": {name: encode(each) for name, each in decisions.stated.items()},
        "findings": [
            encode(finding)
            for finding in (
                *_level_findings(reference.level),
                *domain_findings(domain),
                *reference.rejected_findings,
                *reference.findings,
                *tried_values(reference.inputs, [*fixtures, *showing().added]),
                *failed_ends,
                *findings,
                *showing().findings,
            )
        ],
        "traits": [encode(item) for item in showing().traits.values()],
        "lacks": {name: lack.what for name, lack in showing().lacks().items()},
        "branches": [encode(item) for item in branches.table()] if branches is not None else None,
        "activation_bytes": reference.activation_bytes(domain),
    }


def _proven_domain(
    reference: Reference,
    stated: Mapping[str, DimRange],
    probe: ProbeLimits,
    given: Sequence[FixtureInputs],
) -> Domain:
    """The domain of the reference; searched again with other input values if nothing runs.

    Raises AOTC-S032 if nothing runs with the values that the profile states, and what
    `Reference.domain` raises.
    """
    while True:
        try:
            domain = reference.domain(stated, probe, given)
        except AotcError as error:
            if error.code not in ("AOTC-S001", "AOTC-S005"):
                raise
            if not reference.try_other_values():
                refuse_stated_values(reference, error.found)
                raise
            continue
        fixed = not reference.dims and not given
        trial = reference.trial({}) if fixed else Trial(ok=True)
        if trial.ok:
            return domain
        if not reference.try_other_values():
            refuse_stated_values(reference, trial.error)
            return domain


def _level_findings(level: Optimization) -> list[Finding]:
    if level == "disable":
        return []
    what = f"the reference is the model at level {level}: below it ONNX Runtime lacks kernels"
    return [Finding(code="AOTC-O010", what=what, where="reference")]


def domain_findings(domain: Domain) -> list[Finding]:
    """A finding for everything that a user should know about the probed ranges."""
    found = []
    for name, dim in domain.dims.items():
        probed = dim.origin == "probed" or dim.stopped_by != ""
        if probed and dim.min == dim.max and dim.stopped_by in ("", "error"):
            found.append(
                Finding(code="AOTC-S006", what=f"only size {dim.min} was found to run", where=name)
            )
        elif probed and dim.stopped_by not in ("", "error"):
            found.append(
                Finding(
                    code="AOTC-S008",
                    what=f"proven for {dim.text()}; a larger size, with the other dims at their "
                    f"maximum, {_LIMITS[dim.stopped_by]}",
                    where=name,
                )
            )
    found += [
        Finding(
            code="AOTC-S013",
            what=f"these sizes do not run: {', '.join(str(size) for size in dim.gaps)}",
            where=name,
        )
        for name, dim in domain.dims.items()
        if dim.gaps
    ]
    found += [
        Finding(
            code="AOTC-S007",
            what=str(relation)
            if relation.enforced
            else f"tried only where {relation}; other sizes were not shown to fail, so they are "
            "accepted",
            where=relation.dim,
        )
        for relation in domain.relations
    ]
    return found
