"""Trials of `--tune` and `precision: auto`: candidates are built, proven, timed and chosen."""

from __future__ import annotations

import base64
import binascii
import filecmp
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.reading import read_at_most
from aotc.base.records import record, replace
from aotc.pipeline.attempts import Settled, Steps, first_refusal, settle
from aotc.pipeline.blame import blame
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.integers import weight_settings
from aotc.pipeline.plan import accepts_run, require_providers, wanted_variants
from aotc.pipeline.request import BuildRequest
from aotc.pipeline.shown import judge_shown
from aotc.pipeline.timing import Timed, time_alternately
from aotc.pipeline.types import (
    AnalyzedModel,
    LoweredModel,
    LoweredVariants,
    ProvenModel,
    ReferenceRun,
    VariantPlan,
    wanted_in_float32,
)
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.codec import ParseError, decode
from aotc.spec.evidence import Evidence, SearchEnd, TuningCandidate
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.payload import Finding
from aotc.spec.precision import BlockSettings, Form, Isa, Precision, WantedPrecision
from aotc.spec.profile import Profile, VariantSpec
from aotc.spec.providers import CPU, CUDA
from aotc.spec.shapes import sizes_in_words
from aotc.spec.versions import is_newer

# A profile means the same on every host: a missing provider is an error, not a failed candidate.
_MISSING: Final = frozenset({"AOTC-P004", "AOTC-P007", "AOTC-P010"})
# Nor is what the user gave and cannot be used: calibration data, gates, labels, a function.
_UNUSABLE: Final = frozenset({*(f"AOTC-I07{n}" for n in range(3, 10)), "AOTC-I115", "AOTC-N027"})
# And a bug of aotc says nothing of a candidate.
RAISED: Final = _MISSING | _UNUSABLE | {"AOTC-R999"}
_NOT_TRIED: Final = "not tried: the one before it passes, and this host cannot time them"
# What is found on the fixture that fails first may be too little for others.
_ROUNDS: Final = 3
# The model is quantized already, or in another half precision.
_LEFT_AS_IT_IS: Final = frozenset({"AOTC-N011", "AOTC-N014"})
# A bundle consists of a few fields around one text.
_MAX_VALUES = 10_000
_KIND: Final = KINDS["evidence"]
_Choice = TypeVar("_Choice")
_FORMS: Final[Mapping[Precision, tuple[Form, ...]]] = {
    "int8": ("static", "dynamic", "mixed", "weights"),
    "int4": ("mixed", "weights"),
}
# Where other settings are combined with them.
_TUNED: Final[Mapping[Precision, tuple[Form, ...]]] = {"int8": ("static", "dynamic"), "int4": ()}


@record
class Choice:
    """The context with the variants that were chosen, and the table of what was measured.

    `measured_on` is the sha256 of the measured model, if another build measured it, and `lowered`
    what this one lowered of all variants.
    """

    context: BuildContext
    table: tuple[TuningCandidate, ...] = ()
    measured_on: str = ""
    lowered: LoweredVariants | None = None


def choose_by_trials(analyzed: AnalyzedModel, state: BuildState) -> Steps[Choice]:
    """Choose among the profile's candidates.

    Raises AOTC-O006 if no candidate passes, and P004 and P007 if a chosen provider is missing.
    """
    context = state.context
    table = yield from try_candidates(analyzed, state.asking(with_stated_orders(context)))
    return choice_of(context, table)


def with_stated_orders(context: BuildContext) -> BuildContext:
    """`context` for trials, whose budgets are judged by the orders that the profile states."""
    return replace(context, budget_orders=stated_orders(context.profile))


def choose_as_before(evidence: Path, context: BuildContext) -> Choice:
    """The choice of an earlier build, by its `evidence` or its artifact.

    Raises AOTC-O006 if it does not fit, and P004 and P007 if a chosen provider is missing.
    """
    measured, measured_on = read_tuning(evidence)
    return choice_of(context, choose(measured), measured_on)


def choice_of(
    context: BuildContext, table: tuple[TuningCandidate, ...], measured_on: str = ""
) -> Choice:
    """The context with what `table` marks as chosen; raises AOTC-O006, P004 and P007."""
    profile = profile_with_choices(context.profile, table)
    chosen = replace(context, profile=profile, budget_orders=stated_orders(context.profile))
    require_providers(profile.variants, chosen)
    return Choice(context=chosen, table=table, measured_on=measured_on)


def precision_findings(evidence: Evidence, profile: Profile) -> Iterator[Finding]:
    """What `auto` came to in each variant: AOTC-O019, N035, N036 and N076.

    `profile` is as it was asked for.
    """
    for row in evidence.tuning:
        if not row.chosen or not is_auto(profile, row.variant):
            continue
        where = f"variant {row.variant}"
        others = [
            each
            for each in evidence.tuning
            if each.variant == row.variant and each.precision != "keep"
        ]
        if row.precision == "keep":
            yield Finding(code="AOTC-O019", what=_why_kept(others)[:1000], where=where)
            goal = next(spec.goal for spec in profile.variants if spec.name == row.variant)
            if (goal := goal or profile.goal) != "speed":
                what = f"goal: {goal} is not met: no form that passes is smaller than keep"
                yield Finding(code="AOTC-N076", what=what, where=where)
        elif row.median_seconds is None:
            yield Finding(
                code="AOTC-N035",
                what=f"{_form_text(row)} is the first of those that pass, in the order in which "
                "they are tried: this host could not time them",
                where=where,
            )
        if row.keep_float32:
            nodes = f"{len(row.keep_float32)} node{'s' * (len(row.keep_float32) > 1)}"
            by_time = " (the search ended at its time limit; a faster host may keep fewer)"
            ended = by_time if row.search_ended == "time" else ""
            names = ", ".join(row.keep_float32)
            what = f"{_form_text(row)} passes with {nodes} in float32{ended}: {names}"
            yield Finding(
                code="AOTC-N036",
                what=what[:1000],
                where=where,
            )


def _why_kept(others: list[TuningCandidate]) -> str:
    if not others:
        return "the model's own precision is kept: its first provider has no faster one"
    said = (
        f"{_form_text(row)} {'is not faster' if row.passed else f'is not taken: {row.reason}'}"
        for row in others
    )
    return f"the model's own precision is kept; {'; '.join(said)}"


def _form_text(row: TuningCandidate) -> str:
    words = [row.precision, *([] if row.form == "auto" else [row.form])]
    return " ".join([*words, *([row.blocks.in_words()] if row.blocks else [])])


def try_candidates(
    analyzed: AnalyzedModel,
    state: BuildState,
    *,
    tune: bool = True,
) -> Steps[tuple[TuningCandidate, ...]]:
    """Prove and time every candidate; one that fails is excluded.

    Without `tune` only the forms of `precision: auto` are tried; those that this host cannot run
    are proven as the profile allows, and not timed.  Raises AOTC-O006 if none is left, and what
    says nothing of a candidate: a missing provider, data that cannot be used, R999.
    """
    context, clock = state.context, state.clock
    reference = next(
        (run for run in analyzed.references if run.name == "opt"), analyzed.references[0]
    )
    table: list[TuningCandidate] = []
    proven: dict[str, dict[TuningCandidate, ProvenModel]] = {}
    asked = candidates(context.profile, tune=tune)
    taken: set[str] = set()
    for index, tried in enumerate(asked):
        if tried.variant in taken:
            table.append(replace(tried, reason=_NOT_TRIED))
            continue
        with clock.stage("tune", title_of(tried, tune=tune)):
            clock.reporter.count(index, len(asked), "candidates")
            own = replace(context, profile=trial_profile(tried, context.profile, tune=tune))
            trial = state.trial(f"tune-{index}", own)
            try:
                made = yield from _candidate(analyzed, tried, reference, context.profile, trial)
                state.blames.update(trial.blames)
                found = replace(
                    tried,
                    keep_float32=made.kept,
                    trials=trials_of(trial),
                    search_ended=ended_by(trial),
                )
                proven.setdefault(tried.variant, {})[found] = made.proven
                if tried.precision != "keep" and made.proven.parity.status == "not-run":
                    taken.add(tried.variant)
            except AotcError as error:
                if error.code in RAISED:
                    raise
                table.append(
                    replace(
                        tried,
                        trials=trials_of(trial),
                        search_ended=ended_by(trial),
                        reason=error.line()[:500],
                    )
                )
    for by_candidate in proven.values():
        with clock.stage("tune", "timing"):
            table += measure(by_candidate, reference, state)
    order = {candidate: index for index, candidate in enumerate(asked)}
    table.sort(key=lambda row: order[without_measurements(row)])
    return choose(table)


def trials_of(state: BuildState) -> int:
    """How many sessions were run to find what a candidate must keep, in all its searches."""
    return sum(found.trials for found in state.blames.values() if found is not None)


def ended_by(state: BuildState) -> SearchEnd:
    """By what its searches ended: by time, if one did."""
    ends = {found.search_ended for found in state.blames.values() if found is not None}
    if "time" in ends:
        return "time"
    return "trials" if "trials" in ends else "complete"


def title_of(tried: TuningCandidate, *, tune: bool) -> str:
    """A candidate in progress, by what differs between candidates."""
    providers = f" on {' '.join(tried.providers)}" if tune else ""
    precision = f" in {_form_text(tried)}" if not tune or tried.precision != "keep" else ""
    forms = [
        f", {name} {value}"
        for name, value in (("fusion", tried.fusion), ("layout", tried.layout))
        if value != "auto"
    ]
    return f"{tried.variant}{providers}{precision}{''.join(forms)}"


def trial_profile(tried: TuningCandidate, profile: Profile, *, tune: bool) -> Profile:
    """`profile` with nothing but one candidate of it."""
    spec = candidate_spec(tried, profile)
    if is_auto(profile, tried.variant):
        # A quicker companion is what hosts like this one would take.
        trial = replace(profile, variants=(spec,))
    else:
        trial = replace(profile, variants=(spec,), max_variants=1)
    # A candidate that this host cannot run cannot be timed.
    return replace(trial, unproven="refuse") if tune else trial


def _candidate(
    analyzed: AnalyzedModel,
    tried: TuningCandidate,
    reference: ReferenceRun,
    whole: Profile,
    state: BuildState,
) -> Steps[Passed]:
    """One candidate through all stages, in its own folder, at the sizes that are timed.

    `whole` is the build's profile, that of `context` the candidate's.  What `auto` tries is run at
    all sizes, as all must pass in it.
    """
    plans, _ = wanted_variants(analyzed.ranges, state.context)
    if not plans:
        raise AotcError("AOTC-N002", "this host is not the target")
    plan = next(
        (planned for planned in plans if accepts_run(analyzed, planned, reference)), plans[0]
    )
    if shown := judge_shown(analyzed, plan, state.context.places).breaches:
        # Whatever it answers: nothing of it would be proven.
        raise shown[0]
    if is_auto(whole, tried.variant) and tried.precision != "keep":
        others = [planned for planned in plans if planned is not plan]
        return (yield from passing_form([plan, *others], state))
    settled = yield from settle([plan], state)
    refusal = settled.forms[plan.name].first
    if refusal and refusal.code == "AOTC-N001" and has_lower_precision(tried, whole):
        # The forms that pass instead leave what is inexact to other providers.
        raise refusal
    made = settled.variants
    for item, error in made.failed:
        raise first_refusal(settled.forms, error, item.plan, measured=True)
    for failed, error in made.refused:
        raise first_refusal(settled.forms, error, failed)
    if not made.proven:
        raise AotcError("AOTC-P002", "the fallback policy leaves this candidate out")
    return Passed(proven=made.proven[0])


def measure(
    proven: Mapping[TuningCandidate, ProvenModel],
    reference: ReferenceRun,
    state: BuildState,
) -> tuple[TuningCandidate, ...]:
    """Median seconds of the candidates of one variant, run alternately on one fixture.

    Candidates that are the same have the time of the first; one whose captured graph is refused
    did not pass.  What was not proven by running it here has no time.
    """
    here = {candidate: item for candidate, item in proven.items() if item.parity.status == "passed"}
    firsts = first_equals({candidate: item.lowered for candidate, item in here.items()})
    tried = list(dict.fromkeys(firsts.values()))
    rounds = state.context.profile.tune.rounds
    timed: dict[TuningCandidate, Timed] = {}
    if tried:
        found, _ = time_alternately(
            [here[candidate].lowered for candidate in tried],
            reference,
            state,
            rounds=rounds,
            folder=state.work / f"measure-{tried[0].variant}",
            where=f"variant {tried[0].variant}",
        )
        timed = dict(zip(tried, found, strict=True))
    sizes = sizes_in_words(reference.sizes)
    return tuple(
        _row(candidate, timed[firsts[candidate]], rounds, sizes)
        if candidate in here
        else replace(candidate, passed=True)
        for candidate in proven
    )


def _row(candidate: TuningCandidate, timed: Timed, rounds: int, sizes: str) -> TuningCandidate:
    if isinstance(timed, AotcError):
        if timed.code in RAISED:
            raise timed
        return replace(candidate, reason=timed.line()[:500])
    median, least = timed
    return replace(
        candidate,
        passed=True,
        median_seconds=median,
        minimum_seconds=least,
        rounds=rounds,
        sizes=sizes,
    )


# One trial of `precision: auto`: a form as it is, and again with the nodes that it must keep.


@record
class Passed:
    """A form whose variants passed, with the nodes kept for that.

    `proven` is the first plan's, or its faster companion.
    """

    proven: ProvenModel
    kept: tuple[str, ...] = ()


def passing_form(
    plans: Sequence[VariantPlan],
    state: BuildState,
    lowered: LoweredVariants | None = None,
    *,
    others: bool = True,
) -> Steps[Passed]:
    """Run one lower precision; where it breaches its gates, with ever more nodes in float32.

    `lowered` are the variants if they were lowered before; with `others`, other forms of the graph
    are tried at last.  Raises the last refusal where it does not pass, and where the model does not
    change in it.
    """
    kept: tuple[str, ...] = ()
    for number in range(_ROUNDS):
        at_round = state.below(f"kept-{number}")
        asked = [replace(p, keep_float32=(*p.keep_float32, *kept)) for p in plans]
        settled = yield from settle(
            asked, at_round, others=False, lowered=lowered if number == 0 else None
        )
        failure = _failure(settled)
        if failure is None:
            return Passed(proven=_timed(settled, plans[0]), kept=kept)
        failed, error = failure
        found = blame(failed, error, at_round) if failed is not None else None
        if found is None:
            break
        more = [name for name in found.keep_float32 if name not in kept]
        # With all of them it is no lower precision.
        if not more or len(found.keep_float32) == found.candidates:
            break
        kept = (*kept, *more)
    if not others:
        assert failure is not None
        raise failure[1]
    # Whatever fails, another form of the graph may pass.
    settled = yield from settle(plans, state.below("other-forms"))
    failure = _failure(settled)
    if failure is not None:
        raise first_refusal(settled.forms, failure[1])
    return Passed(proven=_timed(settled, plans[0]))


def _failure(settled: Settled) -> tuple[LoweredModel | None, AotcError] | None:
    """The first variant that failed, with its refusal; None if all passed.

    Raises AOTC-P002 if the fallback policy leaves one out.
    """
    made = settled.variants
    for item, error in made.failed:
        return item, error
    for _, error in made.refused:
        return None, error
    if made.left_out:
        raise AotcError("AOTC-P002", "the fallback policy leaves this candidate out")
    return None


def _timed(settled: Settled, plan: VariantPlan) -> ProvenModel:
    """The variant that takes calls on this host: the faster companion, if there is one."""
    proven = settled.variants.proven
    own = next(item for item in proven if item.plan.name == plan.name)
    require_lowered(own.plan, plan, settled.variants.findings)
    return next(
        (
            item
            for item in proven
            if item.plan.isa == "vnni"
            and item.plan.buckets == plan.buckets
            and item.parity.status == "passed"
        ),
        own,
    )


def require_lowered(made: VariantPlan, asked: VariantPlan, findings: Sequence[Finding]) -> None:
    """Raise AOTC-N008 if the model is left as it is in the precision that was asked for."""
    if made.precision != asked.precision:
        why = next((each for each in findings if each.code in _LEFT_AS_IT_IS), None)
        text = why.what if why else f"the model is left unchanged in {asked.precision}"
        raise AotcError("AOTC-N008", text, where="precision")


# The measurements in the evidence of an earlier build, whose choice is repeated.


def read_tuning(path: Path) -> tuple[tuple[TuningCandidate, ...], str]:
    """The tuning table of an artifact's folder or evidence attestation, and its model's sha256.

    No signature is required: the table only chooses among candidates of the user's own profile,
    and each of them is proven again.  Raises AOTC-I001, I046, and O006 if there is no table.
    """
    file = path / _KIND.path if path.is_dir() else path
    try:
        data = read_at_most(file, MAX_JSON_BYTES)
        bundle = strict_json(data, values=_MAX_VALUES)
        statement = strict_json(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
        if is_newer(statement["predicateType"], _KIND.predicate_type):
            raise AotcError(
                "AOTC-I046",
                "the evidence was made by a newer aotc",
                where=str(file),
                expected=_KIND.predicate_type,
                found=statement["predicateType"],
            )
        evidence = decode(Evidence, statement["predicate"], allow_unknown=True)
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"the evidence cannot be read: {error.strerror}", where=str(file)
        ) from None
    except (ParseError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise AotcError(
            "AOTC-O006",
            "this is not the evidence of a build",
            where=str(file),
            found=str(error)[:300],
        ) from None
    if not evidence.tuning:
        raise AotcError("AOTC-O006", "the evidence is of a build without --tune", where=str(file))
    return evidence.tuning, evidence.tuned_model_sha256 or "unknown"


def tuning_findings(evidence: Evidence) -> Iterator[Finding]:
    """AOTC-O007 if the measured model is not the model that was built."""
    if evidence.tuning and evidence.tuned_model_sha256 != evidence.model_sha256:
        yield Finding(
            code="AOTC-O007",
            what=f"model {evidence.tuned_model_sha256[:16]} was measured, and this is model "
            f"{evidence.model_sha256[:16]}",
        )


# The candidates of each variant, and the fastest of those measured.


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
                blocks=form.blocks,
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
    stated = spec.quantization or profile.quantization
    quantization = stated if tried.form == "auto" else replace(stated, form=tried.form)
    if (blocks := tried.blocks) is not None:
        quantization = replace(
            quantization,
            block_size=blocks.block_size,
            symmetric=blocks.symmetric,
            accuracy_level=blocks.accuracy_level,
        )
    kept = wanted_in_float32(spec, profile)
    return replace(
        spec,
        cuda=spec.cuda if cuda == own else cuda,
        providers=tried.providers,
        isa=tried.isa,
        optimization=tried.optimization,
        precision=tried.precision,
        quantization=spec.quantization if quantization == stated else quantization,
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
    known = {*candidates(profile), *candidates(profile, tune=False)}
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
    choices = [_form_text(tried), tried.isa, tried.optimization, threads]
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
        blocks=tried.blocks,
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
    """A precision, and the form of quantization; `auto` is what the profile says."""

    precision: Precision
    form: Form = "auto"
    blocks: BlockSettings | None = None


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
    float16 where the goal is not speed, and what `tune.precision` lists; for other precisions that
    list counts only with `tune`.
    What none of the providers computes in, or not all of them run, becomes `keep`.
    Raises AOTC-P007.
    """
    wanted = wanted_precision(spec, profile)
    backends = [backend_of(name, profile.plugins) for name in providers]
    listed: list[Precision] = []
    if wanted == "auto":
        listed += ["keep", *backends[0].may_gain_by()]
        if (spec.goal or profile.goal) != "speed":
            # Where it is storage alone, it halves the weights.
            listed.append("float16")
    else:
        listed.append(wanted)
    if tune or wanted == "auto":
        listed += profile.tune.precision
    stated = (spec.quantization or profile.quantization).form
    found: dict[PrecisionForm, None] = {}
    for precision in listed:
        if precision in ("int8", "int4"):
            # What the profile states as the variant's own precision is built in its own form.
            tried = _TUNED if tune or wanted != "auto" else _FORMS
            listed_int4 = precision == "int4" and precision in profile.tune.precision
            own = precision == wanted or (listed_int4 and tried is _TUNED)
            asked = tried[precision] if stated == "auto" else (stated,)
            forms = ("auto",) if own else _forms_run(precision, asked, backends)
            for form in forms:
                if form == "weights" and tried is _FORMS:
                    quantization = spec.quantization or profile.quantization
                    blocks = weight_settings(precision, quantization, providers)
                    found.update(dict.fromkeys(PrecisionForm(precision, form, b) for b in blocks))
                else:
                    found[PrecisionForm(precision, form)] = None
        elif precision == "keep" or _computes(precision, backends):
            found[PrecisionForm(precision)] = None
        if not found:
            found[PrecisionForm("keep")] = None
    return tuple(found)


def _forms_run(
    precision: Precision, asked: Sequence[Form], backends: Sequence[Backend]
) -> tuple[Form, ...]:
    """Those of the forms that all of the providers run."""
    return tuple(
        form for form in asked if all(form in each.quantizes_in(precision) for each in backends)
    )


def _computes(precision: Precision, backends: Sequence[Backend]) -> bool:
    """Whether a provider computes in a precision.

    Beside others, ONNX Runtime's CPU only takes what they leave.
    """
    choosing = [each for each in backends if len(backends) == 1 or each.ort_name != CPU]
    return any(precision in each.precisions for each in choosing)
