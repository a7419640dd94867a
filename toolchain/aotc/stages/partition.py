"""Partition: every node to the first provider that claims it, within the rules of the profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from aotc.backends.base import Backend
from aotc.contract.manifest.divided_graph import RefusedNode
from aotc.contract.manifest.variant import DroppedVariant
from aotc.engine.named_backends import backends_of
from aotc.errors import AotcError
from aotc.partitioning.assignment import Rules, assign
from aotc.partitioning.budgets import refusal_rows
from aotc.partitioning.graph import PartitionGraph, read_graph
from aotc.stages.build_options import BuildOptions
from aotc.stages.fallback import drop
from aotc.stages.types import ClaimedModel, Division, PartitionedModel, VariantPlan


def partition(
    variants: Sequence[ClaimedModel], options: BuildOptions
) -> tuple[tuple[PartitionedModel, ...], tuple[DroppedVariant, ...]]:
    """Divide each variant's graph among its providers.

    The second are variants that the fallback policy leaves out.  Raises AOTC-P001 where a node
    runs nowhere.
    """
    divided: list[PartitionedModel] = []
    dropped: list[DroppedVariant] = []
    for item in variants:
        if item.sizes is None:
            divided.append(PartitionedModel(claimed=item, refusals=item.refusals))
            continue
        graph = read_graph(onnx.load(item.graph, load_external_data=False))
        try:
            divided.append(divide(item, graph, {}, item.refusals, options))
        except AotcError as error:
            dropped.append(drop(error, item.plan, options))
    return tuple(divided), tuple(dropped)


def divide(
    claimed: ClaimedModel,
    graph: PartitionGraph,
    refused: Mapping[str, set[str]],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> PartitionedModel:
    """`graph` divided by its claims without those of `refused`, nodes by ORT's name of a provider.

    `refusals` say of every node that a provider does not run why.  Raises AOTC-P001.
    """
    backends = backends_by_ort_name(claimed.plan, options)
    spec = options.profile.partitioning
    rules = Rules(
        min_nodes=spec.min_nodes,
        outside=frozenset(name for name, each in backends.items() if each.compiles),
        rates={name: each.rates for name, each in backends.items()} if spec.weigh_borders else None,
        sizes=claimed.sizes[0] if claimed.sizes else None,
    )
    claims = [(name, nodes - refused.get(name, set())) for name, nodes in claimed.claims]
    assignment, missing = assign(graph, claims, rules)
    if missing:
        raise _nowhere(claimed, missing, refusals)
    return PartitionedModel(
        claimed=claimed,
        refusals=tuple(refusals),
        division=Division(graph=graph, assignment=assignment),
    )


def backends_by_ort_name(plan: VariantPlan, options: BuildOptions) -> dict[str, Backend]:
    """The variant's providers in their order; raises AOTC-P007 and P004."""
    return {each.ort_name: each for each in backends_of(plan.providers, options.profile)}


def _nowhere(
    claimed: ClaimedModel, missing: Sequence[str], refusals: Sequence[RefusedNode]
) -> AotcError:
    plan = claimed.plan
    ops = dict(claimed.optimized.nodes)
    told = [each for each in refusals if each.node in set(missing)]
    first = missing[0]
    why = [f"{each.provider}: {each.reason}" for each in told if each.node == first]
    more = f", and {len(missing) - 1} nodes more" if len(missing) > 1 else ""
    return AotcError(
        "AOTC-P001",
        f"node {first} ({ops.get(first, '')}){more} runs on none of the variant's providers",
        where=f"variant {plan.name}",
        expected=", ".join(plan.providers),
        found="; ".join(why),
        mend="Add cpu to the profile's providers, or change the model.",
        rows=refusal_rows(told),
    )
