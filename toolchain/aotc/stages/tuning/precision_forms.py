"""The precisions that a variant is tried in, each in the forms of quantization that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    A precision that none of the providers has becomes `keep`.  Raises AOTC-P007.
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
        known = any(precision in backend.precisions for backend in backends)
        tried = precision if known else "keep"
        # What the profile states as the variant's own precision is built in the form it states.
        own = precision == wanted
        for form in (stated,) if own else _forms(tried, stated):
            found[PrecisionForm(tried, form if tried == "int8" else "auto")] = None
    return tuple(found)


def _forms(precision: Precision, stated: Form) -> Iterator[Form]:
    if precision == "int8" and stated == "auto":
        yield from _QUICKER_FORMS
    else:
        yield stated
