"""What is said of variants: where they run, how exact they are, and what they require."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from statistics import median
from typing import TYPE_CHECKING, Final

from aotc.base.text import duration, listed, size
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Cell,
    Facts,
    Heading,
    Note,
    Sheet,
    Table,
    count,
    failed,
    findings_table,
    fixture_in_words,
    noticed,
    passed,
    provider,
    refusals_table,
    short,
    stated,
    table,
    verdict,
)
from aotc.spec.codec import encode
from aotc.spec.evidence import (
    AgainstKeep,
    NodeError,
    NodeErrors,
    SliceError,
    TaskResult,
    standing_fixture,
)
from aotc.spec.precision import OutputGate, Tolerance
from aotc.spec.reports import FailingSubmodel, ParityDebugReport, VariantSummary
from aotc.spec.target import CustomOps
from aotc.spec.variant import (
    CLIPPED,
    HALF_PRECISION,
    KEPT,
    QUANTIZE,
    SMOOTH,
    STORED_IN_HALF,
    GraphCapture,
    Parity,
    Partition,
    PartitionReport,
    PassRecord,
    Requirements,
)

if TYPE_CHECKING:
    from aotc.spec.evidence import TuningCandidate

Variants = Sequence[VariantSummary]
Row = Sequence[Cell]

# Of each variant, on a terminal.
_LISTED: Final = 8
_SAMPLE: Final = re.compile(r"sample\d+")


def requirements_table(variants: Variants) -> Table:
    """What a host must have to run each variant."""
    return table(
        "variants",
        variants,
        ("variant", lambda each: each.name),
        ("runs on", lambda each: requirements_in_words(each.requirements)),
    )


def cost_table(variants: Variants) -> Table:
    """What each variant takes: memory as planned and as measured, and times."""
    note = (
        "Weights and inputs are as planned in the manifest; activations are what the arena has in "
        "use at most by the memory plan, or without one the sum of all nodes' outputs. The peak is "
        "of a whole process at build. A run is the median of warm calls, with half the distance of "
        "their quartiles."
    )
    on_device: list[tuple[str, Callable[[VariantSummary], str]]] = []
    if any(each.device_bytes is not None for each in variants):
        note += (
            " Device memory is what a session took at build once it had run, without captured "
            "graphs, beside a plain session of the user's model after its first run."
        )
        on_device = [
            ("#device memory", lambda each: stated(each.device_bytes, size)),
            ("#of a plain session", lambda each: stated(each.plain_device_bytes, size)),
        ]
    return table(
        "cost",
        variants,
        ("variant", lambda each: each.name),
        ("#weights", lambda each: size(each.memory.weights_bytes)),
        ("#peak memory", lambda each: stated(each.peak_memory_bytes, size)),
        *on_device,
        ("#load", lambda each: stated(each.load_seconds, duration)),
        ("run", lambda each: _runs(each) or "-"),
        ("#inputs, at most", lambda each: stated(each.memory.input_bytes_max, size)),
        ("#activations, at most", lambda each: stated(_activations(each), size)),
        extra=2,
        note=note,
    )


def _activations(variant: VariantSummary) -> int | None:
    """By the plan at its largest, or the sum of all values if there is no plan."""
    plan = variant.planned
    if plan is None or not plan.at:
        return variant.memory.activation_bytes_max
    return max(run.peak_bytes for run in plan.at)


def _runs(variant: VariantSummary) -> str:
    """By fixture; samples of calibration data, which are alike, by their median."""
    runs = variant.run_seconds
    samples = [seconds for name, seconds in runs.items() if _SAMPLE.fullmatch(name)]
    words = [
        f"{fixture_in_words(name)} {run_text(variant, name)}"
        for name in runs
        if not _SAMPLE.fullmatch(name)
    ]
    if samples:
        words.append(f"{count(len(samples), 'sample')} {duration(median(samples))}")
    return ", ".join(words) + (measured_elsewhere(variant) if words else "")


def usual_fixture(variant: VariantSummary) -> str:
    """The timed fixture that stands for a variant; empty if none was timed."""
    return standing_fixture(variant.run_seconds)


def run_text(variant: VariantSummary, fixture: str) -> str:
    """The median of the warm calls of a fixture, with their spread where it is known."""
    seconds, spread = variant.run_seconds[fixture], variant.run_spread.get(fixture)
    return with_spread(seconds, None if spread is None else spread.share_of(seconds))


def with_spread(seconds: float, share: float | None) -> str:
    """Seconds, and as `+-` half the `share` of them by which their quartiles are apart."""
    return duration(seconds) + ("" if share is None else f" +-{share / 2:.0%}")


def measured_elsewhere(variant: VariantSummary) -> str:
    """What is said after times of a variant that are not those of its target."""
    return "" if variant.parity.status == "passed" else ", on the build host"


# Where variants run.


def placement_sheet(variants: Variants) -> Sheet:
    """Nodes by provider; partitions of variants that several share; what sessions are told."""
    divided = [(each.name, each.partitioning) for each in variants if each.partitioning is not None]
    transfers = [each for _, report in divided for each in report.transfers]
    crossing = sum(bool(each.source and each.target) for each in transfers)
    between = (
        f"{count(crossing, 'value')} from one provider to another in each call, and "
        f"{len(transfers) - crossing} between provider and caller."
    )
    return [
        table(
            "placement",
            variants,
            ("variant", lambda each: each.name),
            ("nodes", placement_text),
            ("", lambda each: each.placement_origin),
            ("passes", _passes),
            ("that compute shapes", _shape_nodes),
        ),
        Table(
            "providers",
            ("", "nodes", "compute", "partitions", "operations and bytes, optimal", "largest"),
            [
                (
                    name,
                    provider(share.provider),
                    f"{share.nodes}, {share.node_share:.0%}",
                    f"{share.flops_share:.1%}",
                    str(share.partitions),
                    f"{_operations(share.opt.flops)}, {size(share.opt.bytes)}",
                    f"{_operations(share.max.flops)}, {size(share.max.bytes)}",
                )
                for name, report in divided
                for share in report.providers
            ],
            grouped=True,
        ),
        Table(
            "partitions",
            ("", "runs on", "#nodes", "operators"),
            [
                (
                    name,
                    each.name,
                    provider(each.provider) + (", compiled" if each.compiled else ""),
                    str(each.nodes),
                    _ops(each),
                )
                for name, report in divided
                for each in report.partitions
            ],
            limit=_LISTED,
            grouped=True,
        ),
        Table(
            "transfers",
            ("value", "from", "to", "#optimal", "#largest"),
            [row for name, report in divided for row in _transfers(name, report)],
            limit=_LISTED + 1,
            grouped=True,
            note=between,
        ),
        Table(
            "refusals",
            ("node", "operator", "refused by", "why"),
            [
                (name, each.node, each.op, provider(each.provider), each.reason)
                for name, report in divided
                for each in report.refusals
            ],
            limit=_LISTED,
            grouped=True,
        ),
        Table(
            "CUDA graphs",
            ("captured sizes", "other sizes"),
            [
                (each.name, _captured(graphs), _other_sizes(graphs))
                for each in variants
                if (graphs := each.cuda_graphs) is not None
            ],
        ),
        Table(
            "provider options",
            ("",),
            [
                (
                    f"{each.name} {provider(name)}",
                    ", ".join(f"{option} {value}" for option, value in options.items()),
                )
                for each in variants
                for name, options in each.provider_options.items()
                if options
            ],
        ),
    ]


def _captured(graphs: GraphCapture) -> str:
    """Captured sizes as text: the sizes of each dim, and how many combinations there are."""
    sizes = graphs.sizes
    names = list(sizes[0]) if sizes else []
    listed = "; ".join(
        f"{name} {', '.join(str(size) for size in sorted({item[name] for item in sizes}))}"
        for name in names
    )
    combined = count(len(sizes), "size")
    if graphs.sessions == "each":
        combined = f"{combined} in sessions of their own"
    return f"{combined}: {listed}" if listed else combined


def _other_sizes(graphs: GraphCapture) -> str:
    if graphs.on_call:
        return f"captured at their first call, at most {graphs.max_count} in all"
    return "run without"


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


def _operations(number: int) -> str:
    value = float(number)
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g} {unit}FLOP"


def _ops(partition: Partition) -> str:
    named = sorted(partition.ops, key=lambda op: -partition.ops[op])
    text = ", ".join(f"{partition.ops[op]} {op}" for op in named[:4])
    inside = f" in {partition.subgraph}" if partition.subgraph else ""
    return text + (f", {count(len(named) - 4, 'other')}" if len(named) > 4 else "") + inside


def _transfers(name: str, report: PartitionReport) -> list[Row]:
    rows: list[Row] = [
        (
            name,
            each.value,
            *(provider(side) if side else "caller" for side in (each.source, each.target)),
            *("unknown" if n is None else size(n) for n in (each.bytes, each.bytes_max)),
        )
        for each in report.transfers
    ]
    if len(rows) > 1:
        optimal = _sum([transfer.bytes for transfer in report.transfers])
        largest = _sum([transfer.bytes_max for transfer in report.transfers])
        rows.insert(0, (name, f"all {len(rows)}", "", "", optimal, largest))
    return rows


def _sum(sizes: Sequence[int | None]) -> str:
    text = size(sum(number or 0 for number in sizes))
    return f"at least {text}" if None in sizes else text


def tuning_table(candidates: Sequence[TuningCandidate]) -> Table:
    """What `--tune` and `precision: auto` tried, what was taken marked."""
    # What only CUDA has is shown where it was tried.
    names = [n for n in ("fusion", "layout") if len({getattr(each, n) for each in candidates}) > 1]
    return table(
        "tuning",
        candidates,
        ("variant", lambda each: each.variant),
        ("providers", lambda each: ", ".join(each.providers)),
        ("precision", lambda each: f"{each.precision} {each.form}".removesuffix(" auto")),
        ("blocks", lambda each: each.blocks.in_words() if each.blocks else ""),
        ("in float32", lambda each: each.keep_float32 and count(len(each.keep_float32), "node")),
        ("ISA", lambda each: each.isa),
        ("level", lambda each: each.optimization),
        *((name, attrgetter(name)) for name in names),
        ("threads", lambda each: str(each.threads or "all")),
        ("median", lambda each: stated(each.median_seconds, duration)),
        ("", lambda each: "chosen" if each.chosen else each.reason[:80]),
    )


# How exact variants are.


def exactness_sheet(variants: Variants) -> Sheet:
    """Precision, the worst error of each output, limits and tasks, and calls that differed."""
    tolerances = {
        f"{parity.arithmetic}, within {tolerance_text(parity.tolerance)}."
        for parity in (each.parity for each in variants)
        if parity.tolerance is not None
    }
    return [
        table(
            "precision",
            [each for each in variants if each.precision != "keep"],
            ("variant", lambda each: each.name),
            ("", lambda each: each.precision),
            ("form", _form),
            ("nodes that stay in float32", _in_float32),
            ("as it runs", _as_it_runs),
        ),
        Table(
            "beside keep",
            ("#time", "#a call", "#in keep", "#weights", "#in keep", "goal", "what takes longer"),
            [
                (
                    each.name,
                    _ratio(beside),
                    stated(beside.seconds, duration),
                    stated(beside.keep_seconds, duration),
                    size(beside.weights_bytes),
                    size(beside.keep_weights_bytes),
                    beside.goal,
                    _costs(beside),
                )
                for each in variants
                if (beside := each.against_keep) is not None
            ],
            note="On the CPU provider, times are the processor time of one thread; the interval of "
            "their ratio is that of 90 %.",
        ),
        Table(
            "8-bit integers",
            ("answers", "because", "time"),
            [
                (each.name, *each.integer_products.in_words(), _time(each))
                for each in variants
                if each.integer_products is not None
            ],
        ),
        Table(
            "exactness",
            (
                *("", "#max abs", "#max rel", "#1 - cosine", "#shapes", "worst slice"),
                *("#SQNR", "#agreement"),
            ),
            [row for each in variants for row in _exactness(each)],
            grouped=True,
            extra=2,
            note=" ".join(sorted(tolerances)),
        ),
        Table(
            "gates",
            ("output", "", "measured", "limit"),
            [row for each in variants for row in _gates(each)],
            grouped=True,
        ),
        Table(
            "equal calls",
            ("bytes", "calls", "equal with"),
            [
                (
                    each.name,
                    failed(
                        f"{repeats.differing_runs} differ in "
                        + ", ".join(output.output for output in repeats.outputs)
                    ),
                    count(repeats.runs, "call")
                    + (", one after a reload" if repeats.reloaded else ""),
                    repeats.setting or "no setting",
                )
                for each in variants
                if (repeats := each.repeats) is not None and repeats.differing_runs
            ],
        ),
    ]


def _ratio(beside: AgainstKeep) -> Cell:
    if beside.ratio is None:
        return "not timed"
    text = f"{beside.ratio:.2f}"
    if beside.ratio_low is not None:
        text += f" ({beside.ratio_low:.2f} to {beside.ratio_high:.2f})"
    return noticed(text) if beside.is_slower else text


def _costs(beside: AgainstKeep) -> str:
    """What takes longer, or why nothing was timed."""
    return beside.why_not or ", ".join(
        f"{cost.op} {duration(cost.seconds)}" for cost in beside.costs
    )


def _exactness(variant: VariantSummary) -> list[Row]:
    parity: Parity = variant.parity
    padded = f", {parity.padded} padded" if parity.padded else ""
    shapes = f"{len(parity.shapes)}{padded}"
    if parity.status != "passed":
        return [(variant.name, failed(f"NOT PROVEN: {parity.reason}"), *[""] * 7)]
    if not variant.worst:
        proof = passed("passed; no evidence says how far")
        return [(variant.name, proof, "", "", "", shapes, "", "", "")]
    return [
        (
            variant.name,
            passed(f"{error.output} passed") if error.passed else failed(f"{error.output} FAILED"),
            f"{error.max_abs:.2g}",
            f"{error.max_rel:.2g}",
            # What is missing to 1, as a rounded cosine would say that nothing is.
            "-" if error.cosine is None else f"{max(0.0, 1 - error.cosine):.2g}",
            "" if index else shapes,
            slice_text(error.worst_slice),
            "" if error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
            "" if error.agreement is None else f"{error.agreement:.4g}",
        )
        for index, error in enumerate(variant.worst)
    ]


def slice_text(found: SliceError | None) -> str:
    """The slice that errs most beside what it may, in one line."""
    if found is None or not found.error:
        return ""
    return f"{found.error:.2g} rms of {found.scale:.2g}, {found.place}"


def tolerance_text(tolerance: Tolerance) -> str:
    """The tolerance of errors, and the least cosine."""
    return (
        f"{tolerance.atol:g} + {tolerance.rtol:g} * max|reference|, cosine {tolerance.min_cosine:g}"
    )


def _gates(variant: VariantSummary) -> list[Row]:
    rows: list[Row] = [
        (
            variant.name,
            each.output,
            verdict(each.passed),
            each.measured or "no evidence says how far",
            each.limit,
        )
        for each in variant.limits
    ]
    if (task := variant.task) is not None:
        limit = f"drops by <= {task.max_drop:g}"
        rows.append((variant.name, task.output, verdict(task.passed), task_text(task), limit))
    return rows


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


def _form(variant: VariantSummary) -> str:
    """How a variant was quantized, such as `static: ranges of 64 samples; 10 nodes, 2 smoothed`."""
    made = _pass_of(variant, QUANTIZE)
    if made is None:
        return ""
    options, nodes = made.options, count(made.matched.get("quantized", 0), "node")
    if (smoothing := _pass_of(variant, SMOOTH)) is not None:
        nodes += f", {smoothing.matched.get('products', 0)} smoothed"
    if "samples" in options:
        method = "ranges" if options.get("method") == "auto" else options.get("method")
        samples = count(int(options["samples"]), "sample")
        if clipped := made.matched.get(CLIPPED, 0):
            samples += f", {clipped} without outliers"
        return f"{options.get('form')}: {method} of {samples}; {nodes}"
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


def _as_it_runs(variant: VariantSummary) -> str:
    """How many products of the loaded graph are quantized, of a quantized variant."""
    found = variant.computed_products
    return "" if found is None else found.in_words()


def _pass_of(variant: VariantSummary, name: str) -> PassRecord | None:
    return next((made for made in variant.passes if made.name == name), None)


def _time(variant: VariantSummary) -> str:
    timed = variant.timed_against
    if timed is None:
        return "-"
    return f"{duration(timed.seconds)}, {timed.ratio:.2f} of {timed.other}"


# What a host must have to run a variant.


# Fields that have words of their own, or are shown with providers; others go by their names.
_WORDED: Final = frozenset(
    {
        *("os", "architecture", "libc", "isa", "isa_exact", "onnxruntime_min", "onnxruntime_below"),
        *("providers", "plugins", "custom_ops", "compatibility"),
        *("nvidia_driver_min", "cuda_major", "compute_capabilities"),
    }
)


def custom_ops_in_words(library: CustomOps) -> str:
    """A library of custom operators: whose it is, its digest, where it is, and for which Python."""
    where = "at load" if library.path is None else "in the artifact"
    text = f"custom operators of {library.name} ({library.sha256[:12]}, {where})"
    return f"{text} for {library.python}" if library.python else text


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
    parts += [custom_ops_in_words(library) for library in needs.custom_ops]
    if needs.nvidia_driver_min:
        parts.append(f"NVIDIA driver >= {needs.nvidia_driver_min}")
    if needs.compute_capabilities:
        parts.append(f"compute capability {' or '.join(needs.compute_capabilities)}")
    for name, value in encode(needs).items():
        if name not in _WORDED:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)


# Errors by node, and what `aotc debug parity` shows.


# `--json` has all.
_WORST: Final = 10
_HELD: Final = "weights of the model and values of the inputs: look before you publish them"
# What stands for an error that cannot be measured.
_LARGEST: Final = 1e300


def parity_view(report: ParityDebugReport) -> Sheet:
    """Outputs and nodes of one variant against its model."""
    status = "out of tolerance" if report.failed else "within tolerance"
    inputs = fixture_in_words(report.fixture)
    if len(report.compared) > 1:
        inputs += f", the worst of {len(report.compared)}"
    judged = {error.output for error in report.outputs}
    gates = [(f"gate of {k}", _gate(gate)) for k, gate in report.gates.items() if k in judged]
    return [
        Heading(
            f"{report.artifact} and {report.model}",
            f"{status}; nothing here was verified",
            FAILED if report.failed else PASSED,
        ),
        Facts(
            [
                ("variant", f"{report.variant}, id {short(report.artifact_id)}"),
                ("inputs", inputs),
                ("tolerance", tolerance_text(report.tolerance)),
                *gates,
            ]
        ),
        table(
            "outputs",
            report.outputs,
            ("output", lambda error: error.output),
            ("", lambda error: verdict(error.passed, error.reason)),
            ("#max abs", lambda error: _number(error.max_abs)),
            ("#max rel", lambda error: _number(error.max_rel)),
            ("#1 - cosine", lambda error: stated(error.cosine, lambda one: _number(1 - one))),
        ),
        node_facts(report.errors),
        worst_nodes(report.errors),
        *(_exported_sheet(report.exported) if report.exported is not None else ()),
        *([_submodel(report.submodel)] if report.submodel is not None else []),
        findings_table(report.findings),
        refusals_table("failed", report.failed),
    ]


def _exported_sheet(errors: NodeErrors) -> Sheet:
    """The exported model beside the framework: the exporter's half of the errors."""
    failed = [each for each in errors.nodes if not each.passed]
    ranked = sorted(errors.nodes, key=lambda each: -each.max_rel)
    return [
        Heading("the exported model beside the framework"),
        node_facts(errors),
        nodes_table("nodes that differ", failed[:_WORST] or ranked[:_WORST]),
    ]


def _gate(gate: OutputGate) -> str:
    limits = [f"{name} {limit:g}" for name, limit in gate.limits() if limit is not None]
    return ", ".join(limits) + (", instead of the tolerance" if gate.replaces_tolerance else "")


def node_errors_sheet(variant: str, errors: NodeErrors) -> Sheet:
    """The errors by node of a variant: how much was compared, and the nodes that add most."""
    hint = "While inner values were read, the variant gave other bits: take these as a hint."
    return [
        Facts([("errors by node", f"{variant}, on {fixture_in_words(errors.fixture)}")]),
        node_facts(errors),
        *([Note(hint, NOTICED)] if errors.outputs_changed else ()),
        worst_nodes(errors),
    ]


def node_facts(errors: NodeErrors) -> Facts:
    """How much was compared, and the first and the worst node."""
    compared = f"{count(len(errors.nodes), 'value')} inside, {errors.uncompared} fused away or "
    return Facts(
        [
            ("compared", compared + "not seen"),
            ("first node", _node(errors, errors.first) or "none is out of tolerance"),
            ("worst node", _node(errors, errors.worst) or "none adds an error"),
        ]
    )


def _node(errors: NodeErrors, name: str) -> str:
    found = errors.of_node(name)
    if found is None:
        return ""
    by = f", by {found.variant_node}" if found.variant_node not in ("", name) else ""
    return f"{name} ({found.op}){by}"


def worst_nodes(errors: NodeErrors) -> Table:
    """The nodes that add most to the error of what they read."""
    ranked = sorted(errors.nodes, key=_added, reverse=True)
    return nodes_table("worst nodes", [each for each in ranked[:_WORST] if _added(each) > 0])


def nodes_table(title: str, errors: Sequence[NodeError]) -> Table:
    """The error of each node, and what it adds."""
    return table(
        title,
        errors,
        ("node", lambda each: each.node),
        ("", lambda each: each.op),
        ("module", lambda each: each.module),
        ("code", lambda each: each.place),
        ("stands for", lambda each: listed([one for one in each.covers if one != each.node])),
        ("", lambda each: verdict(each.passed, "out", "within")),
        ("#max rel", lambda each: _number(each.max_rel)),
        ("#SQNR", lambda each: stated(each.sqnr_db, "{:.1f} dB".format)),
        ("#adds", lambda each: stated(each.added, "{:.2g}".format)),
        ("because", lambda each: each.reason),
        extra=1,
    )


def _added(error: NodeError) -> float:
    if error.added is None:
        return 0.0 if error.passed else float("inf")
    return error.added


def _number(value: float) -> str:
    return "-" if value > _LARGEST else f"{value:.2g}"


def _submodel(found: FailingSubmodel) -> Table:
    title = "smallest range that fails alone" if found.accumulated else "smallest part that fails"
    nodes = [f"{name} ({op})" for name, op in zip(found.variant_nodes, found.ops, strict=True)]
    rows = [
        ("nodes of the model", listed(found.nodes)),
        ("nodes of the variant", listed(nodes)),
        ("fed with", listed(found.inputs)),
        ("error", found.error.reason),
        ("parts run alone", str(found.trials)),
        ("written", ", ".join(found.files) or "nothing: -o FOLDER does"),
        *([("which hold", _HELD)] if found.files else ()),
    ]
    return Table(title, ("",), rows)
