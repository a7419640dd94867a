"""From recorded requests to a profile: what varies, what it costs, and which plan costs least."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aotc.contract.answers import LearnAnswer, PlanRow, SizeCount
from aotc.contract.costs import CostTable
from aotc.contract.documents import load_profile
from aotc.contract.parsing import MAX_JSON_BYTES, ParseError, decode, nearest, strict_json
from aotc.contract.profile import Profile
from aotc.contract.profile import Traffic as Learned
from aotc.contract.shapes import DimRange
from aotc.contract.traffic import Recorded, read_traffic
from aotc.engine.worker import Workers
from aotc.errors import AotcError
from aotc.learning.candidates import ONE_DIM, TWO_DIMS, between, candidates
from aotc.learning.costs import Costs
from aotc.learning.measure import measure
from aotc.learning.plans import Plan, Traffic, choose, plans
from aotc.stages.importing import import_model
from aotc.stages.types import BuildOptions, SourceModel
from aotc.verification.host import probe

_MOST_DIMS = 2


def learn(
    traffic: str | Path,
    *,
    model: str | Path | None = None,
    costs: str | Path | None = None,
    max_variants: int = 8,
    profile: str | Path = "edge",
    dims: Sequence[str] = (),
    seconds: float = 60.0,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[LearnAnswer, CostTable]:
    """The profile that serves recorded requests at the least expected cost, and the costs.

    Costs are measured on `model`, for about `seconds` beside creating sessions, or read from the
    file `costs` that an earlier measurement left.  At most `max_variants` variants are planned, of
    each of the profile's; `dims` names the one or two dims to plan for where more vary.
    Raises AOTC-I001 to I007 (model), I021, I022 (profile), I027, S005, S020 to S024 and S026.
    """
    say = progress or (lambda text: None)
    base = load_profile(profile)
    if model is None and costs is None:
        raise AotcError(
            "AOTC-I027",
            "nothing says what a size costs",
            expected="--model MODEL, or --costs FILE",
        )
    with tempfile.TemporaryDirectory(prefix="aotc-learn-") as folder, Workers(base.limits) as jobs:
        options = _options(base, Path(folder), jobs)
        source = None
        if model is not None:
            say("import")
            source = import_model(model, options)
        say("read the traffic")
        recorded = read_traffic(traffic, source.inputs if source is not None else None)
        known = _Dims(recorded, dims)
        if costs is not None:
            table = _read_costs(Path(costs), known, source)
        else:
            assert source is not None  # One of both was demanded.
            say("measure")
            table = _measured(source, known, options, seconds, threads)
    say("plan")
    return _answer(recorded, known, table, base, max_variants), table


def _options(profile: Profile, work: Path, workers: Workers) -> BuildOptions:
    host = probe()
    return BuildOptions(profile=profile, target=host, host=host, work=work, workers=workers)


class _Dims:
    """Which dims of the traffic vary, follow from others, and are planned for."""

    def __init__(self, recorded: Recorded, wanted: Sequence[str]) -> None:
        self.recorded = recorded
        columns = dict(zip(recorded.dims, zip(*recorded.counts, strict=True), strict=True))
        for name in wanted:
            if name not in columns:
                close = nearest(name, recorded.dims)
                raise AotcError(
                    "AOTC-I027",
                    f"the traffic has no dim {name!r}"
                    + (f"; did you mean {close!r}?" if close else ""),
                    expected=", ".join(recorded.dims),
                )
        self.fixed = {
            name: sizes[0]
            for name, sizes in columns.items()
            if len(set(sizes)) == 1 and name not in wanted
        }
        varying = [name for name in recorded.dims if name not in self.fixed]
        self.follows = _follow({name: columns[name] for name in varying}, wanted)
        free = [name for name in varying if name not in self.follows]
        self.planned = tuple(wanted) or tuple(free) or recorded.dims[-1:]
        self.fixed = {name: size for name, size in self.fixed.items() if name not in self.planned}
        if len(self.planned) > _MOST_DIMS:
            raise AotcError(
                "AOTC-S024",
                f"{len(self.planned)} dims vary",
                where=recorded.path,
                expected="one or two, named by --dim-names",
                found=", ".join(self.planned),
            )
        self.ranged = [name for name in free if name not in self.planned]

    def counts(self) -> dict[tuple[int, ...], int]:
        """Requests by their sizes of the planned dims."""
        found: Counter[tuple[int, ...]] = Counter()
        for sizes, count in self.recorded.sizes():
            found[tuple(sizes[name] for name in self.planned)] += count
        return dict(found)

    def usual(self, name: str) -> int:
        """The size of a dim that most requests have."""
        found: Counter[int] = Counter()
        for sizes, count in self.recorded.sizes():
            found[sizes[name]] += count
        return found.most_common(1)[0][0]

    def span(self, name: str) -> tuple[int, int]:
        """The smallest and largest recorded size of a dim."""
        sizes = [sizes[name] for sizes, _ in self.recorded.sizes()]
        return min(sizes), max(sizes)


def _follow(
    columns: Mapping[str, Sequence[int]], wanted: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Dims that equal another, or the sum of two others, in every request."""
    found: dict[str, tuple[str, ...]] = {}
    for name, sizes in columns.items():
        if name in wanted:
            continue
        others = [other for other in columns if other != name and other not in found]
        singles: list[tuple[str, ...]] = [(other,) for other in others]
        for terms in (*singles, *itertools.combinations(others, 2)):
            sums = zip(*(columns[term] for term in terms), strict=True)
            if all(sum(each) == size for each, size in zip(sums, sizes, strict=True)):
                found[name] = terms
                break
    return found


def _measured(
    source: SourceModel,
    known: _Dims,
    options: BuildOptions,
    seconds: float,
    threads: int | None,
) -> CostTable:
    most = ONE_DIM if len(known.planned) == 1 else TWO_DIMS
    chosen = {}
    for index, name in enumerate(known.planned):
        chosen[name] = candidates((sizes[index] for sizes in known.counts()), most)
    inner = {}
    if len(known.planned) == 1:
        (name,) = known.planned
        requests = {sizes[0]: count for sizes, count in known.counts().items()}
        inner[name] = between(requests, chosen[name])
    others = {
        name: 1 for value in source.inputs for name in value.shape or () if isinstance(name, str)
    }
    others |= {f"{value.name}.0": 1 for value in source.inputs if value.shape is None}
    others |= known.fixed | {name: known.usual(name) for name in known.ranged}
    for name in known.planned:
        others.pop(name, None)
    return measure(
        source,
        known.planned,
        chosen,
        inner,
        others,
        known.follows,
        seconds=seconds,
        threads=threads,
        seed=options.profile.parity.seed,
        workers=options.workers,
        work=options.work,
    )


def _read_costs(path: Path, known: _Dims, source: SourceModel | None) -> CostTable:
    try:
        table = decode(CostTable, strict_json(path.read_bytes()[: MAX_JSON_BYTES + 1]))
    except OSError as error:
        raise AotcError(
            "AOTC-I001", "cannot read the costs", where=str(path), found=str(error.strerror)
        ) from None
    except ParseError as error:
        first, *others = [
            AotcError("AOTC-S026", each.what, where=f"{path}: {each.path or '(top)'}")
            for each in error.problems
        ]
        first.also = tuple(others)
        raise first from None
    if set(table.dims) != set(known.planned):
        raise AotcError(
            "AOTC-S026",
            "the costs are of other dims than those that vary",
            where=str(path),
            expected=", ".join(known.planned),
            found=", ".join(table.dims),
            mend="Give --model too, so that recorded shapes get the model's names of dims."
            if source is None
            else "",
        )
    if source is not None and table.source and table.source != source.capture.sha256:
        raise AotcError(
            "AOTC-S026",
            "the costs are of another model",
            where=str(path),
            expected=source.capture.sha256[:12],
            found=table.source[:12],
        )
    for name in table.dims:
        high = known.span(name)[1]
        if table.sizes[name][-1] < high:
            raise AotcError(
                "AOTC-S026",
                f"the costs do not reach the largest recorded size of {name!r}",
                where=str(path),
                expected=f">= {high}",
                found=str(table.sizes[name][-1]),
            )
    known.planned = table.dims
    return table


def _answer(
    recorded: Recorded, known: _Dims, table: CostTable, base: Profile, most: int
) -> LearnAnswer:
    traffic = Traffic(known.counts(), Costs(table))
    found = plans(traffic, most)
    chosen, margin = choose(found, traffic)
    ranges = {name: DimRange.from_json(dict(fields)) for name, fields in chosen.dims.items()}
    ranges |= {name: DimRange.from_json(size) for name, size in known.fixed.items()}
    for name in known.ranged:
        low, high = known.span(name)
        ranges[name] = DimRange.from_json({"min": low, "opt": known.usual(name), "max": high})
    accepted = sum(
        count
        for sizes, count in recorded.sizes()
        if all(spec.allows(sizes[name]) for name, spec in ranges.items())
    )
    coverage = accepted / recorded.requests
    verdict = _verdict(chosen, found, margin)
    order = [name for name in recorded.dims if name in ranges]
    profile = replace(
        base,
        name=f"{base.name}-learned"[:64],
        description=f"Learned from {recorded.requests} requests: {verdict}",
        dims={**base.dims, **{name: ranges[name] for name in order}},
        max_variants=max(base.max_variants, len(base.variants) * chosen.variants),
        traffic=Learned(
            requests=recorded.requests,
            sha256=recorded.sha256,
            coverage=coverage,
            padding=chosen.padding,
            plan=chosen.name,
        ),
    )
    least = min(plan.seconds for plan in found)
    return LearnAnswer(
        path=recorded.path,
        sha256=recorded.sha256,
        requests=recorded.requests,
        dims=tuple(known.planned),
        fixed=known.fixed,
        follows=known.follows,
        ranges={name: known.span(name) for name in known.ranged},
        sizes={name: _distribution(recorded, name) for name in known.planned},
        plans=tuple(
            PlanRow(
                name=plan.name,
                buckets=plan.buckets,
                variants=plan.variants,
                seconds=plan.seconds,
                ratio=plan.seconds / least if least else 1.0,
                padding=plan.padding,
                chosen=plan is chosen,
            )
            for plan in sorted(found, key=lambda plan: plan.seconds)
        ),
        margin=margin,
        noise=traffic.noise(),
        backend=table.backend,
        coverage=coverage,
        padding=chosen.padding,
        verdict=verdict,
        profile=profile,
    )


def _verdict(chosen: Plan, found: Sequence[Plan], margin: float) -> str:
    dynamic = next((plan for plan in found if plan.name == "one dynamic variant"), None)
    bucketed = min(
        (plan for plan in found if plan.offered and plan.buckets and plan.variants > 1),
        key=lambda plan: plan.seconds,
        default=None,
    )
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
        variants = "1 variant" if chosen.variants == 1 else f"{chosen.variants} variants"
        return f"{chosen.name}, {variants}: {gain:.1%} less than one dynamic variant"
    return f"{chosen.name}, {chosen.variants} in all"


def _distribution(recorded: Recorded, name: str) -> tuple[SizeCount, ...]:
    found: Counter[int] = Counter()
    for sizes, count in recorded.sizes():
        found[sizes[name]] += count
    return tuple(SizeCount(size=size, requests=found[size]) for size in sorted(found))
