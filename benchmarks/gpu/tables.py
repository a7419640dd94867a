"""Rows of the page's tables: ratios of medians, their geometric means, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from benchmarks.gpu.cases import JUDGED, NETWORKS, PRECISION_TITLES, PRECISIONS, Network
from benchmarks.gpu.results import Record, merged, why_failed
from benchmarks.gpu.rows.pauses import PAUSES, label
from benchmarks.gpu.stages import STAGES
from benchmarks.gpu.stages import label as stage_label

Row = tuple[str, ...]
OURS, TORCH, PLAIN = "aotc", "torch.compile", "plain session"
COPYING = "aotc, with new inputs"
MEAN_LIMIT, WORST_LIMIT, PLAIN_LIMIT = 0.9, 1.1, 0.6
COMPILE_START_LIMIT, PLAIN_START_LIMIT = 0.1, 1.0
LENGTHS_LIMIT, BIND_LIMIT, MEMORY_LIMIT, FIRST_LIMIT = 1.5, 10.0, 1.3, 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Medians of one case in ms, and ratios, each within the run that measured both sides."""

    network: Network
    precision: str
    batch: int
    ours: float
    copying: float | None
    torch: float
    autotuned: float | None
    plain: float
    to_torch: float
    to_better: float
    to_plain: float
    mark: str = ""

    @property
    def title(self) -> str:
        """As the table names it."""
        precision = PRECISION_TITLES[self.precision]
        return f"{self.network.title}, {precision}, batch {self.batch}{self.mark}"


def cases(records: Iterable[Record]) -> list[Case]:
    """The measured cases, in the order of networks, precisions and batches."""
    found = merged(records)
    result = []
    for (row, name), record in found.items():
        if row != "latency" or why_failed(record):
            continue
        network, precision, batch = name.split("/")
        milliseconds = _medians(record)
        mark = record.get("mark", "")
        autotuned, to_torch = None, milliseconds[OURS] / milliseconds[TORCH]
        to_better = to_torch
        other = found.get(("autotune", name))
        if other is not None and not why_failed(other):
            tuned = _medians(other)
            autotuned = tuned[TORCH]
            if (other_mark := other.get("mark", "")) != mark:
                mark += f" with max-autotune{other_mark or ' of the newest'}"
            to_better = max(to_torch, tuned[OURS] / tuned[TORCH])
        result.append(
            Case(
                network=NETWORKS[network],
                precision=precision,
                batch=int(batch),
                ours=milliseconds[OURS],
                copying=milliseconds.get(COPYING),
                mark=mark,
                torch=milliseconds[TORCH],
                autotuned=autotuned,
                plain=milliseconds[PLAIN],
                to_torch=to_torch,
                to_better=to_better,
                to_plain=milliseconds[OURS] / milliseconds[PLAIN],
            )
        )
    names, kinds = list(NETWORKS), list(PRECISION_TITLES)
    result.sort(key=lambda c: (names.index(c.network.name), kinds.index(c.precision), c.batch))
    return result


def latency_table(records: Iterable[Record]) -> list[Row]:
    """A row for each case."""
    return [
        (
            case.title,
            f"{case.ours:.3f}",
            "" if case.copying is None else f"{case.copying:.3f}",
            f"{case.torch:.3f}",
            "" if case.autotuned is None else f"{case.autotuned:.3f}",
            f"{case.plain:.3f}",
            f"{case.to_torch:.2f}",
            f"{case.to_better:.2f}",
            f"{case.to_plain:.2f}",
        )
        for case in cases(records)
    ]


def summary(records: Sequence[Record]) -> list[Row]:
    """What is asked, what was measured, and whether it holds.

    The limits of latency are for all cases: there is no verdict on fewer.
    """
    judged = [case for case in cases(records) if case.network.judged]
    rows: list[Row] = []
    if judged:
        wanted = sum(len(NETWORKS[name].batches) for name in JUDGED) * len(PRECISIONS)
        many = f"{len(judged)} of {wanted} cases"
        better = [case.to_better for case in judged]
        worst = max(judged, key=lambda case: case.to_better)
        mean = geometric_mean(better)
        rows += [
            _at_most(f"to torch.compile, geometric mean of {many}", mean, MEAN_LIMIT),
            _at_most(f"to torch.compile, the worst: {worst.title}", worst.to_better, WORST_LIMIT),
            _at_most(
                f"to a plain session, geometric mean of {many}",
                geometric_mean([case.to_plain for case in judged]),
                PLAIN_LIMIT,
            ),
        ]
        if len(judged) < wanted:
            rows = [(*row[:3], "not judged") for row in rows]
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


def requests_after_pauses(records: Iterable[Record]) -> list[Row]:
    """Milliseconds of a request by pause and side."""
    return [
        (
            _title(record),
            *(
                " / ".join(f"{_medians(record)[label(side, pause)]:.2f}" for side in (OURS, PLAIN))
                for pause in PAUSES
            ),
        )
        for record in _of(records, "pauses")
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


def statics(records: Iterable[Record]) -> list[Row]:
    """Milliseconds of one dynamic variant and of a static one, and the ratio."""
    rows = []
    for record in _of(records, "static"):
        medians = _medians(record)
        network, precision, batch = record["case"].split("/")
        title = f"{NETWORKS[network].title}, {PRECISION_TITLES[precision]}, batch {batch}"
        rows.append(
            (
                f"{title}{record.get('mark', '')}",
                *(f"{medians[form]:.3f}" for form in ("dynamic", "static")),
                f"{medians['static'] / medians['dynamic']:.2f}",
            )
        )
    return rows


# Title, header and rows of each further table.
SECTIONS: tuple[tuple[str, Row, Callable[[Iterable[Record]], list[Row]]], ...] = (
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
        f"A request after a pause, ms: {OURS} / {PLAIN}",
        ("Case", "none", *(f"{pause * 1e3:g} ms" for pause in PAUSES[1:])),
        requests_after_pauses,
    ),
    (
        "A call of one Relu, µs",
        ("Case", "I/O binding", "bind", "bind, with new inputs"),
        overheads,
    ),
    ("Device memory, MiB", ("Case", "one size", "eight sizes"), memories),
    (
        "A static variant for each captured size, ms",
        ("Case", "one dynamic variant", "static variants", "static to dynamic"),
        statics,
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
    network, _, precision = record["case"].partition("/")
    mark = record.get("mark", "")
    return f"{NETWORKS[network].title}, {PRECISION_TITLES[precision]}{mark}"


def _case(record: Record) -> str:
    return f"{record['case']}{record.get('mark', '')}"


def _at_most(what: str, ratio: float, limit: float) -> Row:
    return what, f"≤ {limit:g}", f"{ratio:.3f}", _verdict(round(ratio, 3) <= limit)


def _verdict(held: bool) -> str:
    return "yes" if held else "**no**"
