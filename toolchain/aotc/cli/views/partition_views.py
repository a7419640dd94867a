"""What inspect and build show of providers: shares, partitions, transfers, refusals, trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aotc.cli.render import count, duration, provider, section, size
from aotc.contract.manifest.divided_graph import Partition, PartitionReport, ProviderShare, Transfer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.contract.results.reports import VariantSummary
    from aotc.contract.results.tuning import TuningCandidate

# Of each variant; the full lists stand in the manifest and in `--json`.
_LISTED = 8


def partitions_view(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """Sections on variants that several providers share; none where no variant is."""
    divided = [
        (variant.name, variant.partitioning)
        for variant in variants
        if variant.partitioning is not None
    ]
    if not divided:
        return []
    shares = [(name, share) for name, report in divided for share in report.providers]
    parts = [
        section(
            "providers",
            ("", "nodes", "compute", "partitions", "operations and bytes, optimal", "largest"),
            [_share(name, share) for name, share in shares],
        ),
        section(
            "partitions",
            ("", "runs on", "nodes", "operators"),
            [row for name, report in divided for row in _partitions(name, report)],
        ),
    ]
    transfers = [row for name, report in divided for row in _transfers(name, report)]
    if transfers:
        parts.append(section("transfers", ("value", "from", "to", "optimal", "largest"), transfers))
    refusals = [row for name, report in divided for row in _refusals(name, report)]
    if refusals:
        parts.append(section("refusals", ("node", "operator", "refused by", "why"), refusals))
    return parts


def tuning_view(table: Sequence[TuningCandidate]) -> list[RenderableType]:
    """What `--tune` and `precision: auto` tried, what was taken marked; nothing without a table."""
    if not table:
        return []
    # What only CUDA has is shown where it was tried.
    columns = [
        name for name in ("fusion", "layout") if len({getattr(row, name) for row in table}) > 1
    ]
    keeps = any(row.kept for row in table)
    return [
        section(
            "tuning",
            (
                "providers",
                "precision",
                *(("in float32",) if keeps else ()),
                "ISA",
                "level",
                *columns,
                "threads",
                "median",
                "",
            ),
            [
                (
                    candidate.variant,
                    ", ".join(candidate.providers),
                    _precision(candidate),
                    *((_kept(candidate),) if keeps else ()),
                    candidate.isa,
                    candidate.optimization,
                    *(getattr(candidate, name) for name in columns),
                    str(candidate.threads or "all"),
                    duration(candidate.median_seconds)
                    if candidate.median_seconds is not None
                    else "-",
                    "chosen" if candidate.chosen else candidate.reason[:80],
                )
                for candidate in table
            ],
        )
    ]


def _precision(candidate: TuningCandidate) -> str:
    if candidate.form == "auto":
        return candidate.precision
    return f"{candidate.precision} {candidate.form}"


def _kept(candidate: TuningCandidate) -> str:
    return count(len(candidate.kept), "node") if candidate.kept else ""


def _share(name: str, share: ProviderShare) -> tuple[str, ...]:
    return (
        name,
        provider(share.provider),
        f"{share.nodes}, {share.node_share:.0%}",
        f"{share.flops_share:.1%}",
        str(share.partitions),
        f"{_operations(share.opt.flops)}, {size(share.opt.bytes)}",
        f"{_operations(share.max.flops)}, {size(share.max.bytes)}",
    )


def _operations(number: int) -> str:
    value = float(number)
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g} {unit}FLOP"


def _partitions(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            name,
            partition.name,
            provider(partition.provider) + (", compiled" if partition.compiled else ""),
            str(partition.nodes),
            _ops(partition),
        )
        for partition in report.partitions[:_LISTED]
    ]
    more = len(report.partitions) - _LISTED
    if more > 0:
        rows.append((name, f"and {more} more", "", "", ""))
    return rows


def _ops(partition: Partition) -> str:
    ordered: Mapping[str, int] = partition.ops
    named = sorted(ordered, key=lambda op: -ordered[op])
    text = ", ".join(f"{ordered[op]} {op}" for op in named[:4])
    inside = f" in {partition.subgraph}" if partition.subgraph else ""
    return text + (f", {count(len(named) - 4, 'other')}" if len(named) > 4 else "") + inside


def _transfers(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (name, transfer.value, _side(transfer.source), _side(transfer.target), *_bytes(transfer))
        for transfer in report.transfers[:_LISTED]
    ]
    total = len(report.transfers)
    if total > 1:
        rows.append((name, f"all {total}", "", "", *(_sum(report, at) for at in _SIZES)))
    return rows


_SIZES = ("bytes", "bytes_max")


def _sum(report: PartitionReport, at: str) -> str:
    sizes = [getattr(transfer, at) for transfer in report.transfers]
    text = size(sum(number or 0 for number in sizes))
    return f"at least {text}" if None in sizes else text


def _side(name: str) -> str:
    return provider(name) if name else "caller"


def _bytes(transfer: Transfer) -> tuple[str, str]:
    optimal, largest = transfer.bytes, transfer.bytes_max
    return (
        size(optimal) if optimal is not None else "unknown",
        size(largest) if largest is not None else "unknown",
    )


def _refusals(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (name, refusal.node, refusal.op, provider(refusal.provider), refusal.reason[:160])
        for refusal in report.refusals[:_LISTED]
    ]
    more = len(report.refusals) - _LISTED
    if more > 0:
        rows.append((name, f"and {more} more", "", "", ""))
    return rows
