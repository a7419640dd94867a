"""From recorded requests to a profile: what varies, what it costs, and which plan is cheapest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from aotc.base.errors import AotcError, with_others
from aotc.base.files.reading import read_at_most
from aotc.base.files.replacing import check_output
from aotc.base.files.work_folders import temporary_folder
from aotc.base.files.writing import write_text
from aotc.base.records import replace
from aotc.graph.values import numpy_dtype
from aotc.host.probe import probe
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.custom_ops import stage_custom_ops
from aotc.pipeline.import_model import import_model
from aotc.pipeline.types import SourceModel
from aotc.session.worker_pool import Workers
from aotc.spec.codec import ParseError, decode, encode
from aotc.spec.command_reports import LearnReport, PlanRow, SizeCount
from aotc.spec.json import MAX_JSON_BYTES, canonical_json, strict_json
from aotc.spec.precision import Traffic as Learned
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile, with_absolute_paths
from aotc.spec.relations import read_relation
from aotc.spec.shapes import DimRange
from aotc.spec.traffic import RecordedTraffic, read_traffic
from aotc.spec.yaml import yaml_text
from aotc.tools.learn_costs import Costs, CostTable, measure
from aotc.tools.learn_plans import (
    MAX_ONE_DIM,
    MAX_TWO_DIMS,
    Plan,
    Traffic,
    VaryingDims,
    candidate_plans,
    candidate_sizes,
    choose_plan,
    sizes_between,
)

_MAX_VARIANTS = 8


def profile_learn(
    traffic: str | Path,
    *,
    model: str | Path | None = None,
    costs: str | Path | None = None,
    max_variants: int | None = None,
    profile: str | Path | Profile = "edge",
    dims: Sequence[str] = (),
    padding: bool = True,
    seconds: float = 60.0,
    threads: int | None = None,
    output: str | Path | None = None,
    save_costs: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> LearnReport:
    """Learn the profile that serves recorded requests at the minimum expected cost.

    `traffic` is a file of recorded requests: JSON lines of shapes by input (`{"ids": [1, 40]}`, as
    `aotc.load(record=...)` writes them) or of sizes by dim (`{"batch": 1, "seq": 40}`), or a `.csv`
    with a column for each dim.  `model` is the ONNX file on which costs are measured, for about
    `seconds` of running, not counting the creation of sessions; `costs` is a file of an earlier
    measurement, which replaces it.  One of the two must be given.

    `profile` is what to start from: a built-in name, a file, or an `aotc.Profile`.  At most
    `max_variants` variants are planned for each variant of the profile (default: 8); if its first
    variant captures CUDA graphs, that many sizes (default: those that it keeps).  `dims` names the
    one or two dims to plan for if more vary.  Without `padding` every request runs at its own size.
    `threads` is the number of threads of a session (default: all cores).

    `output` is a YAML file for the profile, and `save_costs` a JSON file for the measured costs;
    files that exist are replaced.  `progress` is called with the name of each step.  The report
    holds the profile, which `aotc.build` takes, and every plan that was compared: its cost in
    seconds of one request on average, and what padding adds, as a share of the elements.

    Raises AOTC-I001 to I007 (model), I021, I022 (profile), I027 (neither a model nor costs, or a
    number out of range), S005, S020 to S024 and S026 (traffic and costs), I018 and I026 (a file
    cannot be written).
    """
    _require_numbers(seconds, max_variants)
    files = [Path(file) for file in (output, save_costs) if file is not None]
    for file in files:
        check_output(file, force=True, writes_through=True)
    report, table = _learned(
        traffic, model, costs, max_variants, profile, dims, padding, seconds, threads, progress
    )
    if output is not None:
        write_text(Path(output), yaml_text(report.profile, full=False))
    if save_costs is not None:
        write_text(Path(save_costs), canonical_json(encode(table)).decode() + "\n")
    return report


def _require_numbers(seconds: float, max_variants: int | None) -> None:
    rows = (
        ("seconds", seconds, 0 < seconds < math.inf, "> 0"),
        ("max_variants", max_variants, max_variants is None or max_variants >= 1, ">= 1"),
    )
    for name, found, holds, expected in rows:
        if not holds:
            raise AotcError(
                "AOTC-I027", f"{name} is out of range", expected=expected, found=str(found)
            )


def _learned(
    traffic: str | Path,
    model: str | Path | None,
    costs: str | Path | None,
    max_variants: int | None,
    profile: str | Path | Profile,
    dims: Sequence[str],
    padding: bool,
    seconds: float,
    threads: int | None,
    progress: Callable[[str], None] | None,
) -> tuple[LearnReport, CostTable]:
    announce = progress or (lambda text: None)
    base = (
        with_absolute_paths(profile, Path())
        if isinstance(profile, Profile)
        else load_profile(profile)
    )
    if model is None and costs is None:
        raise AotcError(
            "AOTC-I027",
            "there is neither a model to measure nor a file of costs",
            expected="--model MODEL, or --costs FILE",
        )
    with temporary_folder("learn") as folder, Workers(base.limits) as jobs:
        host = probe()
        staged = stage_custom_ops(base, host, host, folder / "custom_ops")
        context = BuildContext(profile=base, target=host, host=host, custom_ops=staged)
        registering = jobs.registering(library.file for library in staged)
        state = BuildState(context=context, work=folder, workers=registering)
        source = None
        if model is not None:
            announce("import")
            source = import_model(model, state)
        announce("read the traffic")
        recorded = read_traffic(traffic, source.inputs if source is not None else None)
        stated = source.symbols.relations if source is not None else ()
        varying = VaryingDims(recorded, dims, stated)
        if costs is not None:
            table = _read_costs(Path(costs), varying, source)
        else:
            assert source is not None  # Without `costs` there is a model.
            announce("measure")
            table = _measure_costs(source, varying, state, seconds, threads)
    announce("plan")
    requests = Traffic(varying.counts(), Costs(table), padding=padding)
    return learn_report(recorded, varying, requests, base, _max_sizes(base, max_variants)), table


def _max_sizes(base: Profile, wanted: int | None) -> int:
    """How many variants may be planned, or captured sizes if there are these in their place."""
    first = base.variants[0]
    if not base.captures_sizes(first):
        return wanted or _MAX_VARIANTS
    kept = base.cuda_of(first).graphs.max_count
    return min(wanted or kept, kept)


def _measure_costs(
    source: SourceModel,
    varying: VaryingDims,
    state: BuildState,
    seconds: float,
    threads: int | None,
) -> CostTable:
    context = state.context
    maximum = MAX_ONE_DIM if len(varying.planned) == 1 else MAX_TWO_DIMS
    columns = zip(*varying.counts(), strict=True)
    recorded = {
        name: sorted(set(sizes)) for name, sizes in zip(varying.planned, columns, strict=True)
    }
    chosen = {name: candidate_sizes(sizes, maximum) for name, sizes in recorded.items()}
    inner = {}
    if len(varying.planned) == 1:
        (name,) = varying.planned
        requests = {sizes[0]: count for sizes, count in varying.counts().items()}
        inner[name] = sizes_between(requests, chosen[name])
    others = {
        name: 1 for value in source.inputs for name in value.shape or () if isinstance(name, str)
    }
    others |= {f"{value.name}.0": 1 for value in source.inputs if value.shape is None}
    others |= varying.fixed | {name: varying.most_common_size(name) for name in varying.ranged}
    for name in varying.planned:
        others.pop(name, None)
    _require_memory(source, varying, others, context.profile.limits.memory_bytes)
    return measure(
        source,
        varying.planned,
        chosen,
        inner,
        recorded,
        others,
        varying.follows,
        seconds=seconds,
        threads=threads,
        seed=context.profile.parity.seed,
        profile=context.profile,
        workers=state.workers,
        work=state.work,
    )


def _require_memory(
    source: SourceModel, varying: VaryingDims, others: Mapping[str, int], limit: int
) -> None:
    """Refuse sizes whose inputs alone need more than `limit` bytes, before any is allocated."""
    sizes = {**others, **{name: varying.span(name)[1] for name in varying.planned}}
    for dim, terms in varying.follows.items():
        sizes[dim] = sum(sizes[term] for term in terms)
    needed = sum(
        math.prod(value.shape_at(sizes)) * numpy_dtype(value.dtype).itemsize
        for value in source.inputs
    )
    if needed > limit:
        at = ", ".join(f"{name}={sizes[name]}" for name in varying.planned)
        raise AotcError(
            "AOTC-S022",
            f"inputs of the largest recorded sizes, {at}, do not fit into memory",
            where=varying.recorded.path,
            expected=f"<= {limit} bytes (limits.memory_bytes)",
            found=f"{needed} bytes",
        )


def _read_costs(path: Path, varying: VaryingDims, source: SourceModel | None) -> CostTable:
    try:
        table = decode(CostTable, strict_json(read_at_most(path, MAX_JSON_BYTES)))
    except OSError as error:
        raise AotcError(
            "AOTC-I001", "cannot read the costs", where=str(path), found=str(error.strerror)
        ) from None
    except ParseError as error:
        raise with_others(
            AotcError(
                problem.code or "AOTC-S026",
                problem.what,
                where=f"{path}: {problem.path or '(top)'}",
            )
            for problem in error.problems
        ) from None
    if set(table.dims) != set(varying.planned):
        raise AotcError(
            "AOTC-S026",
            "the costs were measured for other dims than those that vary",
            where=str(path),
            expected=", ".join(varying.planned),
            found=", ".join(table.dims),
            fix="Give --model too, so that recorded shapes get the model's dim names."
            if source is None
            else "",
        )
    if source is not None and table.model_sha256 and table.model_sha256 != source.capture.sha256:
        raise AotcError(
            "AOTC-S026",
            "the costs were measured on another model",
            where=str(path),
            expected=source.capture.sha256[:12],
            found=table.model_sha256[:12],
        )
    for name in table.dims:
        high = varying.span(name)[1]
        if table.sizes[name][-1] < high:
            raise AotcError(
                "AOTC-S026",
                f"the costs do not reach the largest recorded size of {name!r}",
                where=str(path),
                expected=f">= {high}",
                found=str(table.sizes[name][-1]),
            )
    varying.planned = table.dims
    return table


# What was learned: the plans that were compared, and the profile of the chosen one.


# Sessions of one size that differ by a larger share were disturbed by other work.
MAX_QUIET_DRIFT = 0.1


def learn_report(
    recorded: RecordedTraffic,
    varying: VaryingDims,
    traffic: Traffic,
    base: Profile,
    max_variants: int,
) -> LearnReport:
    """The report on `traffic`, whose dims are `varying`, for a profile that starts from `base`."""
    found = candidate_plans(traffic, max_variants)
    chosen, margin = choose_plan(found, traffic)
    ranges = {name: DimRange.from_json(dict(fields)) for name, fields in chosen.dims.items()}
    ranges |= {name: DimRange.from_json(size) for name, size in varying.fixed.items()}
    for name in varying.ranged:
        low, high = varying.span(name)
        ranges[name] = DimRange.from_json(
            {"min": low, "opt": varying.most_common_size(name), "max": high}
        )
    accepted = sum(
        count
        for sizes, count in recorded.sizes()
        if all(spec.allows(sizes[name]) for name, spec in ranges.items())
    )
    coverage = accepted / recorded.requests
    captures = base.captures_sizes(base.variants[0])
    verdict = _verdict(chosen, found, margin, captures=captures)
    if traffic.costs.table.drift > MAX_QUIET_DRIFT:
        verdict += "; other work disturbed the measurement: measure again on a quiet machine"
    order = [name for name in recorded.dims if name in ranges]
    profile = replace(
        base,
        name=f"{base.name}-learned"[:64],
        description=f"Learned from {recorded.requests} requests: {verdict}",
        dims={**base.dims, **{name: ranges[name] for name in order}},
        relations=(*base.relations, *_relation_texts(varying.derived, base.relations)),
        traffic=Learned(
            requests=recorded.requests,
            sha256=recorded.sha256,
            coverage=coverage,
            padding=chosen.padding,
            plan=chosen.name,
        ),
    )
    profile = replace(profile, max_variants=max(base.max_variants, profile.variant_count()))
    least = min(plan.seconds for plan in found if plan.coverage >= chosen.coverage)
    return LearnReport(
        path=recorded.path,
        sha256=recorded.sha256,
        requests=recorded.requests,
        dims=tuple(varying.planned),
        fixed=varying.fixed,
        follows=varying.follows,
        ranges={name: varying.span(name) for name in varying.ranged},
        sizes={name: _distribution(recorded, name) for name in varying.planned},
        plans=tuple(
            PlanRow(
                name=plan.name,
                buckets=plan.buckets,
                variants=plan.variants,
                seconds=plan.seconds,
                ratio=plan.seconds / least if least else 1.0,
                padding=plan.padding,
                coverage=plan.coverage,
                chosen=plan is chosen,
            )
            for plan in sorted(found, key=lambda plan: (-plan.coverage, plan.seconds))
        ),
        margin=margin,
        noise=traffic.noise(),
        drift=traffic.costs.table.drift,
        new_size_seconds=traffic.costs.table.new_size_seconds,
        backend=traffic.costs.table.backend,
        coverage=coverage,
        padding=chosen.padding,
        verdict=verdict,
        profile=profile,
    )


def _relation_texts(follows: Mapping[str, Sequence[str]], known: Sequence[str]) -> Iterator[str]:
    """The relations under which costs were measured, as a profile states them."""
    for name, terms in follows.items():
        text = f"{name} = {' + '.join(terms)}"
        try:
            read_relation(text)
        except ParseError:
            continue  # No relation can contain such a name; the build finds it by running.
        if text not in known:
            yield text


def _verdict(chosen: Plan, found: Sequence[Plan], margin: float, *, captures: bool) -> str:
    dynamic = next((plan for plan in found if plan.name == "one dynamic variant"), None)
    bucketed = min(
        (
            plan
            for plan in found
            if plan.offered and plan.buckets and plan.variants > 1
            if plan.coverage >= chosen.coverage
        ),
        key=lambda plan: plan.seconds,
        default=None,
    )
    if chosen is dynamic and bucketed is None and any(plan.coverage < 1 for plan in found):
        return "one dynamic variant, as others refuse requests that cannot be padded"
    if chosen is dynamic and bucketed is not None:
        gain = 1 - bucketed.seconds / dynamic.seconds
        if gain <= 0:
            return f"one dynamic variant, as buckets would cost {-gain:.1%} more"
        return (
            f"one dynamic variant, as the best buckets would gain {gain:.1%}, "
            f"less than the margin of {margin:.1%}"
        )
    if dynamic is not None and chosen is not dynamic:
        gain = 1 - chosen.seconds / dynamic.seconds
        made = "captured size" if captures else "variant"
        variants = f"{chosen.variants} {made}" + ("s" if chosen.variants > 1 else "")
        return f"{chosen.name}, {variants}: {gain:.1%} less than one dynamic variant"
    return chosen.name if chosen is dynamic else f"{chosen.name}, {chosen.variants} in all"


def _distribution(recorded: RecordedTraffic, name: str) -> tuple[SizeCount, ...]:
    found: Counter[int] = Counter()
    for sizes, count in recorded.sizes():
        found[sizes[name]] += count
    return tuple(SizeCount(size=size, requests=found[size]) for size in sorted(found))
