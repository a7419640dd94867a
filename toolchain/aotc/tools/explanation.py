"""The text of a code for `aotc explain CODE` and for the generated page of codes."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.base.codes import REASONS
from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.base.text import near

CODE_GROUPS = {
    "I": "Import and input",
    "S": "Shapes",
    "O": "Optimization",
    "P": "Placement and fallback",
    "N": "Numerics",
    "M": "Memory and budgets",
    "G": "Signing and trust",
    "C": "Compatibility",
    "R": "Runtime",
}


def explain(code: str) -> Explanation:
    """The explanation of a code, written such as `g005` or `AOTC-G005`; raises I027."""
    name = code.strip().upper()
    name = name if name.startswith("AOTC-") else f"AOTC-{name}"
    reason = REASONS.get(name)
    if reason is None:
        close = near(name[5:], [known[5:] for known in REASONS])
        raise AotcError(
            "AOTC-I027",
            f"there is no code {code!r}" + (f"; did you mean AOTC-{close}?" if close else ""),
            fix="List the codes with 'aotc explain --list'.",
        )
    return Explanation(
        code=reason.code,
        title=reason.title,
        exit_status=reason.exit_status,
        explain=reason.explain,
        detail=_detail(name),
        fix=reason.fix,
    )


def _detail(code: str) -> str:
    """The docstring of the check that refuses with a code; empty for most codes."""
    if not code.startswith("AOTC-C"):
        return ""
    from inspect import getdoc

    from aotc.trust.checks import checks

    check = checks().get(code)
    return (getdoc(check) or "") if check is not None else ""


def explain_all() -> tuple[Explanation, ...]:
    """The explanations of all codes, sorted by code."""
    return tuple(explain(code) for code in sorted(REASONS))


@record
class Explanation:
    """One reason code, explained; exit status 0 marks a finding, which does not refuse anything."""

    code: str
    title: str
    exit_status: int
    explain: str
    detail: Annotated[
        str, "how it is checked; empty if it is not the code of a compatibility check"
    ] = ""
    fix: str


@record
class ExplainReport:
    """`aotc explain CODE --json`."""

    schema: Literal["aotc.explain/1"] = "aotc.explain/1"
    reasons: tuple[Explanation, ...]
