"""Choosing by measurement: candidates of each variant, proven, run in turn, the quickest taken."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from aotc.contract.profile import Profile, VariantSpec
from aotc.contract.profile_terms import Isa
from aotc.contract.results.tuning import TuningCandidate
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.planning.request import BuildRequest


def candidates(profile: Profile) -> tuple[TuningCandidate, ...]:
    """All that is tried, variant by variant, the profile's own choice first.

    Without `tune.providers` these are the variant's order of providers and its ends, such as
    `[openvino, cpu]` and `[cpu]`.  Combinations that the profile's rules forbid are left out.
    """
    found: dict[TuningCandidate, None] = {}
    tune = profile.tune
    for spec in profile.variants:
        own = spec.providers or profile.providers
        orders = tune.providers or tuple(own[start:] for start in range(len(own)))
        precision = spec.precision or profile.precision
        choices = itertools.product(
            dict.fromkeys((own, *orders)),
            dict.fromkeys((precision, *tune.precision)),
            dict.fromkeys((spec.isa, *tune.isa)),
            dict.fromkeys((spec.threads, *tune.threads)),
            dict.fromkeys((spec.optimization, *tune.optimization)),
        )
        for providers, each, isa, threads, optimization in choices:
            # The CPU provider alone computes in the model's own types.
            if providers == ("cpu",) and each != "keep":
                each = "keep"
            # Layout is baked in for the CPU provider alone.
            level: Isa = isa if providers == ("cpu",) else "baseline"
            found[
                TuningCandidate(
                    variant=spec.name,
                    providers=providers,
                    isa=level,
                    # A layout that is baked in needs the highest level.
                    optimization=optimization if level == "baseline" else "auto",
                    precision=each,
                    threads=threads,
                )
            ] = None
    return tuple(found)


def spec_as(tried: TuningCandidate, profile: Profile) -> VariantSpec:
    """The profile's variant as a candidate would have it."""
    spec = next(each for each in profile.variants if each.name == tried.variant)
    return replace(
        spec,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        threads=tried.threads,
        prepack=spec.prepack if tried.isa == spec.isa else "at-load",
    )


def asked_specs(request: BuildRequest, profile: Profile) -> tuple[VariantSpec, ...]:
    """The variants that will be built for sure, before anything is measured: all candidates.

    Without tuning these are the profile's own; none where the choice is read from elsewhere.
    """
    if request.tuned_from is not None:
        return ()
    if request.tune:
        return tuple(spec_as(tried, profile) for tried in candidates(profile))
    return profile.variants


def stated_orders(profile: Profile) -> dict[str, tuple[str, ...]]:
    """Order of providers of each variant as the profile states it, by which budgets are judged."""
    return {spec.name: spec.providers or profile.providers for spec in profile.variants}


def choose(table: Sequence[TuningCandidate]) -> tuple[TuningCandidate, ...]:
    """`table` with the quickest of each variant marked; equal ones: the first.

    Raises AOTC-O006 where none of a variant's candidates passed.
    """
    marked: list[TuningCandidate] = []
    for name in dict.fromkeys(each.variant for each in table):
        rows = [each for each in table if each.variant == name]
        timed = [each for each in rows if each.passed and each.median_seconds is not None]
        if not timed:
            raise AotcError(
                "AOTC-O006",
                f"no candidate of variant {name} passed",
                found="; ".join(each.reason for each in rows if each.reason)[:2000],
                fix="See what each of them failed on; build without --tune to see it in full.",
            )
        best = min(timed, key=lambda each: each.median_seconds or 0.0)
        marked += [replace(each, chosen=each is best) for each in rows]
    return tuple(marked)


def resolved(profile: Profile, table: Sequence[TuningCandidate]) -> Profile:
    """`profile` with each variant as chosen in `table`.

    A portable variant stays beside one that was chosen for this CPU alone.
    Raises AOTC-O006 where the table is not of this profile's candidates.
    """
    known = set(candidates(profile))
    chosen = {each.variant: each for each in table if each.chosen}
    strange = [each for each in table if bare(each) not in known]
    missing = [spec.name for spec in profile.variants if spec.name not in chosen]
    if strange or missing:
        raise AotcError(
            "AOTC-O006",
            "the measurements are not of this profile's candidates",
            expected="; ".join(_words(each) for each in sorted(known, key=_words)),
            found="; ".join(_words(each) for each in strange)
            or f"no choice for {', '.join(missing)}",
        )
    variants: list[VariantSpec] = []
    for spec in profile.variants:
        variants.append(spec_as(chosen[spec.name], profile))
    if all(each.isa == "host" for each in variants):
        portable = next(spec for spec in profile.variants if spec.isa == "baseline")
        variants.append(replace(portable, name=f"{portable.name}-untuned"))
    return replace(profile, variants=tuple(variants))


def _words(tried: TuningCandidate) -> str:
    threads = f"{tried.threads} threads" if tried.threads else "all threads"
    choices = (tried.precision, tried.isa, tried.optimization, threads)
    return f"{tried.variant} on {' '.join(tried.providers)} ({', '.join(choices)})"


def bare(tried: TuningCandidate) -> TuningCandidate:
    """A candidate without what was measured of it."""
    return TuningCandidate(
        variant=tried.variant,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        threads=tried.threads,
    )
