"""Analyze: prove for which shapes the original model runs, and record the reference outputs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.graph.allowed_arrays import require_allowed
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.gates import exact_answers, unjudged_findings
from aotc.pipeline.integers import unused_calibration, with_sampled_references
from aotc.pipeline.plan import captured_conditions, require_gated_outputs, stated_crops
from aotc.pipeline.shown import judge_branches, require_branches, with_shown
from aotc.pipeline.task import measure_original
from aotc.pipeline.types import AnalyzedModel, ReferenceRun, SourceModel
from aotc.sizes.shown import OutputTraits
from aotc.sizes.trials import died_in_several, read_leftovers, runs_so_far
from aotc.sources.base import Taken
from aotc.spec.codec import Json, decode, encode
from aotc.spec.manifest import ControlPath
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import Finding, ValueShapes
from aotc.spec.precision import DecidedOutput
from aotc.spec.shapes import DimRange, Domain, Padding, sizes_in_words

_MAX_CRASHES = 12
# After so many at size 0, it is tried no more.
_MAX_EMPTY_CRASHES = 4
# A job ended by a signal, for example from the system when memory is short.
_CUSTOM_OPS_FIX: Final = (
    "Generated inputs may be nothing that the library's operators take, such as the bytes of an "
    "image: give real ones with --fixtures. If these crash too, report them to the library."
)
_CRASH_CODES = ("AOTC-I013", "AOTC-I014", "AOTC-I015")


def analyze(
    source: SourceModel, ranges: Mapping[str, DimRange], state: BuildState
) -> AnalyzedModel:
    """The domain, golden outputs and findings of `source`.

    Raises AOTC-I008, I009, I012 to I016 (ONNX Runtime refuses), I024 and I087 (fixtures), S001 to
    S005, S011, S014 and S016, I078 to I081, N025, N027, N049, N050 (gates), N063 and S019 (seeds).
    """
    context = state.context
    profile = context.profile
    require_gated_outputs(source, context)
    require_branches(source, context)
    folder = state.work / "reference"
    state.clock.reporter.follow("probes", runs_so_far(folder))
    model, weights = source.answering
    given = _user_fixtures(source, context, state.work / "given")
    if context.fixtures is None and source.taken is not None:
        given = _captured_examples(source, source.taken, ranges, state.work / "given")
    result, crashes = _run_analysis(
        folder,
        {
            "model": str(model),
            "weights": str(weights),
            "symbols": encode(source.symbols),
            "outputs": [encode(value) for value in source.outputs],
            "hints": source.hints,
            "graph": str(source.graph),
            "graph_weights": str(source.weights),
            "control_flow": bool(source.capture.control_flow),
            "pads": {name: encode(spec.pad) for name, spec in profile.inputs.items()},
            "crops": stated_crops(source, context),
            "stated": {name: encode(spec) for name, spec in ranges.items()},
            "conditions": [encode(each) for each in captured_conditions(source)],
            "probe": encode(profile.probe),
            # What other providers compile holds within one range.
            "further": all(
                (spec.providers or profile.providers) == ("cpu",) for spec in profile.variants
            ),
            "parity": encode(profile.parity),
            "given": given,
            "seeded": source.random is not None and source.random.draws,
            "custom_ops": bool(context.custom_ops),
        },
        source,
        state,
    )
    rewritten: tuple[Finding, ...] = ()
    if source.reference is not None:
        what = "this CPU lacks VNNI: the reference's integer products have operands of one sign"
        rewritten = (Finding(code="AOTC-O008", what=what, where="reference"),)
    domain = decode(Domain, result["domain"])
    padding = decode(Padding, result["padding"]) if result["padding"] else None
    if padding is not None and source.random is not None and source.random.draws:
        raise AotcError(
            "AOTC-S019",
            "what is drawn from seeds has other numbers at padded sizes",
            where=listed([f"node {node.node}" for node in source.random.nodes]),
            fix="Pass the random numbers (--random as-input), or do not pad (outside: route, or "
            "reject).",
        )
    references = tuple(ReferenceRun.read(item, folder) for item in result["references"])
    branches = result["branches"]
    if branches is not None:
        branches = tuple(decode(ControlPath, item) for item in branches)
    judge_branches(branches, context, state.journal)
    exact = exact_answers(source, references, state)
    analyzed = AnalyzedModel(
        source=source,
        ranges=ranges,
        domain=domain,
        references=exact.references,
        activation_bytes=result["activation_bytes"],
        shapes=tuple(decode(ValueShapes, item) for item in result["shapes"]),
        padding=padding,
        parted={
            name: tuple(decode(PartedAxis, each) for each in axes)
            for name, axes in result["parted"].items()
        },
        decided={name: decode(DecidedOutput, item) for name, item in result["decided"].items()},
        noise=exact.noise,
        task=measure_original(source, domain, padding, state),
        traits=tuple(decode(OutputTraits, item) for item in result["traits"]),
        lacks=result["lacks"],
        branches=branches,
        findings=(
            *rewritten,
            *(decode(Finding, item) for item in result["findings"]),
            *exact.findings,
            *unjudged_findings(source, references, context),
            *crashes,
        ),
    )
    before = analyzed.references
    analyzed = with_shown(with_sampled_references(analyzed, state), state)
    if analyzed.references is before:
        unused = unused_calibration(context)
        analyzed = replace(analyzed, findings=(*unused, *analyzed.findings))
    sampled = exact_answers(source, analyzed.sampled, state, "sampled").references
    return replace(analyzed, sampled=sampled)


def _run_analysis(
    folder: Path,
    request: dict[str, Json],
    source: SourceModel,
    state: BuildState,
) -> tuple[Json, tuple[Finding, ...]]:
    """Run the job; if a trial kills it, run it again without those sizes and record a finding.

    If several runs at once were too much, or it died in them, it starts anew without that.
    """
    fatal_sizes: list[Json] = []
    fatal_empties = 0
    side_by_side = True
    findings: list[Finding] = []
    done: list[Json] = []
    spent = 0.0
    while True:
        try:
            result = state.workers.run(
                "aotc.sizes.analysis:analyze_job",
                {
                    **request,
                    "empties": fatal_empties < _MAX_EMPTY_CRASHES,
                    "deadly": fatal_sizes,
                    "done": done,
                    "spent": spent,
                    "side_by_side": side_by_side,
                },
                folder=folder,
                where=source.path.name,
            )
            if result.value is not None:
                return result.value, tuple(findings)
            side_by_side = False
            _, spent, done = read_leftovers(folder)
            shutil.rmtree(folder)
        except AotcError as error:
            died = error.code in _CRASH_CODES and " ended by " in error.what
            if died and side_by_side and died_in_several(folder):
                side_by_side = False
                _, spent, done = read_leftovers(folder)
                shutil.rmtree(folder)
                continue
            sizes, spent, done = read_leftovers(folder) if died else ({}, spent, done)
            if not sizes or sizes in fatal_sizes or len(fatal_sizes) == _MAX_CRASHES:
                if error.code == "AOTC-I013" and state.context.custom_ops:
                    error.fix = _CUSTOM_OPS_FIX
                raise
            fatal_empties += 0 in sizes.values()
            fatal_sizes.append(sizes)
            cause = error.what.partition(" ended by ")[2]
            if "alarm" in cause:
                spent += state.context.profile.probe.run_seconds
            # Nobody asked for size 0: such calls are merely refused.  The same holds for other
            # values of inputs, whose number is under the empty name.
            if 0 not in sizes.values() and "" not in sizes:
                findings.append(
                    Finding(code="AOTC-S012", what=f"ended by {cause}", where=sizes_in_words(sizes))
                )
            shutil.rmtree(folder)


def _user_fixtures(source: SourceModel, context: BuildContext, folder: Path) -> list[Json]:
    """The user's fixtures as value files; raises AOTC-I024 and I087."""
    if context.fixtures is None:
        return []
    from aotc.sizes.inputs.fixtures import read_fixtures

    return read_fixtures(context.fixtures, source.inputs, folder, source.outputs)


def _captured_examples(
    source: SourceModel, taken: Taken, ranges: Mapping[str, DimRange], folder: Path
) -> list[Json]:
    """The inputs that a framework's source has of its own, as fixtures, if they may be passed.

    None of a model of fixed sizes: generated ones ship with the artifact, and would be left out.
    """
    from aotc.sizes.inputs.fixtures import FixtureInputs, read_fixtures

    if not taken.captured.examples or not any(
        isinstance(dim, str) for value in source.inputs for dim in value.shape or ()
    ):
        return []
    try:
        items = read_fixtures(taken.folder / taken.captured.examples, source.inputs, folder)
        read = [FixtureInputs.read(item, source.inputs) for item in items]
        for item in read:
            require_allowed(item.inputs, source.inputs, item.sizes, code="AOTC-I112", where="")
    except AotcError:
        # What the profile says of inputs is not what the source was captured with.
        return []
    fits = all(
        spec.allows(item.sizes[name])
        for item in read
        for name, spec in ranges.items()
        if name in item.sizes
    )
    return items if fits else []
