"""What the terminal shows of an artifact's variants: where they run, how exact and at what cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from aotc.cli.fixture_words import fixture_in_words
from aotc.cli.render import count, duration, provider, section, size
from aotc.cli.result_styles import failed, passed
from aotc.cli.views.exactness.gate_views import gates_view
from aotc.cli.views.exactness.sameness_views import integer_views, repeat_views
from aotc.cli.views.partition_views import partitions_view
from aotc.cli.views.requirement_words import requirements_in_words
from aotc.contract.manifest.graph_capture import GraphCapture
from aotc.contract.manifest.toolchain import (
    HALF_PRECISION,
    KEPT,
    QUANTIZE,
    STORED_IN_HALF,
    PassRecord,
)
from aotc.contract.manifest.variant import Parity
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.reports import ArtifactSummary, VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType

_SAMPLE: Final = re.compile(r"sample\d+")


def variants_view(artifact: ArtifactSummary) -> list[RenderableType]:
    """Requirements, placement, exactness and cost of each variant, a table for each subject."""
    return [
        section(
            "variants",
            ("runs on",),
            [
                (variant.name, requirements_in_words(variant.requirements))
                for variant in artifact.variants
            ],
        ),
        section(
            "placement",
            ("nodes", "", "passes", "that compute shapes"),
            [
                (
                    variant.name,
                    placement_text(variant),
                    variant.placement,
                    _passes(variant),
                    _shape_nodes(variant),
                )
                for variant in artifact.variants
            ],
        ),
        *partitions_view(artifact.variants),
        *_precisions(artifact.variants),
        *integer_views(artifact.variants),
        *_captures(artifact.variants),
        *_options(artifact.variants),
        section(
            "exactness",
            ("", "max abs", "max rel", "1 - cosine", "shapes"),
            [row for variant in artifact.variants for row in _exactness(variant)],
        ),
        *gates_view(artifact.variants),
        *repeat_views(artifact.variants),
        section(
            "cost",
            ("weights", "peak memory", "load", "run"),
            [
                (
                    variant.name,
                    size(variant.memory.weights_bytes),
                    size(variant.peak_memory_bytes)
                    if variant.peak_memory_bytes is not None
                    else "-",
                    duration(variant.load_seconds) if variant.load_seconds is not None else "-",
                    _runs(variant) or "-",
                )
                for variant in artifact.variants
            ],
        ),
    ]


def _precisions(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on variants that do not compute as the model's types say; none without any."""
    rows = [
        (variant.name, variant.precision, _form(variant), _in_float32(variant))
        for variant in variants
        if variant.precision != "keep"
    ]
    if not rows:
        return []
    stay = "nodes that stay in float32"
    if all(form == "-" for _, _, form, _ in rows):
        plain = [(name, precision, left) for name, precision, _, left in rows]
        return [section("precision", ("", stay), plain)]
    return [section("precision", ("", "form", stay), rows)]


def _form(variant: VariantSummary) -> str:
    """How a variant was quantized, such as `static: minmax of 64 samples; 10 nodes`."""
    made = _pass_of(variant, QUANTIZE)
    if made is None:
        return "-"
    options, nodes = made.options, count(made.matched.get("quantized", 0), "node")
    if options.get("form") == "static":
        samples = count(int(options.get("samples", 0)), "sample")
        return f"static: {options.get('method')} of {samples}; {nodes}"
    return f"{options.get('form')}; {nodes}"


def _in_float32(variant: VariantSummary) -> str:
    """How many nodes a pass left in float32, and why; their names are in JSON."""
    if any(made.name == STORED_IN_HALF for made in variant.passes):
        return "all: only weights are stored in it"
    made, done = _pass_of(variant, HALF_PRECISION), "converted"
    if made is None:
        made, done = _pass_of(variant, QUANTIZE), "quantized"
    if made is None:
        return "-"
    reasons = [
        f"{number} {why.removeprefix(KEPT)}"
        for why, number in made.matched.items()
        if why.startswith(KEPT)
    ]
    total = len(made.kept) + made.matched.get(done, 0)
    return f"{len(made.kept)} of {total}: {', '.join(reasons)}" if reasons else f"0 of {total}"


def _pass_of(variant: VariantSummary, name: str) -> PassRecord | None:
    return next((made for made in variant.passes if made.name == name), None)


def _captures(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on captured sizes; none if no variant captures any."""
    rows = [
        (variant.name, _in_words(variant.graphs.sizes), _other_sizes(variant.graphs))
        for variant in variants
        if variant.graphs is not None
    ]
    return [section("CUDA graphs", ("captured sizes", "other sizes"), rows)] if rows else []


def _options(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on what sessions state of their providers; none if that is nothing."""
    rows = [
        (
            f"{variant.name} {provider(name)}",
            ", ".join(f"{option} {value}" for option, value in options.items()),
        )
        for variant in variants
        for name, options in variant.provider_options.items()
        if options
    ]
    return [section("provider options", ("",), rows)] if rows else []


def _in_words(sizes: Sequence[Mapping[str, int]]) -> str:
    """Captured sizes as text: the sizes of each dim, and how many combinations there are."""
    names = list(sizes[0]) if sizes else []
    listed = "; ".join(
        f"{name} {', '.join(str(size) for size in sorted({item[name] for item in sizes}))}"
        for name in names
    )
    combined = count(len(sizes), "size")
    return f"{combined}: {listed}" if listed else combined


def _other_sizes(graphs: GraphCapture) -> str:
    if graphs.on_call:
        return f"captured at their first call, at most {graphs.max_count} in all"
    return "run without"


def _runs(variant: VariantSummary) -> str:
    """By fixture; samples of calibration data, which are alike, by their median."""
    runs = variant.run_seconds
    samples = [seconds for name, seconds in runs.items() if _SAMPLE.fullmatch(name)]
    told = [
        f"{fixture_in_words(name)} {duration(seconds)}"
        for name, seconds in runs.items()
        if not _SAMPLE.fullmatch(name)
    ]
    if samples:
        told.append(f"{count(len(samples), 'sample')} {duration(median(samples))}")
    return ", ".join(told)


def placement_text(variant: VariantSummary) -> str:
    """How many nodes there are, and the share of each provider."""
    if variant.partitioning is not None:
        divided = variant.partitioning.providers
        nodes = sum(share.nodes for share in divided)
        return f"{nodes}: " + ", ".join(
            f"{provider(share.provider)} {share.node_share:.0%}" for share in divided
        )
    shares = ", ".join(f"{provider(name)} {share:.0%}" for name, share in variant.share.items())
    return f"{variant.nodes}: {shares}" if shares else str(variant.nodes)


def _passes(variant: VariantSummary) -> str:
    if not variant.passes:
        return "-"
    before, after = variant.passes[0].nodes_before, variant.passes[-1].nodes_after
    return f"{len(variant.passes)}, from {before} to {count(after, 'node')}"


def _shape_nodes(variant: VariantSummary) -> str:
    if not variant.shape_nodes and not variant.shape_nodes_dropped:
        return "none"
    return f"{variant.shape_nodes} left, {variant.shape_nodes_dropped} dropped"


def _exactness(variant: VariantSummary) -> list[tuple[str, ...]]:
    parity: Parity = variant.parity
    if parity.status != "passed":
        return [(variant.name, failed(f"NOT PROVEN: {parity.reason}"), "", "", "", "")]
    if not variant.worst:
        return [
            (
                variant.name,
                passed("passed; no evidence says how far"),
                "",
                "",
                "",
                _shapes_tried(parity),
            )
        ]
    return [
        (
            variant.name if index == 0 else "",
            passed(f"{error.output} passed") if error.passed else failed(f"{error.output} FAILED"),
            f"{error.max_abs:.2g}",
            f"{error.max_rel:.2g}",
            _cosine(error),
            _shapes_tried(parity) if index == 0 else "",
        )
        for index, error in enumerate(variant.worst)
    ]


def _shapes_tried(parity: Parity) -> str:
    padded = f", {parity.padded} padded" if parity.padded else ""
    return f"{len(parity.shapes)}{padded}"


def _cosine(error: OutputError) -> str:
    # What is missing to 1, as a rounded cosine would say that nothing is.
    return "-" if error.cosine is None else f"{max(0.0, 1 - error.cosine):.2g}"
