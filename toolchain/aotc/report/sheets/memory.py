"""What is said of memory: as planned and as observed at build, by size, and of the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aotc.base.text import size
from aotc.report.sheet import Bars, Sheet, fixture_in_words, noticed, provider, stated, table
from aotc.spec.evidence import MemoryAtSizes, MixedCalls
from aotc.spec.memory import MemoryTerm, PlannedCopies, PlannedMemory, PlannedRun
from aotc.spec.reports import VariantSummary

# Buffers that a row names, and the lowest power that is written as a number.
_NAMED: Final = 2
_WRITTEN_OUT: Final = 4
_ARENA_NOTE = (
    "As ONNX Runtime counts its own arenas, of a session that was called with one size: the peak "
    "in use during calls, without weights and the caller's inputs; and what the arena took from "
    "the system, weights that were copied or packed included."
)
_PROCESS_NOTE = (
    "Of a process that opens the variant and calls it with its largest inputs. Private is what it "
    "alone wrote; mapped weights are file-backed, as libraries are."
)
_PLAN_NOTE = (
    "By the memory plan of the graph as it is loaded: what buffers, outputs and workspace ask for "
    "at once, at the node that is named; the arena's bytes in use for it, in whole chunks, beside "
    "what was observed of the same calls; what the arena takes; and what all values would take "
    "beside the buffers that they share. Sizes that values decide, as behind NonZero, are those of "
    "the fixtures: other inputs may take more."
)
_GPU_NOTE = (
    "The arena on the GPU, by the same plan: values there, inputs that are copied to it, and "
    "outputs. What kernels and their libraries need while they run is not planned: it is what was "
    "observed above the plan."
)
_DEVICE_NOTE = (
    "Each session on the GPU has the weights. An arena keeps what calls of all sizes took; a "
    "captured size keeps its own until its session ends."
)
_COPIES_NOTE = (
    "In each call, from one memory or provider to another, where the caller's arrays are on the "
    "host. Values that providers of one memory share need not be copied."
)
_LIVE_NOTE = (
    "What is asked for at once at the largest size; a size that was not run has a figure so."
)


def memory_sheet(variants: Sequence[VariantSummary]) -> Sheet:
    """Memory as planned, then as observed; tables without rows where nothing is known."""
    return [*planned_sheet(variants), *observed_sheet(variants)]


def planned_sheet(variants: Sequence[VariantSummary]) -> Sheet:
    """The memory plan of each variant, beside what was observed, and its curve by size."""
    known = [(each, each.planned) for each in variants if each.planned is not None]
    rows = [(each, run) for each, plan in known for run in plan.at]
    curves = [
        Bars(
            f"planned memory of {each.name}, by size{_below(each)}",
            ("bytes", "", "in use"),
            [(sizes_in_words(point.sizes), point.bytes, size(point.bytes)) for point in plan.curve],
        )
        for each, plan in known
        if plan.curve
    ]
    return [
        table(
            "memory planned",
            rows,
            ("variant", lambda row: row[0].name),
            ("sizes", lambda row: sizes_in_words(row[1].sizes) or "as they are"),
            ("#live", lambda row: size(row[1].live_bytes)),
            ("at", lambda row: row[1].op.rpartition("::")[2]),
            ("#planned peak", lambda row: size(row[1].peak_bytes)),
            ("#observed", _observed),
            ("#arena", lambda row: size(row[1].arena_bytes)),
            ("#values", lambda row: size(row[1].asked_bytes)),
            ("#buffers", lambda row: size(row[1].buffer_bytes)),
            ("#workspace", lambda row: size(row[1].workspace_bytes)),
            ("largest buffers", _alive),
            extra=5,
            note=_PLAN_NOTE,
        ),
        table(
            "plan of buffers",
            [(each.name, plan) for each, plan in known if plan.at],
            ("variant", lambda row: row[0]),
            ("#weights mapped", lambda row: size(row[1].mapped_bytes)),
            ("#copied", lambda row: size(row[1].copied_bytes)),
            ("#packed", lambda row: size(row[1].packed_bytes)),
            ("#values", lambda row: str(row[1].values)),
            ("#views", lambda row: str(row[1].views)),
            ("#in place", lambda row: str(row[1].in_place)),
            ("#buffer taken again", lambda row: str(row[1].reused)),
            ("#without rule", lambda row: str(row[1].unknown)),
            extra=2,
        ),
        table(
            "live memory by dims",
            [(each.name, plan) for each, plan in known if any(term.dims for term in plan.live)],
            ("variant", lambda row: row[0]),
            ("bytes", lambda row: live_in_words(row[1])),
            note=_LIVE_NOTE,
        ),
        *curves,
        *_on_device(known),
        table(
            "copies",
            [(each.name, found) for each, plan in known for found in plan.copies],
            ("variant", lambda row: row[0]),
            ("sizes", lambda row: sizes_in_words(row[1].sizes) or "as they are"),
            ("from", lambda row: _side(row[1].source)),
            ("to", lambda row: _side(row[1].target)),
            ("#values", lambda row: str(row[1].values)),
            ("#bytes", _copied),
            note=_COPIES_NOTE,
        ),
        table(
            "memory not planned",
            [(each.name, plan.why_not) for each, plan in known if plan.why_not],
            ("variant", lambda row: row[0]),
            ("", lambda row: row[1]),
        ),
    ]


def _on_device(known: Sequence[tuple[VariantSummary, PlannedMemory]]) -> Sheet:
    """What is planned of GPUs: by size, in all, and by captured size."""
    there = [(each, plan.device) for each, plan in known if plan.device is not None]
    return [
        table(
            "memory planned on the GPU",
            [(each, run) for each, device in there for run in device.at],
            ("variant", lambda row: row[0].name),
            ("sizes", lambda row: sizes_in_words(row[1].sizes) or "as they are"),
            ("#live", lambda row: size(row[1].live_bytes)),
            ("at", lambda row: row[1].op.rpartition("::")[2]),
            ("#planned peak", lambda row: size(row[1].peak_bytes)),
            ("#observed", lambda row: stated(_seen_there(row), size)),
            ("#not planned", _above),
            ("#inputs", lambda row: size(row[1].input_bytes)),
            ("#outputs", lambda row: size(row[1].output_bytes)),
            ("#arena", lambda row: size(row[1].arena_bytes)),
            ("largest buffers", _alive),
            extra=4,
            note=_GPU_NOTE,
        ),
        table(
            "plan of the GPU",
            there,
            ("variant", lambda row: row[0].name),
            ("#weights", lambda row: size(row[1].weights_bytes)),
            ("#sessions", lambda row: str(row[1].sessions)),
            ("growth", lambda row: row[1].growth),
            ("#arena that doubles", lambda row: size(row[1].doubling_bytes)),
            ("#that grows exactly", lambda row: size(row[1].exact_bytes)),
            ("#captured sizes", lambda row: str(len(row[1].captures))),
            ("#they hold", lambda row: size(row[1].captured_bytes)),
            note=_DEVICE_NOTE,
        ),
        table(
            "captured sizes by plan",
            [(each.name, found) for each, device in there for found in device.captures],
            ("variant", lambda row: row[0]),
            ("sizes", lambda row: sizes_in_words(row[1].sizes) or "as they are"),
            ("#inputs", lambda row: size(row[1].buffers_bytes)),
            ("#arena", lambda row: size(row[1].arena_bytes)),
        ),
    ]


def _side(name: str) -> str:
    return provider(name) if name else "caller"


def _copied(row: tuple[str, PlannedCopies]) -> str:
    found = row[1]
    return f"at least {size(found.bytes)}" if found.unknown else size(found.bytes)


def _above(row: tuple[VariantSummary, PlannedRun]) -> str:
    """What was observed above the plan of the same calls."""
    seen = _seen_there(row)
    return "-" if seen is None else size(max(seen - row[1].peak_bytes, 0))


def live_in_words(plan: PlannedMemory) -> str:
    """The sum of products, such as `36,864·batch·seq + 24·batch·seq²`."""
    return " + ".join(_term(term) for term in plan.live) or "0"


def _term(term: MemoryTerm) -> str:
    number = f"{term.bytes:,.6g}" if term.bytes % 1 else f"{round(term.bytes):,}"
    powers = [
        dim + ("", "", "²", "³")[term.dims.count(dim)]
        if term.dims.count(dim) < _WRITTEN_OUT
        else f"{dim}^{term.dims.count(dim)}"
        for dim in dict.fromkeys(term.dims)
    ]
    return "·".join([number, *powers])


def _observed(row: tuple[VariantSummary, PlannedRun]) -> Any:
    """What was in use in the same calls, and by how much the plan is off; stands out if below."""
    run, seen = row[1], _seen(row)
    if seen is None:
        return "-"
    off = (run.peak_bytes - seen) / seen if seen else 0.0
    text = f"{size(seen)} ({off:+.0%})"
    return noticed(text) if run.peak_bytes < seen else text


def _below(variant: VariantSummary) -> str:
    """By how much more was observed than planned, at the size where that is most; or nothing."""
    runs = [(variant, run) for run in (variant.planned.at if variant.planned else ())]
    over = max([(_seen(row) or 0) / row[1].peak_bytes for row in runs if row[1].peak_bytes] or [0])
    return f" (up to {over - 1:.0%} more was observed)" if over > 1 else ""


def _seen(row: tuple[VariantSummary, PlannedRun]) -> int | None:
    """What was in use in calls of the size; None: they were not observed."""
    found = _observed_at(row)
    return found.activation_bytes if found is not None else None


def _seen_there(row: tuple[VariantSummary, PlannedRun]) -> int | None:
    """The same of the arena on the GPU."""
    found = _observed_at(row)
    return found.device_activation_bytes if found is not None else None


def _observed_at(row: tuple[VariantSummary, PlannedRun]) -> MemoryAtSizes | None:
    variant, run = row
    at = variant.observed.at if variant.observed is not None else ()
    return next((found for found in at if run.fixture and found.fixture == run.fixture), None)


def _alive(row: tuple[VariantSummary, PlannedRun]) -> str:
    """The first of the buffers that are in use at the peak, and how many more are."""
    run = row[1]
    named = ", ".join(f"{each.value} {size(each.bytes)}" for each in run.alive[:_NAMED])
    more = run.alive_count - min(len(run.alive), _NAMED)
    return named + (f" and {more} more" if more > 0 else "")


def sizes_in_words(sizes: Mapping[str, int]) -> str:
    """Such as `batch=1, seq=16`."""
    return ", ".join(f"{name}={number}" for name, number in sizes.items())


def observed_sheet(variants: Sequence[VariantSummary]) -> Sheet:
    """Memory of each variant that was observed; tables without rows if none was."""
    known = [(each.name, each.observed) for each in variants if each.observed is not None]
    at = [(name, found) for name, memory in known for found in memory.at]
    moments = [
        (name, moment, found)
        for name, memory in known
        for moment, found in (
            ("before the load", memory.before),
            ("loaded", memory.after_load),
            ("after calls", memory.after_largest),
        )
        if found is not None
    ]
    on_device: list[Any] = []
    if any(found.device is not None for _, found in at):
        on_device = [
            ("#activations on the GPU", lambda row: stated(row[1].device_activation_bytes, size)),
            ("#its arena", lambda row: size(row[1].device.allocated) if row[1].device else "-"),
        ]
    return [
        table(
            "memory observed",
            at,
            ("variant", lambda row: row[0]),
            ("sizes", lambda row: _sizes(row[1])),
            ("#activations", lambda row: size(row[1].activation_bytes)),
            *on_device,
            ("#arena", lambda row: size(row[1].arena.allocated)),
            ("#never used", lambda row: f"{row[1].unused_share:.0%}"),
            ("#first call", lambda row: size(row[1].first_bytes)),
            ("#outputs", lambda row: size(row[1].output_bytes)),
            extra=2,
            note=_ARENA_NOTE,
        ),
        table(
            "mixed calls",
            [(name, memory.mixed) for name, memory in known if memory.mixed is not None],
            ("variant", lambda row: row[0]),
            ("calls", lambda row: _calls(row[1])),
            ("#arenas, first round", lambda row: size(row[1].first_allocated)),
            ("#at the end", lambda row: _at_end(row[1])),
            ("#private, first round", lambda row: stated(row[1].first_private, size)),
            ("#at the end", lambda row: stated(row[1].last_private, size)),
        ),
        table(
            "process",
            moments,
            ("variant", lambda row: row[0]),
            ("", lambda row: row[1]),
            ("#resident", lambda row: size(row[2].resident)),
            ("#private", lambda row: size(row[2].private)),
            ("#file-backed", lambda row: size(row[2].file_backed)),
            ("#shared", lambda row: size(row[2].shared)),
            note=_PROCESS_NOTE,
        ),
        table(
            "memory not observed",
            [(name, memory.why_not) for name, memory in known if memory.why_not],
            ("variant", lambda row: row[0]),
            ("", lambda row: row[1]),
        ),
    ]


def _sizes(found: MemoryAtSizes) -> str:
    """The fixture, and the sizes of its dims."""
    dims = sizes_in_words(found.sizes)
    return fixture_in_words(found.fixture) + (f" ({dims})" if dims else "")


def _calls(mixed: MixedCalls) -> str:
    """How many of how many sizes, and of how many if there was no time for all."""
    fewer = f" (no time for {mixed.planned_calls})" if mixed.calls < mixed.planned_calls else ""
    return f"{mixed.calls} of {mixed.sizes} sizes{fewer}"


def _at_end(mixed: MixedCalls) -> Any:
    """What arenas had taken then; it stands out if they grew."""
    text = size(mixed.last_allocated)
    return noticed(text) if mixed.grown_arena else text
