"""The profile's fallback policy and budgets, held against a placement.

The same rules judge a promise at build, and at load what ONNX Runtime really did where the
promise was only predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from aotc.contract.manifest import NodePlacement, Placement, Transfers
from aotc.contract.partitions import PartitionReport
from aotc.contract.profile import Profile
from aotc.errors import AotcError

CPU = "CPUExecutionProvider"
# Rows of a table; all nodes are in the manifest and in `--json`.
_MOST_ROWS = 200
_NONE = Transfers()


def breaches(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    *,
    report: PartitionReport | None,
    transfers: Transfers = _NONE,
    where: str = "",
) -> list[AotcError]:
    """AOTC-P001 for nodes where the policy allows none, P002 for each budget that is exceeded.

    `providers` are those of the variant: ORT's name by the profile's.  `report` says why nodes are
    where they are, and how compute is shared; None where one provider takes all.
    """
    found = _strays(profile, providers, placement, report, where)
    rows = _rows(placement, report)
    for what, expected, amount in _budgets(profile, providers, placement, report, transfers):
        found.append(
            AotcError(
                "AOTC-P002",
                what,
                where=where,
                expected=expected,
                found=amount,
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


def _budgets(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    report: PartitionReport | None,
    transfers: Transfers,
) -> list[tuple[str, str, str]]:
    """What is exceeded, what was expected, and what was found."""
    budgets, found = profile.budgets, []
    shares = _node_shares(placement, report)
    cpu = shares.get(CPU, 0.0)
    most = profile.fallback.max_node_share
    first_choice_is_cpu = next(iter(providers.values()), "") == CPU
    if not first_choice_is_cpu and cpu > most:
        found.append(
            ("the share of nodes on the CPU exceeds fallback.max_node_share", f"<= {most:g}", cpu)
        )
    for name, budget in budgets.providers.items():
        if name not in providers:
            continue
        share = shares.get(providers[name], 0.0)
        if not budget.min_node_share <= share <= budget.max_node_share:
            found.append(
                (
                    f"the share of nodes on {name} is outside of its budget",
                    f"{budget.min_node_share:g}..{budget.max_node_share:g}",
                    share,
                )
            )
    if budgets.cpu_share is not None and not first_choice_is_cpu:
        share = _cpu_compute(placement, report)
        if share > budgets.cpu_share:
            found.append(
                (
                    "the share of compute on the CPU exceeds budgets.cpu_share",
                    f"<= {budgets.cpu_share:g}",
                    share,
                )
            )
    # What was predicted is judged by what ORT really did, once that is known.
    foreseen = report is not None and (placement.how == "predicted" or report.how == "observed")
    count = len(report.partitions) if report is not None and foreseen else placement.partitions
    if budgets.partitions is not None and count > budgets.partitions:
        found.append(
            ("partitions exceed budgets.partitions", f"<= {budgets.partitions}", float(count))
        )
    if budgets.transfer_bytes is not None and transfers.bytes_max > budgets.transfer_bytes:
        found.append(
            (
                "bytes that cross between providers exceed budgets.transfer_bytes",
                f"<= {budgets.transfer_bytes}",
                float(transfers.bytes_max),
            )
        )
    # Counts and bytes in full, shares rounded.
    return [
        (what, expected, f"{amount:.0f}" if amount > 1 else f"{amount:g}")
        for what, expected, amount in found
    ]


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
        domain, _, op = node.op.rpartition("::")
        refusal = reasons.get(node.name)
        rows.append(
            {
                "node": node.name,
                "op": op,
                "domain": domain or "ai.onnx",
                "refused by": refusal.provider if refusal else "-",
                "why": refusal.reason if refusal else f"ONNX Runtime put it on {node.provider}",
                "mend": _mend(op, domain, refusal.reason if refusal else ""),
            }
        )
    unique = {tuple(row.items()): row for row in rows}
    return tuple(unique.values())


def _mend(op: str, domain: str, reason: str) -> str:
    if "kernel" in reason:
        return "export with another opset or element type, or allow the CPU a budget"
    if domain:
        return f"export {op} as operators of ONNX's own domain, or allow the CPU a budget"
    return f"replace {op} in the model, add a provider that has it, or allow the CPU a budget"
