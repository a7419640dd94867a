"""Partition: assign every node to the first provider that claims it, by the profile's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from aotc.backends.base import Backend
from aotc.contract.manifest.divided_graph import RefusedNode
from aotc.engine.named_backends import backends_of
from aotc.errors import AotcError
from aotc.partitioning.assignment import Rules, assign
from aotc.partitioning.budgets import refusal_rows
from aotc.partitioning.graph import PartitionGraph, read_graph
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import (
    ClaimedModel,
    Division,
    PartitionedModel,
    UndividedModel,
)
from aotc.stages.variant_plan import VariantPlan


def partition(
    variants: Sequence[ClaimedModel], options: BuildOptions
) -> tuple[PartitionedModel | UndividedModel, ...]:
    """Divide each variant's graph among its providers, if every node runs on one of them."""
    return tuple(_partition(claimed, options) for claimed in variants)


def _partition(claimed: ClaimedModel, options: BuildOptions) -> PartitionedModel | UndividedModel:
    if claimed.plan.cpu_only:
        return PartitionedModel(claimed=claimed)
    graph = read_graph(onnx.load(claimed.graph, load_external_data=False))
    try:
        division = divide(claimed, graph, {}, claimed.refusals, options)
    except AotcError as error:
        return UndividedModel(claimed=claimed, refusal=error)
    return PartitionedModel(claimed=claimed, division=division)


def divide(
    claimed: ClaimedModel,
    graph: PartitionGraph,
    refused: Mapping[str, set[str]],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> Division:
    """Divide `graph` by its claims without `refused`, which are nodes by a provider's ORT name.

    `refusals` say why providers do not run nodes.  Raises AOTC-P001.
    """
    backends = backends_by_ort_name(claimed.plan, options)
    spec = options.profile.partitioning
    rules = Rules(
        min_nodes=spec.min_nodes,
        not_in_subgraphs=frozenset(name for name, backend in backends.items() if backend.compiles),
        rates={name: backend.rates for name, backend in backends.items()}
        if spec.weigh_boundaries
        else None,
        sizes=claimed.sizes[0] if claimed.sizes else None,
    )
    claims = [(name, nodes - refused.get(name, set())) for name, nodes in claimed.claims]
    assignment, missing = assign(graph, claims, rules)
    if missing:
        raise _unplaced_nodes(claimed, missing, refusals, options)
    return Division(graph=graph, assignment=assignment, refusals=tuple(refusals))


def backends_by_ort_name(plan: VariantPlan, options: BuildOptions) -> dict[str, Backend]:
    """The variant's providers, in order; raises AOTC-P007 and P004."""
    return {backend.ort_name: backend for backend in backends_of(plan.providers, options.profile)}


def _unplaced_nodes(
    claimed: ClaimedModel,
    missing: Sequence[str],
    refusals: Sequence[RefusedNode],
    options: BuildOptions,
) -> AotcError:
    plan = claimed.plan
    ops = dict(claimed.optimized.nodes)
    relevant = [refusal for refusal in refusals if refusal.node in set(missing)]
    first = missing[0]
    why = [f"{refusal.provider}: {refusal.reason}" for refusal in relevant if refusal.node == first]
    more = f", and {len(missing) - 1} nodes more" if len(missing) > 1 else ""
    return AotcError(
        "AOTC-P001",
        f"node {first} ({ops.get(first, '')}){more} runs on none of the variant's providers",
        where=f"variant {plan.name}",
        expected=", ".join(plan.providers),
        found="; ".join(why),
        fix="Add cpu to the profile's providers, or change the model.",
        rows=refusal_rows(relevant),
        place=options.places.of("providers"),
    )
