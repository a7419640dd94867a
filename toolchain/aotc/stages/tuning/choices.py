"""Choosing by measurement: the candidates of each variant, and the fastest of those measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from aotc.contract.known_providers import CUDA
from aotc.contract.profile import Profile, VariantSpec
from aotc.contract.profile_terms import Isa
from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.planning.request import BuildRequest


def candidates(profile: Profile) -> tuple[TuningCandidate, ...]:
    """All candidates, variant by variant, the profile's own choice first.

    Without `tune.providers` the orders of providers are the variant's and its tails, such as
    `[openvino, cpu]` and `[cpu]`.  Combinations that the profile's rules forbid are left out.
    """
    found: dict[TuningCandidate, None] = {}
    tune = profile.tune
    for spec in profile.variants:
        own = spec.providers or profile.providers
        orders = tune.providers or tuple(own[start:] for start in range(len(own)))
        precision = spec.precision or profile.precision
        cuda = spec.cuda or profile.cuda
        choices = itertools.product(
            dict.fromkeys((own, *orders)),
            dict.fromkeys((precision, *tune.precision)),
            dict.fromkeys((spec.isa, *tune.isa)),
            dict.fromkeys((spec.threads, *tune.threads)),
            dict.fromkeys((spec.optimization, *tune.optimization)),
            dict.fromkeys((cuda.fusion, *tune.fusion)),
            dict.fromkeys((cuda.layout, *tune.layout)),
        )
        for providers, kept_precision, isa, threads, optimization, fusion, layout in choices:
            # The CPU provider alone computes in the model's own types.
            if providers == ("cpu",) and kept_precision != "keep":
                kept_precision = "keep"
            # Layout is fixed only for the CPU provider alone.
            level: Isa = isa if providers == ("cpu",) else "baseline"
            found[
                TuningCandidate(
                    variant=spec.name,
                    providers=providers,
                    isa=level,
                    # A fixed layout needs the highest level.
                    optimization=optimization if level == "baseline" else "auto",
                    precision=kept_precision,
                    # Without effect elsewhere.
                    fusion=fusion if providers[0] == CUDA else cuda.fusion,
                    layout=layout if CUDA in providers else cuda.layout,
                    threads=threads,
                )
            ] = None
    return tuple(found)


def candidate_spec(tried: TuningCandidate, profile: Profile) -> VariantSpec:
    """The profile's variant with the settings of a candidate."""
    spec = next(variant for variant in profile.variants if variant.name == tried.variant)
    own = spec.cuda or profile.cuda
    cuda = replace(own, fusion=tried.fusion, layout=tried.layout)
    return replace(
        spec,
        cuda=spec.cuda if cuda == own else cuda,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        threads=tried.threads,
        prepack=spec.prepack if tried.isa == spec.isa else "at-load",
    )


def has_lower_precision(tried: TuningCandidate, profile: Profile) -> bool:
    """Whether a candidate computes in a precision that only `tune` lists, and not in `keep`."""
    spec = next(variant for variant in profile.variants if variant.name == tried.variant)
    return tried.precision not in ("keep", spec.precision or profile.precision)


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

    Raises AOTC-O006 if no candidate of a variant passed.
    """
    marked: list[TuningCandidate] = []
    for name in dict.fromkeys(row.variant for row in table):
        rows = [row for row in table if row.variant == name]
        timed = [row for row in rows if row.passed and row.median_seconds is not None]
        if not timed:
            raise AotcError(
                "AOTC-O006",
                f"no candidate of variant {name} passed",
                found="; ".join(row.reason for row in rows if row.reason)[:2000],
                fix="See why each candidate failed; build without --tune for the full error.",
            )
        best = min(timed, key=lambda row: row.median_seconds or 0.0)
        marked += [replace(row, chosen=row is best) for row in rows]
    return tuple(marked)


def profile_with_choices(profile: Profile, table: Sequence[TuningCandidate]) -> Profile:
    """`profile` with each variant as chosen in `table`.

    If all chosen variants are for this CPU alone, a portable variant is added.
    Raises AOTC-O006 if the table does not match this profile's candidates.
    """
    known = set(candidates(profile))
    chosen = {row.variant: row for row in table if row.chosen}
    strange = [row for row in table if without_measurements(row) not in known]
    missing = [spec.name for spec in profile.variants if spec.name not in chosen]
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
    variants: list[VariantSpec] = []
    for spec in profile.variants:
        variants.append(candidate_spec(chosen[spec.name], profile))
    if all(variant.isa == "host" for variant in variants):
        portable = next(spec for spec in profile.variants if spec.isa == "baseline")
        variants.append(replace(portable, name=f"{portable.name}-untuned"))
    return replace(profile, variants=tuple(variants))


def _candidate_text(tried: TuningCandidate) -> str:
    threads = f"{tried.threads} threads" if tried.threads else "all threads"
    choices = [tried.precision, tried.isa, tried.optimization, threads]
    if CUDA in tried.providers:
        choices += [f"fusion {tried.fusion}", f"layout {tried.layout}"]
    return f"{tried.variant} on {' '.join(tried.providers)} ({', '.join(choices)})"


def without_measurements(tried: TuningCandidate) -> TuningCandidate:
    """A candidate without its measurements."""
    return TuningCandidate(
        variant=tried.variant,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        fusion=tried.fusion,
        layout=tried.layout,
        threads=tried.threads,
    )
