"""Memory over the graph of each variant, with the node at the peak."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from aotc.drawing.artifact_contents import Contents, sizes_text
from aotc.drawing.figures import bytes_text
from aotc.drawing.live_memory import memory_curve
from aotc.drawing.markup import section, shown_name, table, tag
from aotc.drawing.memory_chart import memory_chart


def memory_section(contents: Contents) -> Element:
    """Plan and measurement by variant, and a curve for each graph."""
    measured = {
        found.name: found.peak_memory_bytes
        for found in (contents.evidence.variants if contents.evidence is not None else ())
    }
    parts: list[Element] = [
        table(
            (
                "variant",
                "#weights",
                "#inputs, at most",
                "#activations, at most",
                "#process, measured",
            ),
            (
                (
                    variant.name,
                    bytes_text(variant.memory.weights_bytes),
                    bytes_text(variant.memory.input_bytes_max),
                    bytes_text(variant.memory.activation_bytes_max),
                    "not measured"
                    if measured.get(variant.name) is None
                    else bytes_text(measured[variant.name]),
                )
                for variant in contents.manifest.variants
            ),
            caption="As the manifest plans it: activations are the sum of all nodes' outputs, an "
            "upper bound. The measured peak is of a whole process at build.",
        )
    ]
    variants = {variant.name: variant for variant in contents.manifest.variants}
    for drawn in contents.drawn:
        graph = drawn.graph
        if graph is None:
            continue
        domain = variants[drawn.names[0]].domain or contents.manifest.domain
        curves = [("optimal sizes", graph.sizes, {n: d.opt for n, d in domain.dims.items()})]
        if graph.sizes_max != graph.sizes:
            curves.append(
                ("largest sizes", graph.sizes_max, {n: d.max for n, d in domain.dims.items()})
            )
        for title, sizes, dims in curves:
            curve = memory_curve(graph, sizes)
            heading = f"{', '.join(drawn.names)}, {title} ({sizes_text(dims)})"
            parts.append(tag("h3", heading))
            if curve.peak is None:
                parts.append(tag("p", "No value's size is known: nothing can be drawn."))
                continue
            node = graph.nodes[curve.peak]
            parts.append(
                tag(
                    "div",
                    memory_chart(curve, node.name, heading),
                    class_="scroll",
                    tabindex=0,
                    role="region",
                    aria_label=heading,
                )
            )
            if curve.unknown:
                said = (
                    f"{curve.unknown} of {curve.values} values have sizes that inference does "
                    "not find; they are not counted, so the curve is a lower bound."
                )
                parts.append(tag("p", said, class_="warn"))
            parts.append(
                tag("p", f"At the peak runs {shown_name(node.op, 60)} {shown_name(node.name)}.")
            )
    parts.append(
        tag(
            "p",
            "The curve has what is live by the order of nodes, without weights and inputs. ONNX "
            "Runtime may reuse an input's memory for an output, and keep more than it needs.",
            class_="quiet",
        )
    )
    return section("memory", "Memory", *parts)
