"""Choosing by measurement: the candidates of each variant, and the fastest of those measured."""

from __future__ import annotations

import filecmp
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.pipeline.request import BuildRequest
from aotc.pipeline.types import LoweredModel, wanted_in_float32
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.spec.evidence import TuningCandidate
from aotc.spec.precision import Form, Isa, Precision, WantedPrecision
from aotc.spec.profile import Profile, VariantSpec
from aotc.spec.providers import CPU, CUDA

_Choice = TypeVar("_Choice")
# Weights alone in 8 bits save space, and time only where memory is what takes it: on request.
_QUICKER_FORMS: tuple[Form, ...] = ("static", "dynamic")


def candidates(profile: Profile, *, tune: bool = True) -> tuple[TuningCandidate, ...]:
    """All candidates, variant by variant, the profile's own choice first.

    With `tune` they are the combinations of what the profile lists under that name.  Without
    `tune.providers` the orders of providers are the variant's and its tails, such as
    `[openvino, cpu]` and `[cpu]`.  Combinations that the profile's rules forbid are left out.
    Without `tune` only variants in `precision: auto` have candidates, which differ in that alone.
    Raises AOTC-P007.
    """
    found: dict[TuningCandidate, None] = {}
    for spec in profile.variants:
        if tune or wanted_precision(spec, profile) == "auto":
            found.update(dict.fromkeys(_candidates_of(spec, profile, tune=tune)))
    return tuple(found)


def _candidates_of(spec: VariantSpec, profile: Profile, *, tune: bool) -> Iterator[TuningCandidate]:
    listed = profile.tune
    own = spec.providers or profile.providers
    orders = listed.providers or tuple(own[start:] for start in range(len(own)))
    cuda = spec.cuda or profile.cuda

    def values(stated: _Choice, others: Sequence[_Choice]) -> dict[_Choice, None]:
        return dict.fromkeys((stated, *others) if tune else (stated,))

    for providers in values(own, orders):
        choices = itertools.product(
            forms_tried(spec, providers, profile, tune=tune),
            values(spec.isa, listed.isa),
            values(spec.threads, listed.threads),
            values(spec.optimization, listed.optimization),
            values(cuda.fusion, listed.fusion),
            values(cuda.layout, listed.layout),
        )
        for form, isa, threads, optimization, fusion, layout in choices:
            # Layout is fixed only for the CPU provider alone.
            level: Isa = isa if providers == ("cpu",) else "baseline"
            yield TuningCandidate(
                variant=spec.name,
                providers=providers,
                isa=level,
                # A fixed layout needs the highest level.
                optimization=optimization if level == "baseline" else "auto",
                precision=form.precision,
                form=form.form,
                # Without effect elsewhere.
                fusion=fusion if providers[0] == CUDA else cuda.fusion,
                layout=layout if CUDA in providers else cuda.layout,
                threads=threads,
            )


def candidate_spec(tried: TuningCandidate, profile: Profile) -> VariantSpec:
    """The profile's variant with the settings of a candidate, and the nodes that it keeps."""
    spec = next(variant for variant in profile.variants if variant.name == tried.variant)
    own = spec.cuda or profile.cuda
    cuda = replace(own, fusion=tried.fusion, layout=tried.layout)
    quantization = spec.quantization or profile.quantization
    kept = wanted_in_float32(spec, profile)
    return replace(
        spec,
        cuda=spec.cuda if cuda == own else cuda,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        quantization=replace(quantization, form=tried.form)
        if tried.form not in ("auto", quantization.form)
        else spec.quantization,
        keep_float32=(*kept, *tried.keep_float32) if tried.keep_float32 else spec.keep_float32,
        threads=tried.threads,
        prepack=spec.prepack if tried.isa == spec.isa else "at-load",
    )


def has_lower_precision(tried: TuningCandidate, profile: Profile) -> bool:
    """Whether a candidate computes in a precision that is only tried, and not in `keep`."""
    spec = next(variant for variant in profile.variants if variant.name == tried.variant)
    return tried.precision not in ("keep", wanted_precision(spec, profile))


def requested_specs(request: BuildRequest, profile: Profile) -> tuple[VariantSpec, ...]:
    """The variants that will certainly be built, known before measuring: all candidates.

    Without tuning these are the profile's own; none if the choice is read from `tuned_from`.
    """
    if request.tuned_from is not None:
        return ()
    if request.tune:
        return tuple(candidate_spec(tried, profile) for tried in candidates(profile))
    return profile.variants


def stated_orders(profile: Profile) -> dict[str, tuple[str, ...]]:
    """By variant: the order of providers that the profile states, by which budgets are checked."""
    return {spec.name: spec.providers or profile.providers for spec in profile.variants}


def choose(table: Sequence[TuningCandidate]) -> tuple[TuningCandidate, ...]:
    """`table` with the fastest candidate of each variant marked; of equal ones the first.

    Where none could be timed, it is the first that passed in a lower precision, else the first.
    Raises AOTC-O006 if no candidate of a variant passed.
    """
    marked: list[TuningCandidate] = []
    for name in dict.fromkeys(row.variant for row in table):
        rows = [row for row in table if row.variant == name]
        passed = [row for row in rows if row.passed]
        if not passed:
            raise AotcError(
                "AOTC-O006",
                f"no candidate of variant {name} passed",
                found="; ".join(row.reason for row in rows if row.reason)[:2000],
                fix="See why each candidate failed; build without --tune for the full error.",
            )
        best = _best(passed)
        marked += [replace(row, chosen=row is best) for row in rows]
    return tuple(marked)


def _best(passed: Sequence[TuningCandidate]) -> TuningCandidate:
    timed = [row for row in passed if row.median_seconds is not None]
    if timed:
        return min(timed, key=lambda row: row.median_seconds or 0.0)
    return next((row for row in passed if row.precision != "keep"), passed[0])


def profile_with_choices(profile: Profile, table: Sequence[TuningCandidate]) -> Profile:
    """`profile` with each variant as chosen in `table`.

    If all chosen variants are for this CPU alone, a portable variant is added.
    Raises AOTC-O006 if the table does not match this profile's candidates.
    """
    known = set(candidates(profile))
    chosen = {row.variant: row for row in table if row.chosen}
    strange = [row for row in table if without_measurements(row) not in known]
    missing = [
        spec.name
        for spec in profile.variants
        if spec.name not in chosen
        # Trials of precisions leave alone what states its own.
        and not (wants_auto(profile) and wanted_precision(spec, profile) != "auto")
    ]
    if strange or missing:
        raise AotcError(
            "AOTC-O006",
            "the measurements do not match this profile's candidates",
            expected="; ".join(
                _candidate_text(candidate) for candidate in sorted(known, key=_candidate_text)
            ),
            found="; ".join(_candidate_text(candidate) for candidate in strange)
            or f"no choice for {', '.join(missing)}",
        )
    variants = [
        candidate_spec(chosen[spec.name], profile) if spec.name in chosen else spec
        for spec in profile.variants
    ]
    if all(variant.isa == "host" for variant in variants):
        portable = next(spec for spec in profile.variants if spec.isa == "baseline")
        variants.append(replace(portable, name=f"{portable.name}-untuned"))
    return replace(profile, variants=tuple(variants))


def _candidate_text(tried: TuningCandidate) -> str:
    threads = f"{tried.threads} threads" if tried.threads else "all threads"
    precision = tried.precision if tried.form == "auto" else f"{tried.precision} {tried.form}"
    choices = [precision, tried.isa, tried.optimization, threads]
    if CUDA in tried.providers:
        choices += [f"fusion {tried.fusion}", f"layout {tried.layout}"]
    return f"{tried.variant} on {' '.join(tried.providers)} ({', '.join(choices)})"


def without_measurements(tried: TuningCandidate) -> TuningCandidate:
    """A candidate without what its trial found."""
    return TuningCandidate(
        variant=tried.variant,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        form=tried.form,
        fusion=tried.fusion,
        layout=tried.layout,
        threads=tried.threads,
    )


# So it is with images first or last in a graph without convolutions, or with fusion where nothing
# matches. Timed apart, noise would choose between them.


def first_equals(
    lowered: Mapping[TuningCandidate, LoweredModel],
) -> dict[TuningCandidate, TuningCandidate]:
    """For each candidate the first one with the same graph, weights, session and providers."""
    found: dict[TuningCandidate, TuningCandidate] = {}
    for candidate, item in lowered.items():
        firsts = dict.fromkeys(found.values())
        found[candidate] = next(
            (first for first in firsts if _is_same(lowered[first], item)), candidate
        )
    return found


def _is_same(one: LoweredModel, other: LoweredModel) -> bool:
    stated = (one.session, one.providers, one.files, len(one.contexts))
    if stated != (other.session, other.providers, other.files, len(other.contexts)):
        return False
    pairs = [
        (one.model, other.model),
        *((one.weights / name, other.weights / name) for name in one.files),
        *zip(one.contexts, other.contexts, strict=True),
    ]
    return all(filecmp.cmp(left, right, shallow=False) for left, right in pairs)


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
