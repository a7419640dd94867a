"""How a framework's source became the model: what the manifest says of its capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aotc.base.text import listed, size
from aotc.report.sheet import (
    Cell,
    Facts,
    Sheet,
    Table,
    count,
    failed,
    first,
    passed,
    short,
    table,
)
from aotc.spec.evidence import OutputError
from aotc.spec.framework_capture import CapturedDim, FrameworkCapture, Network

_MAX_NAMED: Final = 5
_NETWORK: Final[Mapping[Network, str]] = {
    "none": "the capturing process had none",
    "open": "the capturing process had one",
    "unknown": "not known whether the capturing process had one",
}


def captured_text(found: FrameworkCapture) -> str:
    """What the source was, in one line."""
    digest = f", sha256 {short(found.files[0].sha256)}" if len(found.files) == 1 else ""
    large = f", {size(found.size)}" if found.files else ""
    if found.files[1:]:
        large += f" in {count(len(found.files), 'file')}"
    revision = f", revision {found.revision}" if found.revision else ""
    made = f", by {found.made_by}" if found.made_by else ""
    return f"{found.source}: {found.format}{made}{revision}{digest}{large}"


def capture_sheet(found: FrameworkCapture | None, exported: Sequence[OutputError] = ()) -> Sheet:
    """How it was captured, its dims, and what of the user's code was decided for good.

    `exported` are the worst errors of the exported model beside the framework's own answers.
    """
    if found is None:
        return []
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    decomposed = [f"{name} {number}" for name, number in found.decomposed.items()]
    rows = [
        ("exported", f"by {found.exporter}, opset {found.opset}" if found.exporter else ""),
        ("with", versions),
        ("weights", f"sha256 {found.weights_sha256}" if found.weights_sha256 else ""),
        ("decomposed", first(decomposed, _MAX_NAMED) if decomposed else ""),
        (
            "files",
            [f"{file.name}, {size(file.size)}, sha256 {short(file.sha256)}" for file in found.files]
            if found.files[1:]
            else "",
        ),
        ("custom operators", listed(found.custom_operators)),
        ("modules", count(found.modules, "module") if found.modules else ""),
        ("guards", list(found.guards)),
        ("network", _NETWORK[found.network]),
        ("code", "of the source was run, as it was trusted" if found.trusted else "none was run"),
    ]
    return [
        Facts(rows, title="capture"),
        table(
            "captured dims",
            found.dims,
            ("dim", lambda each: each.name),
            ("of", lambda each: listed(each.inputs)),
            ("stated by the source", _stated),
            ("its symbol", lambda each: each.symbol),
        ),
        table(
            "asked to be dynamic, and static",
            found.static_dims,
            ("dim", lambda each: f"{each.input}.{each.axis}"),
            ("#size", lambda each: str(each.size)),
            ("because", lambda each: each.why),
            ("code", lambda each: each.place),
        ),
        table(
            "decisions of the code",
            found.branches,
            ("kind", lambda each: each.kind),
            ("", lambda each: each.what),
            ("code", lambda each: each.place),
        ),
        exported_table(exported, found.importer),
    ]


def exported_table(exported: Sequence[OutputError], framework: str) -> Table:
    """The worst error of each output of the exported model, beside the framework's own answers."""
    return table(
        f"exported model beside {framework}",
        exported,
        ("output", _judged),
        ("#max abs", lambda error: f"{error.max_abs:.2g}"),
        ("#max rel", lambda error: f"{error.max_rel:.2g}"),
    )


def _judged(error: OutputError) -> Cell:
    return passed(f"{error.output} passed") if error.passed else failed(f"{error.output} FAILED")


def _stated(dim: CapturedDim) -> str:
    if dim.min is None and dim.max is None:
        return "any size"
    low = "" if dim.min is None else str(dim.min)
    return f"{low}..{'' if dim.max is None else dim.max}"
