"""The gates of one variant: limits of outputs, expected answers in float64, equal calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.graph import values
from aotc.graph.partition.budgets import Judged
from aotc.graph.values import Data
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.lower import not_capturable, open_variant, variant_request
from aotc.pipeline.margins import differing_text
from aotc.pipeline.types import LoweredModel, ReferenceRun, SourceModel
from aotc.providers.named_backends import backend_of
from aotc.runtime.value_files import resize
from aotc.session.device.capture_trial import (
    Case,
    Step,
    planned_steps,
    step_in_words,
    what_is_wrong,
)
from aotc.session.limits import FORM, JudgedLimit, judged_limits
from aotc.session.parity import SLICE, TOLERANCE, RepeatedAnswers, slice_reason
from aotc.session.slices import SliceLimits
from aotc.session.worker import steps_of
from aotc.spec.buckets import largest_first
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import (
    Comparison,
    DifferingOutput,
    Evidence,
    OutputError,
    OutputNoise,
    Repeats,
    SliceError,
    VariantEvidence,
)
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import Arithmetic, GateSpec, OutputGate, Tolerance
from aotc.spec.profile import Budgets
from aotc.spec.providers import CPU
from aotc.spec.run_report import Gate, Journal, Measurement, headline_measurements
from aotc.spec.shapes import sizes_in_words
from aotc.spec.variant import GraphCapture, SessionSpec
from aotc.spec.yaml import DocumentPlaces

_UNITS = {"min_sqnr_db": ("SQNR", "dB"), "min_agreement": ("agreement", "")}
_WORDS = {"AOTC-N020": "breaches a limit of its gate", "AOTC-N021": "cannot be judged by its gate"}
# A call that takes longer is not repeated if a fixture has quicker ones.
_LONG_SECONDS: Final = 1.0
# To find the setting: a rare difference must not be taken for none.
_MIN_TRIALS: Final = 10
_MAX_NAMED: Final = 3
Call = Callable[[], list[Data]]
# Bounds of an error, in the words of a breach.
_LIMIT: Final = (
    "error <= {atol:g} + {rtol:g} * max|reference|, cosine >= {cosine:g}, rms error of every slice "
    "<= {share:g} * its scale"
)


def output_gates(source: SourceModel, context: BuildContext) -> dict[str, OutputGate]:
    """The gates of outputs, by output."""
    stated = context.profile.gates
    found = ((value.name, stated.of_output(value.name)) for value in source.outputs)
    return {name: gate for name, gate in found if gate is not None}


def judge_outputs(
    comparisons: Sequence[Comparison], where: str, stated: GateSpec, places: DocumentPlaces
) -> Judged:
    """A gate for each limit of each output; AOTC-N020 for a limit that is breached, with the worst.

    AOTC-N021 for a limit of which nothing can be said: where no comparison measures it, or the
    original answers with NaN and infinity alone.  What cannot be compared breaches parity.
    """
    gates, breaches = [], []
    for name, found in _by_output(comparisons):
        gate = stated.of_output(name)
        if gate is None:
            continue
        for limit, _ in [(key, value) for key, value in gate.limits() if value is not None]:
            judged = [(fixture, _limit(error, gate, limit)) for fixture, error in found]
            compared = [
                (fixture, each)
                for (fixture, each), (_, error) in zip(judged, found, strict=True)
                if FORM not in error.breached
            ]
            if not compared:
                continue
            setting = f"gates.outputs.{stated.key_of(name)}.{limit}"
            place = places.of(setting)
            fixture, worst, code = _worst(compared)
            failed = sum(not each.passed for _, each in compared)
            gates.append(
                Gate(
                    name=setting,
                    subject=f"{where}, output {name!r}",
                    status="failed" if code else "passed",
                    limit=worst.limit,
                    measured=worst.found,
                    place=place,
                )
            )
            if code:
                some = f", in {failed} of {len(compared)} fixtures" if failed > 1 else ""
                breaches.append(
                    AotcError(
                        code,
                        f"output {name!r} {_WORDS[code]}{some}",
                        where=f"{where}, fixture {fixture}",
                        expected=worst.limit,
                        found=worst.found,
                        place=place,
                    )
                )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def unjudged_findings(
    source: SourceModel, references: Sequence[ReferenceRun], context: BuildContext
) -> tuple[Finding, ...]:
    """AOTC-N022 for each answer of the original with NaN or infinity, of an output with a gate."""
    gates = output_gates(source, context)
    return tuple(
        Finding(
            code="AOTC-N022",
            what=f"output {name!r} has NaN or infinity, and its gate judges the other values",
            where=reference.name,
        )
        for reference in references
        if not reference.finite
        for name, path in reference.outputs.items()
        if name in gates and not values.is_finite(values.load(path))
    )


def output_figures(
    comparisons: Sequence[Comparison], where: str, stated: GateSpec
) -> tuple[Measurement, ...]:
    """The lowest SQNR and agreement of each output with a gate, as far as they were measured."""
    measurements = []
    for name, found in _by_output(comparisons):
        if stated.of_output(name) is None:
            continue
        measured = {
            "min_sqnr_db": [error.sqnr_db for _, error in found if error.sqnr_db is not None],
            "min_agreement": [error.agreement for _, error in found if error.agreement is not None],
        }
        measurements += [
            Measurement(
                name=_UNITS[limit][0],
                subject=f"{where}, output {name!r}",
                value=min(numbers),
                unit=_UNITS[limit][1],
            )
            for limit, numbers in measured.items()
            if numbers
        ]
    return tuple(measurements)


def _by_output(
    comparisons: Sequence[Comparison],
) -> Iterator[tuple[str, list[tuple[str, OutputError]]]]:
    found: dict[str, list[tuple[str, OutputError]]] = {}
    for comparison in comparisons:
        for error in comparison.outputs:
            found.setdefault(error.output, []).append((comparison.fixture, error))
    yield from found.items()


def _limit(error: OutputError, gate: OutputGate, name: str) -> JudgedLimit:
    return next(limit for limit in judged_limits(error, gate) if limit.name == name)


def _worst(compared: Sequence[tuple[str, JudgedLimit]]) -> tuple[str, JudgedLimit, str]:
    """The comparison that says the worst of a limit, and the code of the breach; empty: none."""
    measured = [item for item in compared if item[1].measured is not None]
    undecided = [item for item in compared if item[1].undecided and not item[1].passed]
    failed = [item for item in measured if not item[1].passed]
    if (measured and not undecided) or failed:
        lowest = measured[0][1].name.startswith("min")
        sign = 1 if lowest else -1
        worst = min(measured, key=lambda item: sign * (item[1].measured or 0.0))
        return (*worst, "AOTC-N020" if failed else "")
    if undecided:
        return (*undecided[0], "AOTC-N021")
    # Without an error there is nothing to measure; of rows that cannot disagree nothing is known.
    unknown = [item for item in compared if item[1].undecided]
    return (*unknown[0], "AOTC-N021") if len(unknown) == len(compared) else (*compared[0], "")


# Expected answers in float64, where the profile asks, and how far float32 is from them itself.


@record
class ExactAnswers:
    """Reference runs with the answers to compare with, the noise by output, and findings."""

    references: tuple[ReferenceRun, ...]
    noise: tuple[OutputNoise, ...] = ()
    findings: tuple[Finding, ...] = ()


def exact_answers(
    source: SourceModel,
    references: Sequence[ReferenceRun],
    state: BuildState,
    kind: str = "references",
) -> ExactAnswers:
    """The references as they are, or with the answers of the model in float64.

    `kind` names the references among those of one build.
    The answers have the types of the model's outputs.  The journal gets what is below the noise.
    """
    context = state.context
    stated = context.profile.gates
    if not (references and stated.measures_noise):
        return ExactAnswers(references=tuple(references))
    model, weights = source.answering
    folder = state.work / f"float64-{kind}"
    gates = output_gates(source, context)
    value = state.workers.run(
        "aotc.sizes.float64_reference:float64_job",
        {
            "model": str(model),
            "weights": str(weights),
            "tolerances": {
                setting: encode(tolerance) for setting, tolerance in _tolerances(source, context)
            },
            "gates": {name: encode(gate) for name, gate in gates.items()},
            "keys": {name: stated.key_of(name) for name in gates},
            "references": [
                {
                    "inputs": reference.input_paths,
                    "outputs": reference.output_paths,
                }
                for reference in references
            ],
        },
        folder=folder,
        where=f"{source.path.name} in float64",
    ).value
    noise = tuple(decode(OutputNoise, item) for item in value["noise"])
    state.journal.noticed(noise_findings(noise))
    answered = references
    if stated.against == "float64" and value["outputs"]:
        answered = [
            replace(reference, outputs={name: folder / path for name, path in files.items()})
            for reference, files in zip(references, value["outputs"], strict=True)
        ]
    return ExactAnswers(
        references=tuple(answered),
        noise=noise,
        findings=tuple(decode(Finding, item) for item in value["findings"]),
    )


def add_second_answers(
    source: SourceModel, references: Sequence[ReferenceRun], state: BuildState
) -> bool:
    """Have the original answer `references` in another way; whether there were any to answer.

    How far the answers are apart is the original's own noise, below which no variant is judged.
    """
    missing = [each for each in references if each.first_output not in state.seconds]
    if not missing:
        return False
    model, weights = source.answering
    folder = state.work / f"second-{len(state.seconds)}"
    answers = state.workers.run(
        "aotc.sizes.float64_reference:second_job",
        {
            "model": str(model),
            "weights": str(weights),
            "exact": state.context.profile.gates.against == "float64",
            "references": [
                {"inputs": each.input_paths, "outputs": each.output_paths} for each in missing
            ],
        },
        folder=folder,
        where=f"{source.path.name}, computed otherwise",
    ).value
    for each, files in zip(missing, answers, strict=True):
        state.seconds[each.first_output] = {name: folder / path for name, path in files.items()}
    return True


def noise_findings(noise: Sequence[OutputNoise]) -> tuple[Finding, ...]:
    """AOTC-N023 for each output whose tolerance or limit is below the original's own noise.

    Its numbers differ between hosts, so that no payload contains it.
    """
    return tuple(
        Finding(
            code="AOTC-N023",
            what=f"the original's own noise in float32 is {_text(item)}; "
            f"below it: {'; '.join(item.breached)}"[:1000],
            where=f"output {item.output}",
        )
        for item in noise
        if item.breached
    )


def _text(noise: OutputNoise) -> str:
    ratio = f", SQNR {noise.sqnr_db:.2f} dB" if noise.sqnr_db is not None else ""
    return f"max absolute {noise.max_abs:.3g}{ratio}"


def _tolerances(source: SourceModel, context: BuildContext) -> list[tuple[str, Tolerance]]:
    """The tolerances that variants will be judged by, by the precisions that the profile states."""
    profile = context.profile
    own = "quantized" if source.capture.quantized else "float32"
    if source.capture.half_precision:
        own = "float16"
    stated = (spec.precision or profile.precision for spec in profile.variants)
    names = dict.fromkeys(own if name in ("keep", "auto") else name for name in stated)
    known: Mapping[str, Tolerance] = {
        name: getattr(profile.parity, name) for name in names if hasattr(profile.parity, name)
    }
    return [(f"parity.{name}", tolerance) for name, tolerance in known.items()]


# Equal calls of a variant: whether they have the same bytes, and which setting makes them so.


def repeat_request(lowered: LoweredModel, context: BuildContext) -> Json:
    """What the worker needs to repeat calls of a variant, as JSON; None: it shall not."""
    runs = context.profile.repeatability.runs
    if not runs:
        return None
    settings: dict[str, SessionSpec] = {}
    for name in lowered.plan.providers:
        settings.update(backend_of(name, context.profile.plugins).steadier(lowered.session))
    return {
        "runs": runs,
        # The CPU's kernels take no choice when a session is created.
        "reloads": list(lowered.providers) != [CPU],
        "settings": {setting: encode(session) for setting, session in settings.items()},
    }


def repeated_fixture(run_seconds: Mapping[str, float]) -> str:
    """The fixture that is repeated: the slowest that is quick enough, else the quickest."""
    quick = {name: took for name, took in run_seconds.items() if took <= _LONG_SECONDS}
    if quick:
        return max(quick, key=lambda name: quick[name])
    return min(run_seconds, key=lambda name: run_seconds[name])


def repeat_calls(
    request: Json, fixture: str, names: Sequence[str], call: Call, reopened: Callable[[Json], Call]
) -> Repeats:
    """In the worker: repeat one call, and find the setting with which its bytes are equal.

    `call` runs the variant; `reopened` runs it in a new session, with other settings if some are
    given, and ends the earlier session.  A setting with which the variant does not run makes
    nothing equal; raises AOTC-N001 and R008 where the variant itself does not run.
    """
    runs: int = request["runs"]
    answers = RepeatedAnswers(names, call())
    answers.repeat(call, runs)
    if request["reloads"]:
        answers.repeat(reopened(None), 1)
    setting, tried = "", []
    for name, session in request["settings"].items() if answers.differing_runs else ():
        tried.append(name)
        if _agrees(names, partial(reopened, session), max(runs, _MIN_TRIALS)):
            setting = name
            break
    return Repeats(
        fixture=fixture,
        runs=answers.runs,
        reloaded=request["reloads"],
        differing_runs=answers.differing_runs,
        outputs=answers.outputs,
        setting=setting,
        tried=tuple(tried),
    )


def _agrees(names: Sequence[str], opened: Callable[[], Call], runs: int) -> bool:
    try:
        call = opened()
        answers = RepeatedAnswers(names, call())
        answers.repeat(call, runs)
    except AotcError:
        # The variant is proven as it is: that another setting does not run says nothing of it.
        return False
    return not answers.differing_runs


def repeat_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-N040 for each variant whose equal calls had different bytes."""
    return tuple(
        Finding(code="AOTC-N040", what=_in_words(repeats)[:500], where=f"variant {variant.name}")
        for variant in evidence.variants
        if (repeats := variant.repeats) is not None and repeats.differing_runs
    )


def _in_words(repeats: Repeats) -> str:
    outputs = ", ".join(map(_output_in_words, repeats.outputs[:_MAX_NAMED]))
    more = ", ..." if len(repeats.outputs) > _MAX_NAMED else ""
    if repeats.setting:
        remedy = f"with '{repeats.setting}' in the profile, all calls had the same bytes"
    elif repeats.tried:
        remedy = f"no setting that was tried makes them equal: {', '.join(repeats.tried)}"
    else:
        remedy = "no setting is known that could make them equal"
    return (
        f"{repeats.differing_runs} of {repeats.runs} equal calls had other bytes than the first: "
        f"{outputs}{more}; {remedy}"
    )


def _output_in_words(output: DifferingOutput) -> str:
    by = f" by up to {output.max_abs:.2g}" if output.max_abs is not None else ""
    return f"{output.differing_values} of {output.total_values} values of {output.output!r}{by}"


# The gates of one variant, all judged: how exact it is, and what it costs.


def judge_together(judged: Iterable[Judged], journal: Journal) -> AotcError | None:
    """Write all gates down; the first breach with the further ones in `also`, None without any.

    What comes first decides what is tried next: a variant that computes wrongly is made in another
    form, whatever else it breaches.
    """
    found: list[AotcError] = []
    for each in judged:
        journal.judged(each.gates)
        found += each.breaches
    if not found:
        return None
    found[0].also = tuple(found[1:])
    return found[0]


def refused_gate(variant: str, error: AotcError) -> Gate:
    """The gate of a variant that could not be made or run, so that nothing else of it is judged.

    `variant` is its name; where the error was is in its breach, and differs between attempts.
    """
    return Gate(
        name="variants",
        subject=f"variant {variant}",
        status="failed",
        limit=error.expected,
        measured=error.found or error.what,
        place=error.place,
    )


def judge_parity(
    comparisons: Sequence[Comparison],
    where: str,
    arithmetic: Arithmetic,
    tolerance: Tolerance,
    places: DocumentPlaces,
    replaced: Collection[str] = (),
    together: Mapping[str, SliceError] | None = None,
) -> Judged:
    """A gate for each output over all fixtures; AOTC-N001 or N007 for each fixture that differs.

    Of outputs in `replaced`, whose own gates are judged instead, only what cannot be compared.
    AOTC-N001 too for an output that differs in the slices of all answers `together`.
    """
    place = places.of(f"parity.{arithmetic}")
    limit = _LIMIT.format(
        atol=tolerance.atol,
        rtol=tolerance.rtol,
        cosine=tolerance.min_cosine,
        share=SliceLimits.of(tolerance).share,
    )
    breaches = []
    wrong_together = {
        name: found
        for name, found in (together or {}).items()
        if found.ratio > 1 and name not in replaced
    }
    by_output: dict[str, list[OutputError]] = {}
    for comparison in comparisons:
        sizes = sizes_in_words(comparison.sizes) or "static shapes"
        for error in comparison.outputs:
            by_output.setdefault(error.output, []).append(error)
            if _differs(error):
                breaches.append(
                    AotcError(
                        "AOTC-N007" if comparison.padded_to else "AOTC-N001",
                        f"output {error.output!r} differs at {sizes}{_padding_text(comparison)}",
                        where=f"{where}, fixture {comparison.fixture}",
                        expected=error.rule or limit,
                        found=_measured(error),
                        fix=_fix(error),
                        place=place,
                    )
                )
    breaches += [
        AotcError(
            "AOTC-N001",
            f"output {name!r} differs in the fixtures taken together",
            where=f"{where}, {len(comparisons)} fixtures",
            expected=limit,
            found=slice_reason(found),
            place=place,
        )
        for name, found in wrong_together.items()
        if not any(_differs(error) for error in by_output[name])
    ]
    gates = []
    for name, errors in by_output.items():
        failed = [error for error in errors if _differs(error)]
        if name in replaced and not failed:
            continue
        worst = max(failed or errors, key=lambda error: (error.max_abs, error.differing))
        measured = _measured(worst)
        if name in wrong_together and not failed:
            measured = slice_reason(wrong_together[name])
        gates.append(
            Gate(
                name=f"parity.{arithmetic}",
                subject=f"{where}, output {name!r}",
                status="failed" if failed or name in wrong_together else "passed",
                limit=worst.rule or limit,
                measured=measured,
                place=place,
            )
        )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def _fix(error: OutputError) -> str:
    """What helps where whole numbers, truth values or text differ; empty: the code's own fix."""
    if not error.rule:
        return ""
    share = math.floor(100 * (error.agreement or 0.0)) / 100
    return (
        "Build the variant at a lower optimization level (variants: optimization: basic) or in the "
        "model's own precision (precision: keep). If it is acceptable that values differ, say how "
        f"many must agree in the profile: 'gates: {{outputs: {{{error.output}: {{"
        f"replaces_tolerance: true, min_agreement: {share:g}}}}}}}'"
    )


def _differs(error: OutputError) -> bool:
    """Whether an error breaches parity, and not only the limits of its output's own gate."""
    return not error.passed and bool({FORM, TOLERANCE, SLICE}.intersection(error.breached))


def _measured(error: OutputError) -> str:
    cosine = "-" if error.cosine is None else format(error.cosine, ".6f")
    # Of a limit of the output's own gate, its own row tells.
    wrong = error.reason if _differs(error) else ""
    if error.rule and not wrong:
        return differing_text(error)
    slices = ""
    if error.worst_slice is not None and error.worst_slice.error:
        found = error.worst_slice
        slices = f", {found.place}: rms {found.error:.3g} of its scale {found.scale:.3g}"
    return wrong or (
        f"max absolute {error.max_abs:.3g}, max relative {error.max_rel:.3g}, cosine {cosine}"
        f"{slices}"
    )


def _padding_text(comparison: Comparison) -> str:
    sizes = ", ".join(
        f"{name}={size}"
        for name, size in comparison.padded_to.items()
        if comparison.sizes.get(name) != size
    )
    return f", padded to {sizes}" if sizes else ""


def judge_costs(
    evidence: VariantEvidence, budgets: Budgets, where: str, places: DocumentPlaces
) -> Judged:
    """Peak memory (AOTC-M002) and load time (M003), where the profile limits them."""
    gates, breaches = [], []
    peak, load = evidence.peak_memory_bytes or 0, evidence.load_seconds or 0.0
    stated = (
        (
            "AOTC-M002",
            "peak_memory_bytes",
            "peak memory exceeds its budget",
            budgets.peak_memory_bytes,
            peak,
            (f"<= {budgets.peak_memory_bytes} bytes", f"{peak} bytes"),
        ),
        (
            "AOTC-M003",
            "load_seconds",
            "load time exceeds its budget",
            budgets.load_seconds,
            load,
            (f"<= {budgets.load_seconds or 0:g} s", f"{load:.3f} s"),
        ),
    )
    for code, field, what, limit, value, (expected, found) in stated:
        if limit is None:
            continue
        place = places.of(f"budgets.{field}")
        gates.append(
            Gate(
                name=f"budgets.{field}",
                subject=where,
                status="failed" if value > limit else "passed",
                limit=expected,
                measured=found,
                place=place,
            )
        )
        if value > limit:
            breaches.append(
                AotcError(code, what, where=where, expected=expected, found=found, place=place)
            )
    return Judged(gates=tuple(gates), breaches=tuple(breaches))


def variant_figures(evidence: VariantEvidence, where: str) -> tuple[Measurement, ...]:
    """What was measured of one variant, whether a budget limits it or not."""
    stated = (
        ("load", evidence.load_seconds, "s"),
        ("first run", evidence.first_run_seconds, "s"),
        ("peak memory", evidence.peak_memory_bytes, "B"),
        ("device memory", evidence.device_bytes, "B"),
        ("device memory of a plain session", evidence.plain_device_bytes, "B"),
    )
    errors = [error for each in evidence.comparisons for error in each.outputs]
    return (
        *(
            Measurement(name=name, subject=where, value=float(value), unit=unit)
            for name, value, unit in stated
            if value is not None
        ),
        *headline_measurements(where, evidence.run_seconds, errors),
    )


# Captured sizes: whether they are captured, and replay rightly beside each other.


CAPTURE_JOB: Final = "aotc.pipeline.gates:capture_job"
# What ended a trial says something of the graphs: the process died or hung, or CUDA failed.
_FAILED: Final = frozenset({"AOTC-I013", "AOTC-I014", "AOTC-R005", "AOTC-R036"})


# A reference run, and the sizes at which a variant runs it.
ComparedRun = tuple[ReferenceRun, Mapping[str, int]]


def judge_captures(
    lowered: LoweredModel,
    runs: Sequence[ComparedRun],
    comparisons: Sequence[Comparison],
    state: BuildState,
) -> Judged:
    """A gate where the profile refuses what cannot be captured; the breach is AOTC-P014 or P015.

    `comparisons` are those of `runs`: wrong answers have another form first.  Raises what
    `_refused_captures` does.
    """
    graphs, where = lowered.cuda_graphs, f"variant {lowered.plan.name}"
    right = all(error.passed for comparison in comparisons for error in comparison.outputs)
    if graphs is None or not right:
        return Judged()
    refused = _refused_captures(lowered, graphs, runs, state)
    gate = Gate(
        name="cuda.graphs",
        subject=where,
        status="failed" if refused else "passed",
        limit="CUDA graphs are captured, and replay rightly beside each other",
        measured=refused.found if refused else "captured",
        place=state.context.places.of("cuda.graphs"),
    )
    return Judged(
        gates=(gate,) if graphs.on_refusal == "fail" else (),
        breaches=(refused,) if refused else (),
    )


def _refused_captures(
    lowered: LoweredModel,
    graphs: GraphCapture,
    runs: Sequence[ComparedRun],
    state: BuildState,
) -> AotcError | None:
    """Why captured sizes may not be promised; None if they held in a process of their own.

    Raises AOTC-R025, I019, M004, R008, and I015, I018 and I043 from the sandbox.
    """
    where, place = f"variant {lowered.plan.name}", state.context.places.of("cuda.graphs")
    cases = _trial_cases(lowered, graphs, runs)
    steps = planned_steps(cases)
    request = {
        **variant_request(lowered, state.context),
        "variant": lowered.plan.name,
        "graphs": encode(replace(graphs, on_refusal="fail")),
        "values": [encode(value) for value in lowered.analyzed.source.inputs],
        "cases": [encode(case) for case in cases],
        "steps": [encode(step) for step in steps],
    }
    folder = state.work / f"captures-{lowered.plan.name}"
    told = steps_of(folder, "replays")
    state.clock.reporter.follow("replays", told)
    try:
        wrong = state.workers.run(CAPTURE_JOB, request, folder=folder, where=where).value["wrong"]
    except AotcError as error:
        if error.code == "AOTC-R024":
            return not_capturable(where, error.found or error.what, place)
        if error.code not in _FAILED:
            raise
        ended = error.what.removeprefix(f"{CAPTURE_JOB.rpartition(':')[2]} ")
        died = error.code in ("AOTC-I013", "AOTC-I014")
        wrong = f"the process {ended}" if died else error.found or error.what
    if not wrong:
        return None
    count = told()
    return AotcError(
        "AOTC-P015",
        "captured CUDA graphs crash or answer wrongly beside each other",
        where=where,
        expected="each captured size is replayed rightly, whatever ran before",
        found=f"{step_in_words(cases, steps, count.done if count else -1)}: {wrong}",
        place=place,
    )


def _trial_cases(
    lowered: LoweredModel, graphs: GraphCapture, runs: Sequence[ComparedRun]
) -> list[Case]:
    """The captured sizes in the order of a load, the largest first, and up to two others.

    Others are those that calls reach as they are: not by padding, and with elements.
    """
    domain = lowered.analyzed.domain
    filled = [(run, wanted) for run, wanted in runs if all(wanted.values())] or runs
    captured = [domain.complete(sizes) for sizes in largest_first(graphs.sizes)]
    others = [run for run, wanted in filled if wanted == run.sizes and wanted not in captured]
    flops = sum(node.flops for node in lowered.planned_placement)
    best = domain.corner("opt")

    def case(sizes: Mapping[str, int], run: ReferenceRun, *, captured: bool) -> Case:
        # Work grows with the sizes at least; nothing but the number of replays depends on it.
        files = (*run.inputs.values(), *run.outputs.values())
        return Case(
            sizes=sizes,
            inputs=run.input_paths,
            captured=captured,
            flops=flops * _times(sizes, best),
            bytes=sum(path.stat().st_size for path in files) * _times(sizes, run.sizes),
        )

    return [
        *(case(sizes, filled[0][0], captured=True) for sizes in captured),
        # The first and the last are the least alike.
        *(case(run.sizes, run, captured=False) for run in (*others[:1], *others[1:][-1:])),
    ]


def _times(sizes: Mapping[str, int], others: Mapping[str, int]) -> float:
    return math.prod(max(size, 1) / max(others.get(dim, 1), 1) for dim, size in sizes.items())


def capture_job(request: Json) -> Json:
    """In the worker: capture and replay as `steps` say; `wrong` is what the last one shows."""
    from aotc.session.device.cuda_place import CudaPlace, open_capturing

    inputs = [decode(Value, item) for item in request["values"]]

    def inputs_of(case: Case) -> dict[str, Data]:
        given = {name: values.load(Path(path)) for name, path in case.inputs.items()}
        return resize(given, inputs, case.sizes)

    runner = open_capturing(
        decode(GraphCapture, request["graphs"]),
        CudaPlace(),
        partial(open_variant, request, records=False),
        f"variant {request['variant']}",
    )
    cases = [decode(Case, item) for item in request["cases"]]
    wrong = what_is_wrong(
        runner, cases, [decode(Step, item) for item in request["steps"]], inputs_of
    )
    runner.close()
    return {"wrong": wrong}
