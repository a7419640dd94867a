"""The profile's fallback policy and budgets, checked against a placement.

At build the same rules check a predicted placement, and at load the observed one if the placement
was only predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.spec.profile import Profile
from aotc.spec.providers import CPU
from aotc.spec.run_report import Gate
from aotc.spec.variant import NodePlacement, PartitionReport, Placement, RefusedNode, TransferTotals
from aotc.spec.yaml import NO_PLACES, DocumentPlaces

# Rows of a table; the manifest and `--json` have all nodes.
_MAX_ROWS = 200
_NO_TRANSFERS = TransferTotals()


@record
class Judged:
    """Gates, those that passed included, and an error for each that did not."""

    gates: tuple[Gate, ...] = ()
    breaches: tuple[AotcError, ...] = ()


def judge_placement(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    *,
    report: PartitionReport | None,
    transfers: TransferTotals = _NO_TRANSFERS,
    where: str = "",
    places: DocumentPlaces = NO_PLACES,
) -> Judged:
    """Judge the policy and every stated budget.

    The errors are AOTC-P001 for nodes on a provider that is not allowed, and P002 for each budget
    that is exceeded.  `providers` are the variant's: ORT's name by the profile's.  `report` says
    why nodes are where they are and how compute is shared; None if one provider takes all nodes.
    `places` are those of the profile's settings, and each gate has its own.
    """
    gates: list[Gate] = []
    found: list[AotcError] = []
    rows: tuple[Mapping[str, str], ...] | None = None
    disallowed = _disallowed_nodes(profile, providers, placement, report, where)
    place = places.of("fallback.policy")
    for error in disallowed:
        error.place = place
        found.append(error)
    gates.append(
        Gate(
            name="fallback.policy",
            subject=where,
            status="failed" if disallowed else "passed",
            limit=", ".join(providers),
            measured=", ".join(sorted({node.provider for node in placement.nodes})),
            place=place,
        )
    )
    for budget in _budgets(profile, providers, placement, report, transfers):
        place = places.of(budget.setting)
        gates.append(
            Gate(
                name=budget.setting,
                subject=where,
                status="passed" if budget.met else "failed",
                limit=budget.expected,
                measured=budget.found,
                place=place,
            )
        )
        if budget.met:
            continue
        if rows is None:
            rows = _rows(placement, report)
        found.append(
            AotcError(
                "AOTC-P002",
                budget.what,
                where=where,
                expected=budget.expected,
                found=budget.found,
                fix=f"{budget.fix}, or change the model where the table says.",
                rows=rows,
                place=place,
            )
        )
    return Judged(gates=tuple(gates), breaches=tuple(found))


def _disallowed_nodes(
    profile: Profile,
    providers: Mapping[str, str],
    placement: Placement,
    report: PartitionReport | None,
    where: str,
) -> list[AotcError]:
    """The refusal AOTC-P001 if nodes are on a provider that the variant does not have."""
    allowed = set(providers.values())
    if profile.fallback.policy == "cpu":
        allowed.add(CPU)
    disallowed = [node for node in placement.nodes if node.provider not in allowed]
    if not disallowed:
        return []
    first = disallowed[0]
    return [
        AotcError(
            "AOTC-P001",
            f"{len(disallowed)} nodes run on providers that the profile does not allow; "
            f"the first is {first.name} ({first.op}) on {first.provider}",
            where=where,
            expected=", ".join(providers),
            found=", ".join(sorted({node.provider for node in disallowed})),
            rows=_table(disallowed, report),
        )
    ]


@record
class _Budget:
    """A budget that the profile states; `what` and `fix` are of its breach."""

    setting: str
    met: bool
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
) -> Iterator[_Budget]:
    budgets = profile.budgets
    shares = _node_shares(placement, report)
    cpu = shares.get(CPU, 0.0)
    maximum = profile.fallback.max_node_share
    first_choice_is_cpu = next(iter(providers.values()), "") == CPU
    if not first_choice_is_cpu and (maximum < 1 or cpu > maximum):
        yield _Budget(
            setting="fallback.max_node_share",
            met=cpu <= maximum,
            what="the share of nodes on the CPU exceeds fallback.max_node_share",
            expected=f"<= {maximum:g}",
            found=f"{cpu:g}",
            fix="Raise fallback.max_node_share",
        )
    for name, budget in budgets.providers.items():
        if name not in providers:
            continue
        share = shares.get(providers[name], 0.0)
        minimum, maximum = budget.min_node_share, budget.max_node_share
        bound, fix = (
            ("min_node_share", "Lower min_node_share")
            if share < minimum or (maximum == 1 and minimum > 0)
            else ("max_node_share", "Raise max_node_share")
        )
        yield _Budget(
            setting=f"budgets.providers.{name}.{bound}",
            met=minimum <= share <= maximum,
            what=f"the share of nodes on {name} is outside its budget",
            expected=f"{minimum:g}..{maximum:g}",
            found=f"{share:g}",
            fix=f"{fix} of budgets.providers.{name}",
        )
    if budgets.cpu_share is not None and not first_choice_is_cpu:
        share = _cpu_compute(placement, report)
        yield _Budget(
            setting="budgets.cpu_share",
            met=share <= budgets.cpu_share,
            what="the share of compute on the CPU exceeds budgets.cpu_share",
            expected=f"<= {budgets.cpu_share:g}",
            found=f"{share:g}",
            fix="Raise budgets.cpu_share",
        )
    # A predicted number of partitions is replaced by ORT's own once that is known.
    predicted = report is not None and (
        placement.origin == "predicted" or report.origin == "observed"
    )
    count = len(report.partitions) if report is not None and predicted else placement.partitions
    if budgets.partitions is not None:
        yield _Budget(
            setting="budgets.partitions",
            met=count <= budgets.partitions,
            what="partitions exceed budgets.partitions",
            expected=f"<= {budgets.partitions}",
            found=str(count),
            fix="Raise budgets.partitions",
        )
    unknown = (
        sum(tensor.bytes_max is None for tensor in report.transfers) if report is not None else 0
    )
    total = transfers.bytes_max
    if budgets.transfer_bytes is not None:
        yield _Budget(
            setting="budgets.transfer_bytes",
            met=total <= budgets.transfer_bytes and not unknown,
            what="transfers between providers exceed budgets.transfer_bytes",
            expected=f"<= {budgets.transfer_bytes}",
            found=f"at least {total}, {unknown} tensors of unknown size" if unknown else str(total),
            fix="Raise budgets.transfer_bytes" + (", state the sizes of dims" if unknown else ""),
        )


def _node_shares(placement: Placement, report: PartitionReport | None) -> dict[str, float]:
    """The share of nodes by provider; a compiled partition counts as the nodes it replaces."""
    parts = report.partitions if report is not None else ()
    stands_for = {part.name: part.nodes for part in parts if part.compiled}
    counts: Counter[str] = Counter()
    for node in placement.nodes:
        is_part = node.op.endswith("::EPContext")
        counts[node.provider] += stands_for.get(node.name, 1) if is_part else 1
    total = max(1, counts.total())
    return {provider: round(count / total, 4) for provider, count in counts.items()}


def _cpu_compute(placement: Placement, report: PartitionReport | None) -> float:
    """The share of floating-point operations on the CPU at the optimal shape.

    It is counted by node if the placement knows them: what is observed at load differs from the
    report.
    """
    total = sum(node.flops for node in placement.nodes)
    if total:
        return sum(node.flops for node in placement.nodes if node.provider == CPU) / total
    if report is None:
        return placement.share.get(CPU, 0.0)
    return sum(share.flops_share for share in report.providers if share.provider == CPU)


def with_flops(placement: Placement, flops: Mapping[str, int]) -> Placement:
    """`placement` with the known numbers of floating-point operations of its nodes, by name."""
    nodes = tuple(
        NodePlacement(
            name=node.name, op=node.op, provider=node.provider, flops=flops.get(node.name, 0)
        )
        for node in placement.nodes
    )
    return Placement(
        origin=placement.origin, nodes=nodes, share=placement.share, partitions=placement.partitions
    )


def _rows(placement: Placement, report: PartitionReport | None) -> tuple[Mapping[str, str], ...]:
    """Rows for nodes on the CPU that another provider of the variant refused."""
    refused = {refusal.node for refusal in report.refusals} if report is not None else set()
    on_cpu = [n for n in placement.nodes if n.provider == CPU and (n.name in refused or not report)]
    if report is not None:
        named = {node.name for node in on_cpu}
        on_cpu += [
            NodePlacement(name=refusal.node, op=refusal.op, provider=CPU)
            for refusal in report.refusals
            if refusal.node not in named
        ]
    return _table(on_cpu, report)


def _table(
    nodes: Sequence[NodePlacement], report: PartitionReport | None
) -> tuple[Mapping[str, str], ...]:
    reasons = {refusal.node: refusal for refusal in report.refusals} if report is not None else {}
    rows = []
    for node in nodes[:_MAX_ROWS]:
        refusal = reasons.get(node.name)
        rows.append(
            _row(node.name, node.op, refusal.provider, refusal.reason)
            if refusal
            else _row(node.name, node.op, "-", f"ONNX Runtime put it on {node.provider}")
        )
    unique = {tuple(row.items()): row for row in rows}
    return tuple(unique.values())


def refusal_rows(refusals: Sequence[RefusedNode]) -> tuple[Mapping[str, str], ...]:
    """Table rows for nodes that providers refused."""
    return tuple(
        _row(refusal.node, refusal.op, refusal.provider, refusal.reason)
        for refusal in refusals[:_MAX_ROWS]
    )


def _row(node: str, op: str, provider: str, why: str) -> Mapping[str, str]:
    domain, _, name = op.rpartition("::")
    return {
        "node": node,
        "op": name,
        "domain": domain or "ai.onnx",
        "refused by": provider,
        "reason": why,
        "fix": _fix(name, domain, why),
    }


def _fix(op: str, domain: str, reason: str) -> str:
    if "kernel" in reason:
        return "export with another opset or element type, or allow the CPU a budget"
    if domain:
        return f"export {op} as operators of ONNX's own domain, or allow the CPU a budget"
    return f"replace {op} in the model, add a provider that has it, or allow the CPU a budget"
