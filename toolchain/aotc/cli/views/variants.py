"""What the terminal shows of variants: where they run, how exact, and what they require."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from aotc.base.text import duration, listed, size
from aotc.cli.terminal import (
    FAILED,
    PASSED,
    Cell,
    count,
    facts,
    failed,
    findings_view,
    fixture_in_words,
    heading,
    passed,
    provider,
    section,
    sections,
    short,
)
from aotc.cli.views.verification import refusals_view
from aotc.spec.codec import encode
from aotc.spec.evidence import NodeError, NodeErrors, Repeats, TaskResult
from aotc.spec.precision import OutputGate
from aotc.spec.reports import ArtifactSummary, FailingSubmodel, ParityDebugReport, VariantSummary
from aotc.spec.variant import (
    HALF_PRECISION,
    KEPT,
    QUANTIZE,
    STORED_IN_HALF,
    GraphCapture,
    Parity,
    Partition,
    PartitionReport,
    PassRecord,
    ProviderShare,
    Requirements,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aotc.spec.evidence import TuningCandidate

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
                    variant.placement_origin,
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
        (variant.name, _in_words(variant.cuda_graphs.sizes), _other_sizes(variant.cuda_graphs))
        for variant in variants
        if variant.cuda_graphs is not None
    ]
    return sections("CUDA graphs", ("captured sizes", "other sizes"), rows)


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
    return sections("provider options", ("",), rows)


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
    words = [
        f"{fixture_in_words(name)} {duration(seconds)}"
        for name, seconds in runs.items()
        if not _SAMPLE.fullmatch(name)
    ]
    if samples:
        words.append(f"{count(len(samples), 'sample')} {duration(median(samples))}")
    return ", ".join(words)


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
        proof = passed("passed; no evidence says how far")
        return [(variant.name, proof, "", "", "", _shapes_tried(parity))]
    return [
        (
            variant.name if index == 0 else "",
            passed(f"{error.output} passed") if error.passed else failed(f"{error.output} FAILED"),
            f"{error.max_abs:.2g}",
            f"{error.max_rel:.2g}",
            # What is missing to 1, as a rounded cosine would say that nothing is.
            "-" if error.cosine is None else f"{max(0.0, 1 - error.cosine):.2g}",
            _shapes_tried(parity) if index == 0 else "",
        )
        for index, error in enumerate(variant.worst)
    ]


def _shapes_tried(parity: Parity) -> str:
    padded = f", {parity.padded} padded" if parity.padded else ""
    return f"{len(parity.shapes)}{padded}"


# What a host must have to run a variant, for the terminal.


# Fields that have words of their own, or are shown with providers; others go by their names.
_WORDED: Final = frozenset(
    {
        *("os", "architecture", "libc", "isa", "isa_exact", "onnxruntime_min", "onnxruntime_below"),
        *("providers", "plugins", "compatibility"),
        *("nvidia_driver_min", "cuda_major", "compute_capabilities"),
    }
)


def requirements_in_words(needs: Requirements) -> str:
    """What is required, one after the other."""
    parts = [f"{needs.os} {needs.architecture}"]
    if needs.libc is not None:
        parts.append(f"{needs.libc.name} >= {needs.libc.version}")
    parts.append(f"ONNX Runtime >= {needs.onnxruntime_min}, < {needs.onnxruntime_below}")
    if needs.isa:
        exactly = "exactly " if needs.isa_exact else ""
        parts.append(f"a CPU with {exactly}{listed(needs.isa)}")
    elif needs.isa_exact:
        parts.append("a CPU of the baseline")
    parts += [f"{plugin.name} {plugin.version}" for plugin in needs.plugins]
    if needs.nvidia_driver_min:
        parts.append(f"NVIDIA driver >= {needs.nvidia_driver_min}")
    if needs.compute_capabilities:
        parts.append(f"compute capability {' or '.join(needs.compute_capabilities)}")
    for name, value in encode(needs).items():
        if name not in _WORDED:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)


# What inspect and build show of providers: shares, partitions, transfers, refusals, trials.


# Of each variant; the full lists stand in the manifest and in `--json`.
_LISTED = 8


def partitions_view(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """Sections on variants that several providers share; none where no variant is."""
    divided = [
        (variant.name, variant.partitioning)
        for variant in variants
        if variant.partitioning is not None
    ]
    if not divided:
        return []
    return [
        section(
            "providers",
            ("", "nodes", "compute", "partitions", "operations and bytes, optimal", "largest"),
            [_share(name, share) for name, report in divided for share in report.providers],
        ),
        section(
            "partitions",
            ("", "runs on", "nodes", "operators"),
            [row for name, report in divided for row in _partitions(name, report)],
        ),
        *sections(
            "transfers",
            ("value", "from", "to", "optimal", "largest"),
            [row for name, report in divided for row in _transfers(name, report)],
        ),
        *sections(
            "refusals",
            ("node", "operator", "refused by", "why"),
            [row for name, report in divided for row in _refusals(name, report)],
        ),
    ]


def tuning_view(table: Sequence[TuningCandidate]) -> list[RenderableType]:
    """What `--tune` and `precision: auto` tried, what was taken marked; nothing without a table."""
    if not table:
        return []
    # What only CUDA has is shown where it was tried.
    columns = [
        name for name in ("fusion", "layout") if len({getattr(row, name) for row in table}) > 1
    ]
    keeps = any(row.keep_float32 for row in table)
    return [
        section(
            "tuning",
            (
                "providers",
                "precision",
                *(("in float32",) if keeps else ()),
                "ISA",
                "level",
                *columns,
                "threads",
                "median",
                "",
            ),
            [
                (
                    candidate.variant,
                    ", ".join(candidate.providers),
                    _precision(candidate),
                    *((_in_float32_text(candidate),) if keeps else ()),
                    candidate.isa,
                    candidate.optimization,
                    *(getattr(candidate, name) for name in columns),
                    str(candidate.threads or "all"),
                    duration(candidate.median_seconds)
                    if candidate.median_seconds is not None
                    else "-",
                    "chosen" if candidate.chosen else candidate.reason[:80],
                )
                for candidate in table
            ],
        )
    ]


def _precision(candidate: TuningCandidate) -> str:
    if candidate.form == "auto":
        return candidate.precision
    return f"{candidate.precision} {candidate.form}"


def _in_float32_text(candidate: TuningCandidate) -> str:
    return count(len(candidate.keep_float32), "node") if candidate.keep_float32 else ""


def _share(name: str, share: ProviderShare) -> tuple[str, ...]:
    return (
        name,
        provider(share.provider),
        f"{share.nodes}, {share.node_share:.0%}",
        f"{share.flops_share:.1%}",
        str(share.partitions),
        f"{_operations(share.opt.flops)}, {size(share.opt.bytes)}",
        f"{_operations(share.max.flops)}, {size(share.max.bytes)}",
    )


def _operations(number: int) -> str:
    value = float(number)
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g} {unit}FLOP"


def _partitions(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    rows = [
        (
            name,
            partition.name,
            provider(partition.provider) + (", compiled" if partition.compiled else ""),
            str(partition.nodes),
            _ops(partition),
        )
        for partition in report.partitions
    ]
    return _first_rows(rows)


def _first_rows(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows of one variant, of many the first."""
    more = len(rows) - _LISTED
    if more <= 0:
        return list(rows)
    return [*rows[:_LISTED], (rows[0][0], f"and {more} more", *("" for _ in rows[0][2:]))]


def _ops(partition: Partition) -> str:
    ordered: Mapping[str, int] = partition.ops
    named = sorted(ordered, key=lambda op: -ordered[op])
    text = ", ".join(f"{ordered[op]} {op}" for op in named[:4])
    inside = f" in {partition.subgraph}" if partition.subgraph else ""
    return text + (f", {count(len(named) - 4, 'other')}" if len(named) > 4 else "") + inside


def _transfers(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            name,
            transfer.value,
            *(provider(side) if side else "caller" for side in (transfer.source, transfer.target)),
            *(
                size(number) if number is not None else "unknown"
                for number in (transfer.bytes, transfer.bytes_max)
            ),
        )
        for transfer in report.transfers[:_LISTED]
    ]
    total = len(report.transfers)
    if total > 1:
        optimal = _sum([transfer.bytes for transfer in report.transfers])
        largest = _sum([transfer.bytes_max for transfer in report.transfers])
        rows.append((name, f"all {total}", "", "", optimal, largest))
    return rows


def _sum(sizes: Sequence[int | None]) -> str:
    text = size(sum(number or 0 for number in sizes))
    return f"at least {text}" if None in sizes else text


def _refusals(name: str, report: PartitionReport) -> list[tuple[str, ...]]:
    return _first_rows(
        [
            (name, refusal.node, refusal.op, provider(refusal.provider), refusal.reason[:160])
            for refusal in report.refusals
        ]
    )


# What the terminal shows of gates of outputs and of a task: limits, and what was measured.


def gates_view(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section with every limit and task; none if the profile states none."""
    rows: list[tuple[str, ...]] = []
    for variant in variants:
        own: list[tuple[str, ...]] = []
        for each in variant.limits:
            state = passed("passed") if each.passed else failed("FAILED")
            measured = each.measured or "no evidence says how far"
            own.append((each.output, state, measured, each.limit))
        if (task := variant.task) is not None:
            state = passed("passed") if task.passed else failed("FAILED")
            limit_text = f"drops by <= {task.max_drop:g}"
            own.append((task.output, state, task_text(task), limit_text))
        rows += [(variant.name if not index else "", *row) for index, row in enumerate(own)]
    return sections("gates", ("output", "", "measured", "limit"), rows)


def task_text(task: TaskResult) -> str:
    """A metric of a variant beside the original's."""
    said = f"{task.metric} of {count(task.samples, 'sample')}: {task.variant:.6g}"
    return f"{said}, the original {task.original:.6g}"


def gates_text(variants: Sequence[VariantSummary]) -> str:
    """The same in a few words: how many limits there are, and the task of the first variant."""
    limits = sum(len(variant.limits) for variant in variants)
    tasks = [variant.task for variant in variants if variant.task is not None]
    words = [f"{count(limits, 'limit')} of outputs"] if limits else []
    return "; ".join([*words, *(task_text(task) for task in tasks[:1])])


# What the terminal shows of answers that are the same: on which CPUs, and from call to call.


def integer_views(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on the variants of a quantized model; none if none multiplies integers."""
    rows = [
        (variant.name, *variant.integer_products.in_words(), _time(variant))
        for variant in variants
        if variant.integer_products is not None
    ]
    return sections("8-bit integers", ("answers", "because", "time"), rows)


def _time(variant: VariantSummary) -> str:
    timed = variant.timed_against
    if timed is None:
        return "-"
    return f"{duration(timed.seconds)}, {timed.ratio:.2f} of {timed.other}"


def repeat_views(variants: Sequence[VariantSummary]) -> list[RenderableType]:
    """A section on variants whose equal calls differed; none if there is no such variant."""
    rows = [
        (variant.name, *_cells(variant.repeats))
        for variant in variants
        if variant.repeats is not None and variant.repeats.differing_runs
    ]
    return sections("equal calls", ("bytes", "calls", "equal with"), rows)


def _cells(repeats: Repeats) -> tuple[str, str, str]:
    names = ", ".join(output.output for output in repeats.outputs)
    state = failed(f"{repeats.differing_runs} differ in {names}")
    reloaded = ", one after a reload" if repeats.reloaded else ""
    return state, f"{count(repeats.runs, 'call')}{reloaded}", repeats.setting or "no setting"


# What `aotc debug parity` shows: outputs, the first and the worst node, and what fails alone.


# `--json` has all.
_WORST: Final = 10
_HELD: Final = "weights of the model and values of the inputs: look before you publish them"
# What stands for an error that cannot be measured.
_LARGEST: Final = 1e300


def parity_view(report: ParityDebugReport) -> list[RenderableType]:
    """Outputs and nodes of one variant against its model."""
    status = "out of tolerance" if report.failed else "within tolerance"
    tolerance = report.tolerance
    inputs = fixture_in_words(report.fixture)
    if len(report.compared) > 1:
        inputs += f", the worst of {len(report.compared)}"
    errors = report.errors
    judged = {error.output for error in report.outputs}
    parts = [
        heading(
            f"{report.artifact} and {report.model}",
            f"{status}; nothing here was verified",
            FAILED if report.failed else PASSED,
        ),
        facts(
            [
                ("variant", f"{report.variant}, id {short(report.artifact_id)}"),
                ("inputs", inputs),
                (
                    "tolerance",
                    f"{tolerance.atol:g} + {tolerance.rtol:g} * max|reference|, "
                    f"cosine {tolerance.min_cosine:g}",
                ),
                *(
                    (f"gate of {name}", _gate(gate))
                    for name, gate in report.gates.items()
                    if name in judged
                ),
            ]
        ),
        section(
            "outputs",
            ("", "max abs", "max rel", "1 - cosine"),
            [
                (
                    error.output,
                    passed("passed") if error.passed else failed(error.reason),
                    _number(error.max_abs),
                    _number(error.max_rel),
                    "-" if error.cosine is None else _number(1 - error.cosine),
                )
                for error in report.outputs
            ],
        ),
        node_facts(errors),
    ]
    return [
        *parts,
        *worst_nodes(errors),
        *([_submodel(report.submodel)] if report.submodel is not None else []),
        *findings_view(report.findings),
        *refusals_view("failed", report.failed),
    ]


def _gate(gate: OutputGate) -> str:
    stated = [f"{name} {limit:g}" for name, limit in gate.limits() if limit is not None]
    return ", ".join(stated) + (", instead of the tolerance" if gate.replaces_tolerance else "")


def node_facts(errors: NodeErrors) -> RenderableType:
    """How much was compared, and the first and the worst node."""
    compared = f"{count(len(errors.nodes), 'value')} inside, {errors.uncompared} fused away or "
    return facts(
        [
            ("compared", compared + "not seen"),
            ("first node", _node(errors, errors.first) or "none is out of tolerance"),
            ("worst node", _node(errors, errors.worst) or "none adds an error"),
        ]
    )


def worst_nodes(errors: NodeErrors) -> list[RenderableType]:
    """The nodes that add most to the error of what they read."""
    ranked = sorted(errors.nodes, key=_added, reverse=True)
    rows = [_row(error) for error in ranked[:_WORST] if _added(error) > 0]
    columns = ("", "stands for", "", "max rel", "SQNR", "adds")
    return sections("worst nodes", columns, rows)


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else float("inf")
    return error.added


def _row(error: NodeError) -> tuple[Cell, ...]:
    others = [name for name in error.covers if name != error.node]
    return (
        error.node,
        error.op,
        listed(others) if others else "",
        passed("within") if error.passed else failed("out"),
        _number(error.max_rel),
        "-" if error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
        "-" if error.added is None else f"{error.added:.2g}",
    )


def _node(errors: NodeErrors, name: str) -> str:
    found = errors.of_node(name)
    if found is None:
        return ""
    by = f", by {found.variant_node}" if found.variant_node not in ("", name) else ""
    return f"{name} ({found.op}){by}"


def _number(value: float) -> str:
    return "-" if value > _LARGEST else f"{value:.2g}"


def _submodel(found: FailingSubmodel) -> RenderableType:
    title = "smallest range that fails alone" if found.accumulated else "smallest part that fails"
    return section(
        title,
        ("",),
        [
            ("nodes of the model", listed(found.nodes)),
            (
                "nodes of the variant",
                listed(
                    [f"{n} ({op})" for n, op in zip(found.variant_nodes, found.ops, strict=True)]
                ),
            ),
            ("fed with", listed(found.inputs)),
            ("error", found.error.reason),
            ("parts run alone", str(found.trials)),
            ("written", ", ".join(found.files) or "nothing: -o FOLDER does"),
            *([("which hold", _HELD)] if found.files else ()),
        ],
    )
