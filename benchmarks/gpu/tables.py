"""Rows of the page's tables: ratios of medians, their geometric means by group, and the limits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import geometric_mean, median

from benchmarks.gpu.cases import GROUPS, NETWORKS, PRECISION_TITLES, Group, Network, case_name
from benchmarks.gpu.results import Record, merged, why_failed
from benchmarks.gpu.rows import behind, weights
from benchmarks.gpu.stages import STAGES
from benchmarks.gpu.stages import label as stage_label

Row = tuple[str, ...]
OURS, TORCH, EAGER, PLAIN = "aotc", "torch.compile", "eager", "plain session"
NEW = ", new inputs"
BOUND_LIMIT, NEW_LIMIT, KERNELS_LIMIT, WORST_LIMIT, PLAIN_LIMIT = 0.8, 0.9, 1.05, 1.25, 0.6
COMPILE_START_LIMIT, PLAIN_START_LIMIT = 0.1, 1.0
LENGTHS_LIMIT, BIND_LIMIT, MEMORY_LIMIT, FIRST_LIMIT = 1.5, 10.0, 1.3, 1.2
BUILD_LIMIT, LOAD_LIMIT = 60.0, 2.0
_RESAMPLES, _LONGEST = 2000, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case: medians by side in ms, each within the process that measured all of them.

    `kernels` are of one call, in ms, by side; the other side of ratios is the better of
    torch.compile and eager, and Inductor's kernels.
    """

    network: Network
    precision: str
    batch: int
    captured: bool
    medians: dict[str, float]
    kernels: dict[str, float]
    mark: str = ""

    @property
    def title(self) -> str:
        """As the tables name it."""
        precision = PRECISION_TITLES[self.precision]
        without = "" if self.captured else ", no graph"
        return f"{self.network.title}, {precision}, batch {self.batch}{without}{self.mark}"

    @property
    def bound(self) -> float:
        """The ratio with tensors that stay."""
        return self.medians[OURS] / self.best()

    @property
    def new(self) -> float:
        """The ratio with new inputs."""
        return self.medians[OURS + NEW] / self.best(NEW)

    @property
    def to_plain(self) -> float | None:
        """The ratio to a plain session; None if there was none."""
        return self.medians[OURS] / self.medians[PLAIN] if PLAIN in self.medians else None

    @property
    def alone(self) -> float | None:
        """The ratio of kernels alone; None if they were not recorded."""
        return self.kernels[OURS] / self.kernels[TORCH] if self.kernels.get(TORCH) else None

    def best(self, way: str = "") -> float:
        """Milliseconds of torch's better side."""
        return min(self.medians[TORCH + way], self.medians[EAGER + way])


def cases(records: Sequence[Record]) -> list[Case]:
    """The measured cases, in the order of networks, precisions and batches."""
    recorded = {record["case"]: record["kernels"] for record in _of(records, "kernels")}
    result = []
    for record in _of(records, "calls"):
        network, precision, batch = record["case"].split("/")
        kernels = recorded.get(record["case"], {})
        result.append(
            Case(
                network=NETWORKS[network],
                precision=precision,
                batch=int(batch),
                captured=record["captured"],
                medians=_medians(record),
                kernels={side: each["seconds"] * 1e3 for side, each in kernels.items()},
                mark=record.get("mark", ""),
            )
        )
    names, kinds = list(NETWORKS), list(PRECISION_TITLES)
    result.sort(key=lambda c: (names.index(c.network.name), kinds.index(c.precision), c.batch))
    return result


def calls_table(records: Sequence[Record]) -> list[Row]:
    """A row for each case: milliseconds by side, bound and with new inputs, and the ratios."""
    sides = (OURS, TORCH, EAGER)
    return [
        (
            case.title,
            *(f"{case.medians[side]:.3f} / {case.medians[side + NEW]:.3f}" for side in sides),
            f"{case.medians[PLAIN]:.3f}" if PLAIN in case.medians else "",
            f"{case.bound:.2f} / {case.new:.2f}",
            " / ".join(f"{case.kernels[side]:.3f}" for side in (OURS, TORCH) if case.kernels),
            "" if case.alone is None else f"{case.alone:.2f}",
        )
        for case in cases(records)
    ]


def summary(records: Sequence[Record]) -> list[Row]:
    """What is asked, what was measured, and whether it holds."""
    return [*_of_calls(cases(records)), *_of_other_rows(records)]


def _of_calls(measured: Sequence[Case]) -> Iterator[Row]:
    """The limits of all cases, and of each group; there is no verdict on fewer than there are."""
    if not measured:
        return
    groups: tuple[Group | None, ...] = (None, *GROUPS)
    for group in groups:
        found = [case for case in measured if group in (None, case.network.group)]
        many = sum(
            len(network.precisions) * len(network.batches)
            for network in NETWORKS.values()
            if group in (None, network.group)
        )
        of = group or "all"
        for what, limit, name in (
            ("to the better of torch.compile and eager", BOUND_LIMIT, "bound"),
            ("the same with new inputs", NEW_LIMIT, "new"),
            ("kernels alone, to Inductor's", KERNELS_LIMIT, "alone"),
        ):
            ratios = [value for case in found if (value := getattr(case, name)) is not None]
            if not ratios:
                continue
            low, high = interval(ratios)
            mean = geometric_mean(ratios)
            title = f"{what}, {of}: geometric mean of {len(ratios)} of {many}"
            row = (title, f"≤ {limit:g}", f"{mean:.3f} ({low:.3f} to {high:.3f})")
            yield (*row, _verdict(round(mean, 3) <= limit) if len(ratios) == many else "not judged")
        if group is None and found:
            for what, name in (("", "bound"), (" with new inputs", "new")):
                worst = max(found, key=attrgetter(name))
                title = f"the worst{what}: {worst.title}"
                yield _at_most(title, getattr(worst, name), WORST_LIMIT)
    plain = [case.to_plain for case in measured if case.network.group == "tuned"]
    if ratios := [ratio for ratio in plain if ratio is not None]:
        title = f"to a plain session, tuned: geometric mean of {len(ratios)}"
        yield _at_most(title, geometric_mean(ratios), PLAIN_LIMIT)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where 95 % of geometric means lie of cases that are drawn from these again (bootstrap)."""
    generator, logs = random.Random(0), [math.log(ratio) for ratio in ratios]
    means = sorted(sum(generator.choices(logs, k=len(logs))) / len(logs) for _ in range(_RESAMPLES))
    return math.exp(means[_RESAMPLES // 40]), math.exp(means[-1 - _RESAMPLES // 40])


def _of_other_rows(records: Sequence[Record]) -> list[Row]:
    rows: list[Row] = []
    measured = _of(records, "load")
    if alone := [record for record in measured if record["build"]["at_once"] == 1]:
        longest = max(alone, key=lambda record: record["build"]["seconds"])
        seconds = longest["build"]["seconds"]
        title = f"builds, alone, of {len(alone)} networks: the longest, {_title(longest)}, s"
        held = _verdict(seconds <= BUILD_LIMIT)
        rows.append((title, f"≤ {BUILD_LIMIT:g}", f"{seconds:.0f}", held))
    ratios = [
        (medians[OURS] / medians[PLAIN], _title(record))
        for record in measured
        if PLAIN in (medians := _medians(record))
    ]
    if ratios:
        ratio, worst = max(ratios)
        title = (
            f"loads of {len(ratios)} networks to a plain session's first run: the worst, {worst}"
        )
        rows.append(_at_most(title, ratio, LOAD_LIMIT))
    for record in _of(records, "behind"):
        medians = _medians(record)
        if PLAIN in medians:
            rows.append(_at_most(f"ready after one size, {_title(record)}, to a plain session's "
                                 "first run", medians[behind.FIRST] / medians[PLAIN],
                                 LOAD_LIMIT))  # fmt: skip
    for record in _of(records, "first_answer"):
        medians = _medians(record)
        title = f"process start to the first answer, {_title(record)}"
        rows += [
            _at_most(f"{title}, to torch.compile", medians[OURS] / medians[TORCH],
                     COMPILE_START_LIMIT),
            _at_most(f"{title}, to a plain session", medians[OURS] / medians[PLAIN],
                     PLAIN_START_LIMIT),
        ]  # fmt: skip
    for record in _of(records, "lengths"):
        medians = _medians(record)
        ratio = medians[PLAIN] / medians[OURS]
        title = f"log-normal lengths, throughput to a plain session, {_case(record)}"
        rows.append((title, f"≥ {LENGTHS_LIMIT:g}", f"{ratio:.2f}", _verdict(
            round(ratio, 3) >= LENGTHS_LIMIT)))  # fmt: skip
    for record in _of(records, "overhead"):
        spent = _beyond(record)
        title = f"bind beyond ONNX Runtime's I/O binding, {_case(record)}, µs"
        held = _verdict(round(spent, 2) <= BIND_LIMIT)
        rows.append((title, f"≤ {BIND_LIMIT:g}", f"{spent:.2f}", held))
    for record in _of(records, "first_request"):
        medians = _medians(record)
        ratio = medians["first"] / medians["steady"]
        rows.append(_at_most(f"first request to later ones, {_title(record)}", ratio, FIRST_LIMIT))
    for record in _of(records, "memory"):
        taken = record["bytes"]
        ratio = taken["eight sizes"] / taken["one size"]
        rows.append(_at_most(f"device memory, 8 sizes to one, {_title(record)}", ratio,
                             MEMORY_LIMIT))  # fmt: skip
    return rows


def first_answers(records: Iterable[Record]) -> list[Row]:
    """Milliseconds from process start by side."""
    sides = (OURS, PLAIN, TORCH, "torch.compile, cached")
    return [
        (_title(record), *(f"{_medians(record)[side]:.0f}" for side in sides))
        for record in _of(records, "first_answer")
    ]


def stages(records: Iterable[Record]) -> list[Row]:
    """Milliseconds of the stages of a first answer, where they were told."""
    return [
        (_title(record), *(f"{_medians(record)[stage_label(stage)]:.0f}" for stage in STAGES))
        for record in _of(records, "first_answer")
        if stage_label(STAGES[0]) in record["samples"]
    ]


def first_requests(records: Iterable[Record]) -> list[Row]:
    """Milliseconds of the first request and of later ones."""
    return [
        (_title(record), *(f"{_medians(record)[what]:.3f}" for what in ("first", "steady")))
        for record in _of(records, "first_request")
    ]


def overheads(records: Iterable[Record]) -> list[Row]:
    """Microseconds of a call by side."""
    sides = ("I/O binding", "bind", "bind, with new inputs")
    return [
        (
            _case(record),
            *(f"{_medians(record)[s] * 1e3:.1f}" if s in record["samples"] else "" for s in sides),
        )
        for record in _of(records, "overhead")
    ]


def memories(records: Iterable[Record]) -> list[Row]:
    """MiB of the device."""
    return [
        (
            _title(record),
            *(f"{record['bytes'][what] / 2**20:.0f}" for what in ("one size", "eight sizes")),
        )
        for record in _of(records, "memory")
    ]


def memory_plans(records: Iterable[Record]) -> list[Row]:
    """MiB of the GPU's arena, planned and observed: at each size, and for all of them."""
    rows = []
    for record in _of(records, "memory_plan"):
        pairs = {
            "weights": record.get("weights"),
            **{
                name: found["device"]
                for name, found in record.get("sizes", {}).items()
                if "device" in found
            },
            **{
                f"arena of all sizes, {name}": found
                for name, found in record.get("growth", {}).items()
            },
        }
        rows += [
            (_case(record), name, *("" if n is None else f"{n / 2**20:.1f}" for n in found))
            for name, found in pairs.items()
            if found
        ]
    return rows


def length_rows(records: Iterable[Record]) -> list[Row]:
    """Requests a second by side, and the buckets."""
    rows = []
    for record in _of(records, "lengths"):
        rates = [record["requests"] / _medians(record)[side] * 1e3 for side in (OURS, PLAIN)]
        dim = record["dims"]["sequence"]
        buckets = dim.get("buckets", dim) if isinstance(dim, dict) else dim
        shown = (_case(record), *(f"{rate:.0f}" for rate in rates), str(buckets), record["how"])
        rows.append(shown)
    return rows


def builds(records: Iterable[Record]) -> list[Row]:
    """Seconds of a build, of its longest stages, and how many builds ran at once."""
    rows: list[Row] = []
    for record in _of(records, "load"):
        built = record["build"]
        longest = sorted(built["stages"].items(), key=lambda item: -item[1])[:_LONGEST]
        stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest)
        rows.append((_title(record), f"{built['seconds']:.0f}", str(built["at_once"]), stages))
    return rows


def loads(records: Iterable[Record]) -> list[Row]:
    """Seconds and MiB of the device of a load, and of a plain session and its first run."""
    return [
        (
            _title(record),
            *(f"{_medians(record)[s] / 1e3:.2f}" if s in record["samples"] else "" for s in sides),
            *(f"{record['bytes'][s] / 2**20:.0f}" if record["bytes"].get(s) else "" for s in sides),
        )
        for record in _of(records, "load")
        for sides in [(OURS, PLAIN)]
    ]


def captures_behind(records: Iterable[Record]) -> list[Row]:
    """Seconds of loads, of a plain session and its first run, and of what goes on behind a load."""
    sides = (behind.ALL, behind.FIRST, PLAIN, behind.CAPTURED, behind.LONGEST)
    return [
        (
            _title(record),
            *(f"{_medians(record)[s] / 1e3:.2f}" if s in record["samples"] else "" for s in sides),
        )
        for record in _of(records, "behind")
    ]


def quantized_weights(records: Iterable[Record]) -> list[Row]:
    """By form: milliseconds at each batch, MiB of the device, and the largest difference."""
    rows: list[Row] = []
    for record in _of(records, "weights"):
        medians = _medians(record)
        for label in weights.FORMS:
            if label in record["refused"]:
                rows.append((_title(record), label, record["refused"][label], "", ""))
                continue
            own = {name: ms for name, ms in medians.items() if name.startswith(f"{label}, batch ")}
            spent = " / ".join(f"{ms:.3f}" for ms in own.values())
            taken = record["bytes"].get(label)
            errors = [record["errors"][name] for name in own if name in record["errors"]]
            rows.append(
                (
                    _title(record),
                    label,
                    spent,
                    f"{taken / 2**20:.0f}" if taken else "",
                    f"{max(errors):.2g}" if errors else "",
                )
            )
    return rows


def kernels(records: Sequence[Record]) -> list[Row]:
    """Of the cases whose kernels take longer than Inductor's: the longest kernels of ours."""
    rows: list[Row] = []
    for case in cases(records):
        if case.alone is None or case.alone <= KERNELS_LIMIT:
            continue
        name = case_name(case.network.name, case.precision, case.batch)
        record = merged(records)["kernels", name]
        shown = [
            f"{1e6 * seconds:.0f} µs in {count:g} `{_shortened(kernel)}`"
            for kernel, seconds, count in record["kernels"][OURS]["longest"][:_LONGEST]
        ]
        rows.append((case.title, f"{case.alone:.2f}", ", ".join(shown)))
    return rows


def chains(records: Iterable[Record]) -> list[Row]:
    """Microseconds of pointwise nodes, and what one kernel for each chain of them could save."""
    return [
        (
            _title(record),
            *(
                f"{1e6 * record[what]:.0f}"
                for what in ("nodes_seconds", "single_seconds", "chains_seconds", "floor_seconds")
            ),
            f"{record['chains']} of {record['chained_nodes']}",
            f"{record['gain_seconds'] / max(record['nodes_seconds'], 1e-12):.0%}",
        )
        for record in _of(records, "chains")
    ]


def convolutions(records: Iterable[Record]) -> list[Row]:
    """Forms of sessions with convolutions: first runs, captured calls and kernels, in ms."""
    return [
        (
            _title(record),
            form,
            f"{1e3 * record['first'][form][1]:.0f}",
            f"{1e3 * median(seconds):.3f}",
            f"{1e3 * record['kernels'][form]['seconds']:.3f}",
        )
        for record in _of(records, "convolutions")
        for form, seconds in record["samples"].items()
    ]


def _shortened(kernel: str) -> str:
    """A kernel's name without what a template is filled with, and nothing that ends a cell."""
    return kernel.partition("<")[0].replace("|", "/").replace("`", "'")[-60:]


# Title, header and rows of each further table.
SECTIONS: tuple[tuple[str, Row, Callable[[Sequence[Record]], list[Row]]], ...] = (
    (
        f"Kernels that take more than {KERNELS_LIMIT:g} of Inductor's, and the longest of them",
        ("Case", "to Inductor's", "longest"),
        kernels,
    ),
    (
        "Chains of pointwise nodes, µs: an estimate of what one kernel for each could save",
        ("Case", "all nodes", "single ones", "chains", "their floor", "chains of nodes", "saved"),
        chains,
    ),
    (
        "Options of convolutions, ms",
        ("Case", "form", "first run of a size", "captured call", "kernels"),
        convolutions,
    ),
    ("Builds, s", ("Case", "whole", "at once", "longest stages"), builds),
    (
        "A load, and a plain session with its first run: s, and MiB of the device",
        ("Case", f"{OURS}, s", f"{PLAIN}, s", f"{OURS}, MiB", f"{PLAIN}, MiB"),
        loads,
    ),
    (
        "A load of several captured sizes, s: all before it is done, or one, and others behind",
        ("Case", "all", "one", PLAIN, "until all are captured", "longest call meanwhile"),
        captures_behind,
    ),
    (
        "Weights in 8 and 4 bits: bound calls at each batch, and differences to float16's answers",
        ("Case", "form", "ms", "MiB", "difference"),
        quantized_weights,
    ),
    (
        "Process start to the first answer, ms",
        ("Case", OURS, PLAIN, TORCH, "torch.compile with its cache"),
        first_answers,
    ),
    (
        f"Of that, by the stages of {OURS}, ms; `waits` are for imports and the GPU's context",
        ("Case", *STAGES),
        stages,
    ),
    ("First request after `ready`, ms", ("Case", "first", "later"), first_requests),
    (
        "A call of one Relu, µs",
        ("Case", "I/O binding", "bind", "bind, with new inputs"),
        overheads,
    ),
    ("Device memory by captured sizes, MiB", ("Case", "one size", "eight sizes"), memories),
    (
        "Arenas on the GPU, MiB; kernels' workspace is not planned",
        ("Case", "what", "planned", "observed"),
        memory_plans,
    ),
    (
        "Log-normal lengths, requests a second",
        ("Case", OURS, PLAIN, "buckets", "how"),
        length_rows,
    ),
)


def _of(records: Iterable[Record], row: str) -> list[Record]:
    found = merged(records)
    return [record for key, record in found.items() if key[0] == row and not why_failed(record)]


def _medians(record: Record) -> dict[str, float]:
    return {name: median(found) * 1e3 for name, found in record["samples"].items()}


def _beyond(record: Record) -> float:
    medians = _medians(record)
    return (medians["bind"] - medians["I/O binding"]) * 1e3


def _title(record: Record) -> str:
    network, precision, *batch = record["case"].split("/")
    at, mark = "".join(f", batch {size}" for size in batch), record.get("mark", "")
    return f"{NETWORKS[network].title}, {PRECISION_TITLES[precision]}{at}{mark}"


def _case(record: Record) -> str:
    return f"{record['case']}{record.get('mark', '')}"


def _at_most(what: str, ratio: float, limit: float) -> Row:
    return what, f"≤ {limit:g}", f"{ratio:.3f}", _verdict(round(ratio, 3) <= limit)


def _verdict(held: bool) -> str:
    return "yes" if held else "**no**"
