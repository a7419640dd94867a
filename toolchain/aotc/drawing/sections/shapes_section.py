"""Inputs, outputs, sizes of dims, buckets, and the traffic on them."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from aotc.contract.manifest.interface import Value
from aotc.contract.results.reports import InspectReport, ShapeReport, TrafficCoverage
from aotc.drawing.figures import share_text
from aotc.drawing.markup import section, shown_name, table, tag


def shapes_section(report: InspectReport, shapes: ShapeReport | None) -> Element:
    """What callers may pass, and what of it was compared."""
    domain = report.domain
    compared = {dim.dim: dim for dim in (shapes.dims if shapes is not None else ())}
    values = (("in", report.inputs), ("out", report.outputs))
    parts = [
        table(
            ("name", "", "type", "shape"),
            (
                (shown_name(value.name), way, value.dtype, _shape(value))
                for way, named in values
                for value in named
            ),
        )
    ]
    if domain is not None and domain.dims:
        parts.append(tag("h3", "Sizes"))
        parts.append(
            table(
                ("dim", "sizes", "#optimal", "buckets", "compared at build", "#share compared"),
                (
                    (
                        shown_name(name),
                        dim.text(),
                        str(dim.opt),
                        ", ".join(map(str, dim.buckets)) or "none",
                        ", ".join(map(str, compared[name].compared)) if name in compared else "",
                        share_text(compared[name].share) if name in compared else "",
                    )
                    for name, dim in domain.dims.items()
                ),
            )
        )
        parts += [tag("p", tag("code", str(relation))) for relation in domain.relations]
    parts.append(tag("h3", "Traffic"))
    if shapes is not None and shapes.learned is not None:
        learned = shapes.learned
        said = (
            f"The profile was learned from {learned.requests} requests: "
            f"{share_text(learned.coverage)} of them are accepted, with {learned.padding:.2f} "
            "elements added for each. "
        )
        parts.append(tag("p", said, learned.plan))
    if shapes is not None and shapes.traffic is not None:
        parts += _traffic(shapes.traffic)
    elif shapes is None or shapes.learned is None:
        said = "No traffic is known: the profile was not learned, and none was given."
        parts.append(tag("p", said, class_="quiet"))
    return section("shapes", "Shapes", *parts)


def _traffic(traffic: TrafficCoverage) -> list[Element]:
    asked = max(traffic.requests, 1)
    served = [
        (shown_name(name), str(count), _bar(count / asked))
        for name, count in traffic.variants.items()
    ]
    refused = [
        (f"refused: {shown_name(sizes)}", str(count), _bar(count / asked))
        for sizes, count in traffic.refused.items()
    ]
    said = (
        f"Of {traffic.requests} recorded requests {share_text(traffic.accepted)} are accepted: "
        f"{share_text(traffic.exact)} run exactly, {share_text(traffic.padded)} padded, "
        f"{share_text(traffic.routed)} on the dynamic variant."
    )
    return [tag("p", said), table(("variant", "#requests", "share"), [*served, *refused])]


def _bar(share: float) -> Element:
    return tag(
        "svg",
        tag("title", share_text(share)),
        tag("rect", x=0, y=0, width=max(share * 160, 1.0), height=10, class_="bar"),
        width=160,
        height=10,
        role="img",
        aria_label=share_text(share),
    )


def _shape(value: Value) -> str:
    return "unknown rank" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
