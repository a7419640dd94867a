"""What is in an artifact, and which attestation vouches for which part of it."""

from __future__ import annotations

from typing import Final

from canvas import Canvas

from aotc.base.files.folders import ATTESTATIONS
from aotc.spec.attestation_kinds import KINDS, Usage

_PAYLOAD: Final = (
    ("manifest.json", "ORT's manifest of the model package"),
    ("aotc.json", "all that is promised; its sha256 is the artifact's id"),
    ("model/portable/model.onnx", "the optimized graph of one variant"),
    ("shared_assets/sha256-…/", "weights, shared by all variants"),
    ("fixtures/…", "golden inputs and outputs"),
)
_STATEMENTS: Final[dict[Usage, str]] = {
    "oms": "the signature, over every file of the payload",
    "provenance": "from what and how it was built (SLSA)",
    "sbom": "model, data, libraries, licences (CycloneDX)",
    "evidence": "what was measured, and is not reproducible",
    "approval": "it may be used in a channel, until a date",
    "qualification": "it was accepted on a target",
    "reproduction": "somebody else built it again, with the same bytes",
}


def draw() -> str:
    """The picture as SVG; raises KeyError for an attestation kind not in `_STATEMENTS`."""
    attestations = [
        (kind.path if kind.by_build else f"{kind.usage}-*", _STATEMENTS.get(kind.usage, ""))
        for kind in KINDS.values()
    ]
    canvas = Canvas(
        900,
        92 + 26 * (len(_PAYLOAD) + len(attestations)) + 84,
        "What is in an artifact",
        "The folder payload is reproducible byte for byte and every file of it is signed: "
        + "; ".join(f"{name}: {what}" for name, what in _PAYLOAD)
        + f". The folder {ATTESTATIONS} holds one sigstore bundle in each file: "
        + "; ".join(f"{name.rpartition('/')[2]}: {what}" for name, what in attestations)
        + ".",
    )
    canvas.text((24, 34), "digits.aotc/", "title")
    y = 52
    height = 40 + 26 * len(_PAYLOAD)
    canvas.box("signed", (24, y, 852, height), "payload/")
    canvas.text((860, y + 22), "reproducible; every byte is signed", anchor="end")
    _rows(canvas, y + 48, [(name, what) for name, what in _PAYLOAD])
    y += height + 18
    height = 40 + 26 * len(attestations)
    canvas.box("step", (24, y, 852, height), f"{ATTESTATIONS}/")
    canvas.text((860, y + 22), "one sigstore bundle in each file", anchor="end")
    _rows(canvas, y + 48, [(name.rpartition("/")[2], what) for name, what in attestations])
    return canvas.svg()


def _rows(canvas: Canvas, y: int, rows: list[tuple[str, str]]) -> None:
    for name, what in rows:
        canvas.text((56, y), name, "code", 300)
        canvas.text((372, y), what, "", 490)
        y += 26
