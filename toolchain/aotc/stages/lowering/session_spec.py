"""How a variant's session is created: options of its providers and its plan, and its level."""

from __future__ import annotations

from collections.abc import Mapping

from aotc.backends.base import Backend, Payload, SessionUse
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.profile_terms import Precision
from aotc.records import replace
from aotc.stages.lowering.compiling import CompiledModel
from aotc.stages.optimizing.image_layout import is_convolutional
from aotc.stages.optimizing.levels import load_level
from aotc.stages.variant_plan import VariantPlan

_DISABLE_PREPACKING = "session.disable_prepacking"


def plain_session(backend: Backend, plan: VariantPlan) -> SessionSpec:
    """The session of a variant of which one provider runs all nodes and compiles none."""
    return _with_plan(backend.session(load_level(plan)), plan)


def divided_session(
    backends: Mapping[str, Backend],
    precisions: Mapping[str, Precision],
    payloads: Mapping[int, Payload],
    compiled: CompiledModel,
) -> SessionSpec:
    """The session of a variant whose nodes run on several providers, or are compiled.

    `backends` are those that run a node, by ORT name; `payloads` are as joined by their providers.
    """
    plan = compiled.claimed.plan
    ops = [op for _, op in compiled.claimed.optimized.nodes]
    use = SessionUse(cuda=plan.cuda, convolutional=is_convolutional(ops))
    config: dict[str, str] = {}
    options: dict[str, dict[str, str]] = {}
    for name, backend in backends.items():
        spec = backend.session("all", precisions[name], use)
        config |= spec.config
        for provider, stated in spec.provider_options.items():
            options[provider] = {**options.get(provider, {}), **stated}
    for index, payload in payloads.items():
        provider = compiled.division.assignment.parts[index].provider
        options.setdefault(provider, {}).update(payload.options)
    for name, backend in backends.items():
        if backend.compiles:
            options[name] = backend.options_excluding(
                options.get(name, {}), _operators_elsewhere(compiled, name)
            )
    if plan.threads is not None:
        for name, backend in backends.items():
            if name in options:
                options[name] = backend.with_threads(options[name], plan.threads)
    session = SessionSpec(
        optimization="all" if plan.optimization == "auto" else plan.optimization,
        config=config,
        provider_options={name: stated for name, stated in options.items() if stated},
    )
    return _with_plan(session, plan)


def _operators_elsewhere(compiled: CompiledModel, provider: str) -> set[str]:
    """Operators of the nodes on other providers, those in subgraphs included."""
    ops = {node.name: node.op for node in compiled.division.graph.nodes}
    ops |= {node.name: node.op for node in compiled.division.graph.subgraph_nodes}
    placed = compiled.division.assignment.providers
    return {op.rpartition("::")[2] for name, op in ops.items() if placed[name] != provider}


def _with_plan(session: SessionSpec, plan: VariantPlan) -> SessionSpec:
    if plan.prepack == "off":
        session = replace(session, config={**session.config, _DISABLE_PREPACKING: "1"})
    return replace(session, threads=plan.threads)
