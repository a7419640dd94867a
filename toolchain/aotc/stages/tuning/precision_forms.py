"""The precisions that a variant is tried in, each in the forms of quantization that it has."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.backends.base import Backend
from aotc.contract.known_providers import CPU
from aotc.contract.precision.quantization import Form
from aotc.contract.profile import Profile, VariantSpec
from aotc.contract.profile_terms import Precision, WantedPrecision
from aotc.engine.named_backends import backend_of
from aotc.records import record

# Weights alone in 8 bits save space, and time only where memory is what takes it: on request.
_QUICKER_FORMS: tuple[Form, ...] = ("static", "dynamic")


@record(kw_only=False)
class PrecisionForm:
    """A precision, and of int8 the form of quantization; `auto` is what the profile says."""

    precision: Precision
    form: Form = "auto"


def wanted_precision(spec: VariantSpec, profile: Profile) -> WantedPrecision:
    """What the profile asks for in one of its variants."""
    return spec.precision or profile.precision


def wants_auto(profile: Profile) -> bool:
    """Whether the precision of a variant is to be found by trials."""
    return any(wanted_precision(spec, profile) == "auto" for spec in profile.variants)


def is_auto(profile: Profile, variant: str) -> bool:
    """Whether the precision of a variant, by its name in the profile, is found by trials."""
    return any(
        spec.name == variant and wanted_precision(spec, profile) == "auto"
        for spec in profile.variants
    )


def forms_tried(
    spec: VariantSpec, providers: Sequence[str], profile: Profile, *, tune: bool
) -> tuple[PrecisionForm, ...]:
    """The forms of one variant on `providers`, the profile's own first, without duplicates.

    For `auto` they are `keep`, then those in which the first provider may be quicker, in its order,
    and what `tune.precision` lists; for other precisions that list counts only with `tune`.
    What none of the providers computes in, or not all of them run, becomes `keep`.
    Raises AOTC-P007.
    """
    wanted = wanted_precision(spec, profile)
    backends = [backend_of(name, profile.plugins) for name in providers]
    listed: list[Precision] = []
    if wanted == "auto":
        listed += ["keep", *backends[0].may_gain_by()]
    else:
        listed.append(wanted)
    if tune or wanted == "auto":
        listed += profile.tune.precision
    stated = (spec.quantization or profile.quantization).form
    found: dict[PrecisionForm, None] = {}
    for precision in listed:
        if precision in ("int8", "int4"):
            # What the profile states as the variant's own precision is built in its own form.
            own = precision == wanted or precision == "int4"
            forms = ("auto",) if own else _forms_run(precision, stated, backends)
            found.update(dict.fromkeys(PrecisionForm(precision, form) for form in forms))
        elif precision == "keep" or _computes(precision, backends):
            found[PrecisionForm(precision)] = None
        if not found:
            found[PrecisionForm("keep")] = None
    return tuple(found)


def _forms_run(precision: Precision, stated: Form, backends: Sequence[Backend]) -> tuple[Form, ...]:
    """The forms that are tried: of those that all of the providers run."""
    asked = _QUICKER_FORMS if stated == "auto" else (stated,)
    return tuple(
        form for form in asked if all(form in each.quantizes_in(precision) for each in backends)
    )


def _computes(precision: Precision, backends: Sequence[Backend]) -> bool:
    """Whether a provider computes in a precision.

    Beside others, ONNX Runtime's CPU only takes what they leave.
    """
    choosing = [each for each in backends if len(backends) == 1 or each.ort_name != CPU]
    return any(precision in each.precisions for each in choosing)
