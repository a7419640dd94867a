"""The profile's fallback policy and budgets, held against a placement.

The same rules judge a promise at build, and at load what ONNX Runtime really did where the
promise was only predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from aotc.contract.known_providers import CPU
from aotc.contract.manifest.divided_graph import PartitionReport, RefusedNode
from aotc.contract.manifest.variant import NodePlacement, Placement, TransferTotals
from aotc.contract.profile import Profile
from aotc.errors import AotcError
from aotc.records import record

# Rows of a table; all nodes are in the manifest and in `--json`.
_MOST_ROWS = 200
_NONE = TransferTotals()


def breaches(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    *,
    report: PartitionReport | None,
    transfers: TransferTotals = _NONE,
    where: str = "",
) -> list[AotcError]:
    """AOTC-P001 for nodes where the policy allows none, P002 for each budget that is exceeded.

    `providers` are those of the variant: ORT's name by the profile's.  `report` says why nodes are
    where they are, and how compute is shared; None where one provider takes all.
    """
    found = _strays(profile, providers, placement, report, where)
    rows = _rows(placement, report)
    for each in _budgets(profile, providers, placement, report, transfers):
        found.append(
            AotcError(
                "AOTC-P002",
                each.what,
                where=where,
                expected=each.expected,
                found=each.found,
                fix=f"{each.fix}, or change the model where the table says.",
                rows=rows if rows else (),
            )
        )
    return found


def _strays(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    report: PartitionReport | None,
    where: str,
) -> list[AotcError]:
    """Nodes on a provider that the variant does not have."""
    allowed = set(providers.values())
    if profile.fallback.policy == "cpu":
        allowed.add(CPU)
    strays = [node for node in placement.nodes if node.provider not in allowed]
    if not strays:
        return []
    first = strays[0]
    return [
        AotcError(
            "AOTC-P001",
            f"{len(strays)} nodes run where the profile does not allow, "
            f"the first is {first.name} ({first.op}) on {first.provider}",
            where=where,
            expected=", ".join(providers),
            found=", ".join(sorted({node.provider for node in strays})),
            rows=_table(strays, report),
        )
    ]


@record(kw_only=False)
class _Breach:
    what: str
    expected: str
    found: str
    fix: str


def _budgets(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    report: PartitionReport | None,
    transfers: TransferTotals,
) -> Iterator[_Breach]:
    budgets = profile.budgets
    shares = _node_shares(placement, report)
    cpu = shares.get(CPU, 0.0)
    most = profile.fallback.max_node_share
    first_choice_is_cpu = next(iter(providers.values()), "") == CPU
    if not first_choice_is_cpu and cpu > most:
        what = "the share of nodes on the CPU exceeds fallback.max_node_share"
        yield _Breach(what, f"<= {most:g}", f"{cpu:g}", "Raise fallback.max_node_share")
    for name, budget in budgets.providers.items():
        if name not in providers:
            continue
        share = shares.get(providers[name], 0.0)
        least, most = budget.min_node_share, budget.max_node_share
        if not least <= share <= most:
            fix = "Lower min_node_share" if share < least else "Raise max_node_share"
            yield _Breach(
                f"the share of nodes on {name} is outside of its budget",
                f"{least:g}..{most:g}",
                f"{share:g}",
                f"{fix} of budgets.providers.{name}",
            )
    if budgets.cpu_share is not None and not first_choice_is_cpu:
        share = _cpu_compute(placement, report)
        if share > budgets.cpu_share:
            what = "the share of compute on the CPU exceeds budgets.cpu_share"
            expected = f"<= {budgets.cpu_share:g}"
            yield _Breach(what, expected, f"{share:g}", "Raise budgets.cpu_share")
    # What was predicted is judged by what ORT really did, once that is known.
    foreseen = report is not None and (placement.how == "predicted" or report.how == "observed")
    count = len(report.partitions) if report is not None and foreseen else placement.partitions
    if budgets.partitions is not None and count > budgets.partitions:
        what = "partitions exceed budgets.partitions"
        yield _Breach(what, f"<= {budgets.partitions}", str(count), "Raise budgets.partitions")
    unknown = sum(each.bytes_max is None for each in report.transfers) if report is not None else 0
    total = transfers.bytes_max
    if budgets.transfer_bytes is not None and (total > budgets.transfer_bytes or unknown):
        yield _Breach(
            "bytes that cross between providers exceed budgets.transfer_bytes",
            f"<= {budgets.transfer_bytes}",
            f"at least {total}, {unknown} tensors of unknown size" if unknown else str(total),
            "Raise budgets.transfer_bytes" + (", state the sizes of dims" if unknown else ""),
        )


def _node_shares(placement: Placement, report: PartitionReport | None) -> dict[str, float]:
    """Share of nodes by provider, where a compiled part counts as the nodes that it stands for."""
    parts = report.partitions if report is not None else ()
    stands_for = {part.name: part.nodes for part in parts if part.compiled}
    counts: Counter[str] = Counter()
    for node in placement.nodes:
        is_part = node.op.endswith("::EPContext")
        counts[node.provider] += stands_for.get(node.name, 1) if is_part else 1
    total = max(1, counts.total())
    return {provider: round(count / total, 4) for provider, count in counts.items()}


def _cpu_compute(placement: Placement, report: PartitionReport | None) -> float:
    """Share of floating-point operations at the optimal shape.

    By node where the placement knows them, as what is observed at load differs from the report.
    """
    total = sum(node.flops for node in placement.nodes)
    if total:
        return sum(node.flops for node in placement.nodes if node.provider == CPU) / total
    if report is None:
        return placement.share.get(CPU, 0.0)
    return sum(each.flops_share for each in report.providers if each.provider == CPU)


def with_flops(placement: Placement, flops: Mapping[str, int]) -> Placement:
    """`placement` with what is known of its nodes' floating-point operations, by name."""
    nodes = tuple(
        NodePlacement(
            name=node.name, op=node.op, provider=node.provider, flops=flops.get(node.name, 0)
        )
        for node in placement.nodes
    )
    return Placement(
        how=placement.how, nodes=nodes, share=placement.share, partitions=placement.partitions
    )


def _rows(placement: Placement, report: PartitionReport | None) -> tuple[Mapping[str, str], ...]:
    """The nodes on the CPU that another provider of the variant refused."""
    refused = {each.node for each in report.refusals} if report is not None else set()
    strays = [n for n in placement.nodes if n.provider == CPU and (n.name in refused or not report)]
    if report is not None:
        named = {node.name for node in strays}
        strays += [
            NodePlacement(name=each.node, op=each.op, provider=CPU)
            for each in report.refusals
            if each.node not in named
        ]
    return _table(strays, report)


def _table(
    nodes: Sequence[NodePlacement], report: PartitionReport | None
) -> tuple[Mapping[str, str], ...]:
    reasons = {each.node: each for each in report.refusals} if report is not None else {}
    rows = []
    for node in nodes[:_MOST_ROWS]:
        refusal = reasons.get(node.name)
        rows.append(
            _row(node.name, node.op, refusal.provider, refusal.reason)
            if refusal
            else _row(node.name, node.op, "-", f"ONNX Runtime put it on {node.provider}")
        )
    unique = {tuple(row.items()): row for row in rows}
    return tuple(unique.values())


def refusal_rows(refusals: Sequence[RefusedNode]) -> tuple[Mapping[str, str], ...]:
    """A table of nodes that providers refused."""
    return tuple(
        _row(each.node, each.op, each.provider, each.reason) for each in refusals[:_MOST_ROWS]
    )


def _row(node: str, op: str, provider: str, why: str) -> Mapping[str, str]:
    domain, _, name = op.rpartition("::")
    return {
        "node": node,
        "op": name,
        "domain": domain or "ai.onnx",
        "refused by": provider,
        "why": why,
        "mend": _fix(name, domain, why),
    }


def _fix(op: str, domain: str, reason: str) -> str:
    if "kernel" in reason:
        return "export with another opset or element type, or allow the CPU a budget"
    if domain:
        return f"export {op} as operators of ONNX's own domain, or allow the CPU a budget"
    return f"replace {op} in the model, add a provider that has it, or allow the CPU a budget"
