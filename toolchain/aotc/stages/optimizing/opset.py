"""The operator set that a variant's providers have kernels for, if the model's lacks some."""

from __future__ import annotations

from pathlib import Path

import onnx

from aotc.backends.base import Claims
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.finding import Finding
from aotc.contract.manifest.toolchain import PassRecord
from aotc.contract.profile import PluginSpec
from aotc.engine.named_backends import backend_of
from aotc.passes.base import run_passes
from aotc.passes.convert_opset import ConvertOpset, choose_opset, opset_of
from aotc.passes.name_nodes import NameNodes
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import SpecializedModel


def convert_opset(
    specialized: SpecializedModel, options: BuildOptions
) -> tuple[SpecializedModel, tuple[Finding, ...]]:
    """`specialized` at the opset at which its first provider refuses the fewest nodes.

    Only providers whose kernels are known in advance are asked; the graph is unchanged if the
    model's own opset is as good as any, or the profile says `opset: keep`.
    """
    plan = specialized.plan
    if options.profile.opset == "keep" or plan.cpu_only:
        return specialized, ()
    folder = options.work / f"opset-{plan.name}"
    value = options.workers.run(
        "aotc.stages.optimizing.opset:opset_job",
        {
            "graph": str(specialized.graph),
            "backend": plan.providers[0],
            "plugins": encode(dict(options.profile.plugins)),
        },
        folder=folder,
        where=f"variant {plan.name}",
    ).value
    if value is None:
        return specialized, ()
    finding = Finding(
        code="AOTC-O005",
        what=f"opset {value['from']} was converted to {value['to']}: {plan.providers[0]} refuses "
        f"{value['refused_before']} nodes at the one and {value['refused_after']} at the other",
        where=f"variant {plan.name}",
    )
    records = tuple(decode(PassRecord, record) for record in value["passes"])
    converted = replace(
        specialized, graph=folder / "converted.onnx", passes=(*specialized.passes, *records)
    )
    return converted, (finding,)


def opset_job(request: Json) -> Json:
    """In the worker: choose the opset, convert and write the graph; None if nothing is gained."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    backend = backend_of(request["backend"], plugins)
    model = onnx.load(request["graph"], load_external_data=False)
    before = backend.predict(model)
    if before is None or not before.refusals:
        return None

    def refused(candidate: onnx.ModelProto) -> int:
        claims: Claims | None = backend.predict(candidate)
        return len(claims.refusals) if claims is not None else 0

    wanted = choose_opset(model, refused)
    if wanted is None:
        return None
    own = opset_of(model)
    records = run_passes(model, (ConvertOpset(to=wanted), NameNodes()))
    Path("converted.onnx").write_bytes(model.SerializeToString(deterministic=True))
    return {
        "from": own,
        "to": wanted,
        "refused_before": len(before.refusals),
        "refused_after": refused(model),
        "passes": [encode(record) for record in records],
    }
