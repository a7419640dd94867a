"""What is said of memory as it was observed at build: arenas by size, mixed calls, the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotc.base.text import size
from aotc.report.sheet import Sheet, fixture_in_words, noticed, stated, table
from aotc.spec.evidence import MemoryAtSizes, MixedCalls
from aotc.spec.reports import VariantSummary

_ARENA_NOTE = (
    "As ONNX Runtime counts its own arenas, of a session that was called with one size: the peak "
    "in use during calls, without weights and the caller's inputs; and what the arena took from "
    "the system, weights that were copied or packed included."
)
_PROCESS_NOTE = (
    "Of a process that opens the variant and calls it with its largest inputs. Private is what it "
    "alone wrote; mapped weights are file-backed, as libraries are."
)


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
    dims = ", ".join(f"{name}={number}" for name, number in found.sizes.items())
    return fixture_in_words(found.fixture) + (f" ({dims})" if dims else "")


def _calls(mixed: MixedCalls) -> str:
    """How many of how many sizes, and of how many if there was no time for all."""
    fewer = f" (no time for {mixed.planned_calls})" if mixed.calls < mixed.planned_calls else ""
    return f"{mixed.calls} of {mixed.sizes} sizes{fewer}"


def _at_end(mixed: MixedCalls) -> Any:
    """What arenas had taken then; it stands out if they grew."""
    text = size(mixed.last_allocated)
    return noticed(text) if mixed.grown_arena else text
