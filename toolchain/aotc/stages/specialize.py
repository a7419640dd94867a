"""Specialize: one graph a variant, with the stated sizes fixed."""

from __future__ import annotations

from aotc.contract.manifest import Finding
from aotc.contract.profile import VariantSpec
from aotc.stages.types import AnalyzedModel, BuildOptions, SpecializedModel

_ISA_NAMES = (
    ("amx_tile", "amx"),
    ("avx512_vnni", "avx512vnni"),
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("sve", "sve"),
    ("i8mm", "i8mm"),
    ("asimddp", "dotprod"),
)


def wanted_variants(options: BuildOptions) -> tuple[tuple[VariantSpec, ...], tuple[Finding, ...]]:
    """Variants that this host can build, and AOTC-O002 for each that it cannot.

    Level ALL bakes in the layout of the CPU that runs it, so host and target must be alike.
    """
    host, target = options.host, options.target
    alike = host.architecture == target.architecture and set(host.isa or ()) == set(
        target.isa or ()
    )
    kept, findings = [], []
    for spec in options.profile.variants:
        if spec.isa == "host" and not alike:
            findings.append(
                Finding(
                    code="AOTC-O002",
                    what=f"this host is not the target {target.name}",
                    where=spec.name,
                )
            )
        else:
            kept.append(spec)
    return tuple(kept), tuple(findings)


def specialize(
    analyzed: AnalyzedModel, spec: VariantSpec, options: BuildOptions
) -> SpecializedModel:
    """The staged graph of `analyzed` with every dim that has one stated size fixed."""
    import onnx

    from aotc.passes.base import run_passes
    from aotc.passes.fix_dims import FixDims

    source = analyzed.source
    sizes = {
        name: dim.min
        for name, dim in analyzed.domain.dims.items()
        if dim.origin == "stated" and dim.min == dim.max
    }
    graph, records = source.graph, source.passes
    if sizes:
        model = onnx.load(source.graph, load_external_data=False)
        records += run_passes(model, (FixDims(sizes=sizes),))
        graph = source.graph.with_name("static.onnx")
        graph.write_bytes(model.SerializeToString(deterministic=True))
    return SpecializedModel(
        analyzed=analyzed,
        spec=spec,
        component=_component(spec, options),
        graph=graph,
        passes=records,
    )


def _component(spec: VariantSpec, options: BuildOptions) -> str:
    """`model` for what runs anywhere; what needs an ISA is a component named after it."""
    if spec.isa == "baseline":
        return "model"
    features = set(options.target.isa or ())
    return "model." + next((name for feature, name in _ISA_NAMES if feature in features), "native")
