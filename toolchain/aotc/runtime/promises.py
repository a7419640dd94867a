"""Checks of a session before its first call: the provider's verdict, and the placement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.variant import Variant
from aotc.engine import placement
from aotc.engine.named_backends import backend_of
from aotc.engine.provider_verdict import verdicts
from aotc.errors import AotcError
from aotc.partitioning.budgets import breaches, with_flops
from aotc.runtime.built_profile import profile_of

if TYPE_CHECKING:
    import onnxruntime as ort

OPTIMAL: Final = "EP_SUPPORTED_OPTIMAL"


def check_compatibility_strings(
    manifest: Manifest, variant: Variant, libraries: Mapping[str, Path]
) -> tuple[Finding, ...]:
    """Ask each provider whether its compiled parts fit this host: ORT's Python API does not.

    Raises AOTC-C013 for any verdict but `optimal`; with a waiver in the artifact, a finding.
    """
    found = []
    for provider, (verdict, text) in verdicts(
        variant.requirements.compatibility, libraries
    ).items():
        if verdict == OPTIMAL:
            continue
        error = AotcError(
            "AOTC-C013",
            f"{provider} calls the compiled model {verdict}",
            where=f"variant {variant.name}",
            expected=text,
            found=verdict,
        )
        found.append(_waived_finding(error, manifest, variant))
    return tuple(found)


def check_placement(
    opened: ort.InferenceSession, manifest: Manifest, variant: Variant
) -> tuple[Finding, ...]:
    """Compare the session with its promise: equal if observed, within policy if predicted.

    Raises AOTC-P003 (with a waiver in the artifact: a finding), P001 and P002.
    """
    try:
        observed = placement.observe(opened)
    except UnicodeDecodeError as bad:
        raise AotcError(
            "AOTC-R023",
            "the model's node names are not UTF-8",
            where=f"variant {variant.name}",
            found=repr(bad.object)[:200],
        ) from None
    promised = variant.placement
    if promised.how == "predicted":
        _check_policy(manifest, variant, opened)
        return ()
    lines = placement.differences(promised, observed)
    if not lines:
        return ()
    error = AotcError(
        "AOTC-P003",
        f"{len(lines)} nodes are not placed as promised",
        where=f"variant {variant.name}",
        expected="the placement observed at build",
        found=placement.summary(lines),
    )
    finding = _waived_finding(error, manifest, variant)
    # The waiver is for the difference; policy and budgets apply to the actual placement.
    _check_policy(manifest, variant, opened)
    return (finding,)


def check_session(opened: ort.InferenceSession, manifest: Manifest, variant: Variant) -> None:
    """Compare the session's inputs and outputs with the manifest's names; raises AOTC-R023."""
    for kind, promised, observed in (
        ("inputs", manifest.inputs, opened.get_inputs),
        ("outputs", manifest.outputs, opened.get_outputs),
    ):
        wanted = sorted(value.name for value in promised)
        try:
            found = sorted(value.name for value in observed())
        except UnicodeDecodeError as error:
            found = [repr(error.object)]
        if found != wanted:
            raise AotcError(
                "AOTC-R023",
                f"the model's {kind} are not those that the manifest names",
                where=f"variant {variant.name}",
                expected=", ".join(wanted)[:200],
                found=", ".join(found)[:200] or "none",
            )


def _check_policy(manifest: Manifest, variant: Variant, opened: ort.InferenceSession) -> None:
    profile = profile_of(manifest)
    spec = next((spec for spec in profile.variants if spec.name == variant.spec), None)
    names = (spec.providers if spec is not None else None) or profile.providers
    flops = {node.name: node.flops for node in variant.placement.nodes}
    found = breaches(
        profile,
        {name: backend_of(name, profile.plugins).ort_name for name in names},
        with_flops(placement.observe(opened), flops),
        report=variant.partitioning,
        transfers=variant.transfers,
        where=f"variant {variant.name}",
    )
    if found:
        found[0].also = tuple(found[1:])
        raise found[0]


def _waived_finding(error: AotcError, manifest: Manifest, variant: Variant) -> Finding:
    """The finding for a waived `error`; raises `error` if there is no waiver."""
    for waiver in manifest.waivers:
        if waiver.code == error.code and waiver.variant in ("", variant.spec, variant.name):
            return Finding(
                code="AOTC-P008",
                what=f"{error.code} {error.what}: {error.found}; waived: {waiver.reason}",
                where=error.where,
            )
    raise error
