"""Records of runs as reports are made of, with ordinary text and with hostile text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aotc.base.errors import Place
from aotc.spec.reports import Refusal
from aotc.spec.run_report import Gate, Measurement, NoticedFinding, RunReport

# What would forge lines, commands, cells, elements, links or mentions, in one name.
HOSTILE: Final = (
    "a\n::error file=x::forged\r\n::stop-commands::t\x1b[31m\x00\u202e|cell|"
    "<script>alert(1)</script>"
    "``` `x` ]](1) ![i](//e) @octocat #1 ]]> & %0A \ud800 {0} [l](2)"
)


def failed_build(folder: Path, text: str = "y") -> RunReport:
    """A build with two breaches, on lines 4 and 6 of `folder`/p.yaml; `text` is in each field."""
    profile = folder / "p.yaml"
    profile.write_text("schema: aotc.profile/1\n" * 6, encoding="utf-8")
    places = [Place(file=str(profile), line=line, column=3) for line in (4, 6)]
    gates = [
        Gate(
            name=f"gate {index} {text}",
            subject=f"variant {text}",
            status="failed",
            limit=f"<= 1 {text}",
            measured=f"{index + 2} {text}",
            place=place,
        )
        for index, place in enumerate(places)
    ]
    gates.append(Gate(name=f"met {text}", subject=text, status="passed", measured=text))
    gates.append(Gate(name=f"never {text}", subject=text, status="not-judged"))
    breaches = tuple(
        Refusal(
            code=code,
            what=f"what {text}",
            where=f"where {text}",
            expected=f"expected {text}",
            found=f"found {text}",
            fix=f"fix {text}",
            rows=({"node": text},),
            place=place,
        )
        for code, place in zip(("AOTC-N001", "AOTC-P002"), places, strict=True)
    )
    return RunReport(
        tool_version="0.1.0",
        command="build",
        outcome="failed",
        exit_status=1,
        model=f"model {text}.onnx",
        profile=str(profile),
        gates=tuple(gates),
        refusals=breaches,
        findings=(
            NoticedFinding(code="AOTC-O003", title="level lowered", what=f"was {text}", where=text),
        ),
        measurements=(Measurement(name=f"size {text}", subject=text, value=37901.0, unit="B"),),
        stages={"import": 0.5},
        seconds=1.25,
    )
