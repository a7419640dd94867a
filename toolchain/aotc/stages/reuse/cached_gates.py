"""The gates of a build that was taken from the cache, by what its first build measured."""

from __future__ import annotations

from aotc.contract.codec.parsing import decode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.manifest.document import Manifest
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.results.run_report import Figure, Gate
from aotc.engine.named_backends import backend_of
from aotc.files.artifact_layout import MANIFEST
from aotc.partitioning.budgets import judge_placement
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import Artifact
from aotc.stages.variant_gates import judge_costs, judge_parity, judge_together, variant_figures


def judge_cached(artifact: Artifact, evidence: Evidence, options: BuildOptions) -> None:
    """Write down the gates and figures of a cached artifact; equal builds passed them all."""
    manifest = decode(Manifest, strict_json((artifact.folder / MANIFEST).read_bytes()))
    profile, places, journal = options.profile, options.places, options.journal
    measured = {variant.name: variant for variant in evidence.variants}
    specs = {spec.name: spec for spec in profile.variants}
    for variant in manifest.variants:
        where = f"variant {variant.name}"
        found = measured.get(variant.name)
        spec = specs.get(variant.spec)
        order = options.budget_orders.get(variant.spec) or (spec and spec.providers)
        judged = [
            judge_placement(
                profile,
                {
                    name: backend_of(name, profile.plugins).ort_name
                    for name in order or profile.providers
                },
                variant.placement,
                report=variant.partitioning,
                transfers=variant.transfers,
                where=where,
                places=places,
            )
        ]
        if found is not None:
            parity = variant.parity
            compared = found.comparisons or found.undivided
            if parity.tolerance is not None:
                judged.append(
                    judge_parity(compared, where, parity.arithmetic, parity.tolerance, places)
                )
            judged.append(judge_costs(found, profile.budgets, where, places))
            journal.measured(variant_figures(found, where))
        judge_together(judged, journal)
    total, budget = artifact.payload_bytes, profile.budgets.artifact_bytes
    journal.model_sha256 = evidence.model
    journal.measured((Figure(name="size", subject="payload", value=total, unit="B"),))
    if budget is not None:
        gate = Gate(
            name="budgets.artifact_bytes",
            subject="payload",
            status="passed",
            limit=f"<= {budget} bytes",
            measured=f"{total} bytes",
            place=places.of("budgets.artifact_bytes"),
        )
        journal.judged((gate,))
