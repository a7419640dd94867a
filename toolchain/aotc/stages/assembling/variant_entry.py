"""The manifest's entry of a proven variant: what it is, where it runs, what it requires."""

from __future__ import annotations

from aotc.contract.manifest.divided_graph import PartitionReport
from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.manifest.served_sizes import by_size
from aotc.contract.manifest.variant import TransferTotals, Variant
from aotc.contract.target import Libc, Target
from aotc.contract.versions import release
from aotc.partitioning.partition_report import total_transfers
from aotc.passes.same_sign_weights.products import exact_feature
from aotc.records import replace
from aotc.stages.assembling.ort_wheel import ort_version, wheel_libc
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.integer_products import products_of
from aotc.stages.types import LoweredModel, ProvenModel


def variant_entry(proven: ProvenModel, asset: str | None, options: BuildOptions) -> Variant:
    """The entry of one variant; `asset` is the folder of the shared weights in the payload."""
    lowered = proven.lowered
    optimized = lowered.optimized
    specialized = optimized.specialized
    plan = specialized.plan
    target = options.target
    feature = exact_feature(target.isa)
    # Without a feature that makes them exact, integer products are proven for CPUs like this one.
    like_this_host = bool(optimized.saturating) and not feature and target.isa == options.host.isa
    exact = plan.isa == "host" or like_this_host
    folder = f"{specialized.component}/{plan.name}"
    model = f"{folder}/model.onnx"
    ort = ort_version()
    major, minor = (*release(ort), 0)[:2]
    return Variant(
        name=plan.name,
        spec=plan.spec,
        buckets=plan.buckets,
        component=specialized.component,
        providers=lowered.providers,
        device=lowered.device,
        precision=plan.precision,
        model=model,
        weights=asset,
        files=(
            model,
            *(f"{asset}/{name}" for name in lowered.files),
            *(f"{folder}/{context.name}" for context in lowered.contexts),
        ),
        session=lowered.session,
        domain=specialized.domain,
        shape_nodes=optimized.shape_nodes[1],
        shape_nodes_dropped=max(0, optimized.shape_nodes[0] - optimized.shape_nodes[1]),
        passes=optimized.passes,
        placement=proven.placement,
        transfers=total_transfers(lowered.report.transfers) if lowered.report else TransferTotals(),
        partitioning=_with_payload_paths(lowered.report, folder) if lowered.report else None,
        memory=lowered.memory,
        graphs=_graph_capture(lowered) if lowered.captures else None,
        integer_products=products_of(optimized, options),
        parity=proven.parity,
        requirements=Requirements(
            os=target.os,
            architecture=target.architecture,
            libc=_libc(target),
            isa=tuple(
                sorted(
                    {
                        *(target.isa or () if exact else ()),
                        *([feature] if plan.isa == "vnni" or optimized.saturating else ()),
                    }
                    - {""}
                )
            ),
            isa_exact=exact,
            # Optimized graphs contain operators internal to a minor version.
            onnxruntime_min=f"{major}.{minor}.0",
            onnxruntime_below=f"{major}.{minor + 1}",
            providers=lowered.providers,
            compatibility=lowered.compatibility,
        ).merged(lowered.needs),
    )


def _graph_capture(lowered: LoweredModel) -> GraphCapture:
    """The captured sizes: dims without buckets have their optimal size."""
    options = lowered.plan.cuda.graphs
    dims = lowered.analyzed.domain.dims
    return GraphCapture(
        sizes=tuple(
            {name: buckets.get(name, dim.opt) for name, dim in dims.items()}
            for buckets in by_size(lowered.plan.captures)
        ),
        on_call=options.capture == "calls",
        max_count=options.max_count,
        max_bytes=options.max_bytes,
        refused=options.refused,
    )


def _with_payload_paths(report: PartitionReport, folder: str) -> PartitionReport:
    """The report with the files of compiled partitions as paths inside the payload."""
    return replace(
        report,
        partitions=tuple(
            replace(partition, file=f"{folder}/{partition.file}") if partition.file else partition
            for partition in report.partitions
        ),
    )


def _libc(target: Target) -> Libc | None:
    """The target's C library; glibc with the minimum version of ONNX Runtime's wheel."""
    if target.libc is None or target.libc.name != "glibc":
        return target.libc
    return Libc(name="glibc", version=wheel_libc())
