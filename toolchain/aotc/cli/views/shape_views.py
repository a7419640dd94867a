"""Shapes as text: what an artifact takes, what its outputs are, and what was seen of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.render import count, section
from aotc.contract.manifest.interface import ValueShapes
from aotc.contract.results.reports import DimCoverage, ShapeReport, TrafficCoverage
from aotc.contract.shapes.domain import Dim, Domain, Relation

if TYPE_CHECKING:
    from rich.console import RenderableType

_LISTED = 12


def shapes_view(domain: Domain, strict: bool, shapes: ShapeReport | None) -> list[RenderableType]:
    """Sections on the sizes that callers may pass, on outputs and on coverage."""
    parts: list[RenderableType] = []
    rows = [
        (name, _range(dim), _origin(dim), _outside(dim, strict))
        for name, dim in domain.dims.items()
    ]
    rows += [
        (relation.dim, str(relation), *_following(relation, strict))
        for relation in domain.relations
    ]
    if rows:
        title = "proven shapes" + (", others are refused" if strict else "")
        parts.append(section(title, ("", "", "other sizes"), rows))
    if shapes is None:
        return parts
    if shapes.outputs:
        columns = ("declared", "inferred", "produced")
        parts.append(section("outputs", columns, [_output(output) for output in shapes.outputs]))
    if any(dim.gap or len(dim.compared) > 1 for dim in shapes.dims):
        columns = ("sizes compared at build", "of all", "widest gap between")
        parts.append(section("coverage", columns, [_coverage(dim) for dim in shapes.dims]))
    if shapes.learned is not None:
        learned = shapes.learned
        text = (
            f"{count(learned.requests, 'request')}, {learned.coverage:.1%} accepted, "
            f"{learned.padding:.1%} of elements added by padding"
        )
        parts.append(section("learned from", ("",), [(learned.sha256[:12], text)]))
    if shapes.traffic is not None:
        parts.append(_traffic(shapes.traffic))
    return parts


def sizes_text(domain: Domain) -> dict[str, str]:
    """The sizes of each dim in words, and how the others follow."""
    named = {name: dim.text() for name, dim in domain.dims.items()}
    return named | {
        relation.dim: f"= {str(relation).partition(' = ')[2]}" for relation in domain.relations
    }


def _following(relation: Relation, strict: bool) -> tuple[str, str]:
    if relation.enforced:
        return "follows", ""
    return "tried so", "refused" if strict else "counted"


def _range(dim: Dim) -> str:
    return dim.text() if dim.min == dim.max or dim.buckets else f"{dim.text()}, optimal {dim.opt}"


def _origin(dim: Dim) -> str:
    if dim.origin == "stated":
        return "stated"
    tried = f"probed at {count(len(dim.tested), 'size')}"
    if dim.stopped_by == "error":
        return f"{tried}; larger ones fail"
    if dim.stopped_by == "together":
        return f"{tried}; larger ones fail with all others at their largest"
    return f"{tried}, up to the limit of {dim.stopped_by}" if dim.stopped_by else tried


def _outside(dim: Dim, strict: bool) -> str:
    if dim.outside:
        words = {"pad": "padded", "route": "routed"}
        return ", ".join(words[kind] for kind in dim.outside)
    return "refused" if strict or dim.origin == "stated" else "counted"


def _output(value: ValueShapes) -> tuple[str, ...]:
    return value.name, *(
        _shape(shape) for shape in (value.declared, value.inferred, value.produced)
    )


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "unknown" if shape is None else f"[{', '.join(str(size) for size in shape)}]"


def _coverage(dim: DimCoverage) -> tuple[str, ...]:
    listed = ", ".join(str(size) for size in dim.compared[:_LISTED])
    rest = len(dim.compared) - _LISTED
    gap = f"{dim.gap[0]}..{dim.gap[1]}" if dim.gap else "none"
    return dim.dim, listed + (f" and {rest} more" if rest > 0 else ""), f"{dim.share:.1%}", gap


def _traffic(traffic: TrafficCoverage) -> RenderableType:
    rows = [
        ("requests", f"{traffic.requests}, {traffic.accepted:.1%} accepted"),
        (
            "of them",
            f"{traffic.exact:.1%} exact, {traffic.padded:.1%} padded, {traffic.routed:.1%} routed",
        ),
        ("padding", f"{traffic.padding:.1%} of elements added"),
        ("compared at build", f"{traffic.compared:.1%} at just these sizes"),
    ]
    rows += [(name, count(number, "request")) for name, number in traffic.variants.items()]
    rows += [
        (f"refused: {sizes}", count(number, "request")) for sizes, number in traffic.refused.items()
    ]
    return section(f"traffic of {traffic.path}", ("",), rows)
