"""The text of a code for `aotc explain CODE` and for the generated page of codes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from aotc.contract.codec.spelling import nearest
from aotc.contract.results.command_reports import Explanation
from aotc.errors import AotcError
from aotc.reasons import REASONS

if TYPE_CHECKING:
    from aotc.verification.checks.base import Check

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
        close = nearest(name, tuple(REASONS))
        raise AotcError(
            "AOTC-I027",
            f"there is no code {code!r}" + (f"; did you mean {close}?" if close else ""),
            fix="List the codes with 'aotc explain --list'.",
        )
    check = _check_with(name)
    return Explanation(
        code=reason.code,
        title=reason.title,
        exit_status=reason.exit_status,
        explain=reason.explain,
        detail=(inspect.getdoc(check) or "") if check is not None else "",
        fix=reason.fix,
    )


def _check_with(code: str) -> type[Check] | None:
    """The check that refuses with a code, whose docstring explains more; None for most codes."""
    if not code.startswith("AOTC-C"):
        return None
    from aotc.verification.checks import checks

    return checks().get(code)


def explain_all() -> tuple[Explanation, ...]:
    """The explanations of all codes, sorted by code."""
    return tuple(explain(code) for code in sorted(REASONS))
