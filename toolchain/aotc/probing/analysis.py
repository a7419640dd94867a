"""The worker job that analyzes a model: a single job, so that a large model is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import Optimization
from aotc.contract.precision.parity_spec import ParitySpec
from aotc.contract.profile import (
    ProbeLimits,
)
from aotc.contract.shapes.dim_range import DimRange
from aotc.contract.shapes.domain import Domain
from aotc.contract.shapes.padding_rules import PadSpec
from aotc.errors import AotcError
from aotc.graphs.symbols import Symbols
from aotc.probing.domain_findings import domain_findings
from aotc.probing.golden_outputs import write_golden_outputs
from aotc.probing.inputs.fixture_plan import FixtureInputs, plan_fixtures, refuse_out_of_range
from aotc.probing.pad_plan import plan_padding
from aotc.probing.produced import axes_of, inferred_shapes, value_shapes
from aotc.probing.reference import Reference
from aotc.probing.runs_at_once import TooManyAtOnceError


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
    reference.try_empty = request["empties"]
    reference.resume(request["deadly"], probe.run_seconds, request["done"], request["spent"])
    stated = {name: DimRange.from_json(item) for name, item in request["stated"].items()}
    given = [FixtureInputs.read(item, reference.inputs) for item in request["given"]]
    refuse_out_of_range(given, stated)
    domain = _proven_domain(reference, stated, probe, given)
    fixtures = plan_fixtures(
        domain, decode(ParitySpec, request["parity"]), reference.inputs_at, given
    )
    side_by_side = request["side_by_side"]
    try:
        fixtures += reference.padded_fixtures(domain, side_by_side=side_by_side)
        runs, findings = write_golden_outputs(
            reference, fixtures, Path("fixtures"), side_by_side=side_by_side
        )
    except TooManyAtOnceError:
        return None
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
    inferred = inferred_shapes(Path(request["graph"]))
    return {
        "shapes": [encode(item) for item in value_shapes(reference.outputs, axes, inferred)],
        "padding": encode(padding) if padding is not None else None,
        "domain": encode(domain),
        "references": runs,
        "findings": [
            encode(finding)
            for finding in (
                *_level_findings(reference.level),
                *domain_findings(domain),
                *reference.rejected_findings,
                *reference.findings,
                *findings,
            )
        ],
        "activation_bytes": reference.activation_bytes(domain),
    }


def _proven_domain(
    reference: Reference,
    stated: Mapping[str, DimRange],
    probe: ProbeLimits,
    given: Sequence[FixtureInputs],
) -> Domain:
    """The domain of the reference; searched again with other input values if nothing runs."""
    while True:
        try:
            domain = reference.domain(stated, probe, given)
        except AotcError as error:
            if error.code not in ("AOTC-S001", "AOTC-S005") or not reference.try_other_values():
                raise
            continue
        fixed = not reference.dims and not given
        if not fixed or reference.trial({}).ok or not reference.try_other_values():
            return domain


def _level_findings(level: Optimization) -> list[Finding]:
    if level == "disable":
        return []
    what = f"the reference is the model at level {level}: below it ONNX Runtime lacks kernels"
    return [Finding(code="AOTC-O010", what=what, where="reference")]
