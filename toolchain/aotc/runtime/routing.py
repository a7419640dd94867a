"""Which variant of an artifact a host loads."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.manifest import Manifest, Variant
from aotc.contract.parsing import nearest
from aotc.contract.report import VariantVerdict
from aotc.errors import AotcError
from aotc.verification.compatibility import error_of, preference


def choose(
    manifest: Manifest, verdicts: Sequence[VariantVerdict], wanted: str | None = None
) -> Variant:
    """The variant called `wanted`, or the most preferred of those that run on the host.

    Raises AOTC-I027 (no such variant) and AOTC-C009 with the reasons (it does not run, or
    none does).
    """
    names = tuple(variant.name for variant in manifest.variants)
    if wanted is not None and wanted not in names:
        close = nearest(wanted, names)
        hint = f"; did you mean {close!r}?" if close else ""
        raise AotcError(
            "AOTC-I027",
            f"the artifact has no variant {wanted!r}{hint}",
            expected=" or ".join(names),
            found=wanted,
            mend="Name one of the artifact's variants, or none.",
        )
    asked = [verdict for verdict in verdicts if wanted in (None, verdict.name)]
    runs = {verdict.name for verdict in asked if verdict.runs}
    for variant in preference(manifest.variants):
        if variant.name in runs:
            return variant
    raise AotcError(
        "AOTC-C009",
        f"variant {wanted!r} does not run on this host"
        if wanted
        else "no variant runs on this host",
        also=tuple(error_of(reason) for verdict in asked for reason in verdict.reasons),
    )
