"""Limits of a gate: in words, and judged by what was measured; reports need them without numpy."""

from __future__ import annotations

from typing import Final

from aotc.base.records import record
from aotc.spec.evidence import OutputError
from aotc.spec.precision import OutputGate

# What is breached where kind, element type or shape differ, so that nothing can be measured.
FORM: Final = "form"
_NOT_FINITE: Final = "all values of the reference are NaN or infinite"
_WORDS: Final = {
    "max_abs": ("max absolute error <= {:g}", "{:.3g}"),
    "max_rel": ("max relative error <= {:g}", "{:.3g}"),
    "min_cosine": ("cosine >= {:g}", "{:.6f}"),
    "min_sqnr_db": ("SQNR >= {:g} dB", "{:.2f} dB"),
    "min_agreement": ("{what} agreement >= {:g}", "{:.4f}"),
}


@record
class JudgedLimit:
    """One limit of a gate, and what one comparison says of it.

    `measured` is None where nothing was measured.  `undecided` says why nothing can be: such a
    limit failed, unless only the agreement is not defined, at sizes where no row can disagree.
    """

    name: str
    limit: str
    measured: float | None
    passed: bool
    undecided: str = ""

    @property
    def found(self) -> str:
        """What was measured, in words."""
        if self.undecided:
            return f"cannot be judged: {self.undecided}"
        return "exact" if self.measured is None else _WORDS[self.name][1].format(self.measured)


def judged_limits(error: OutputError, gate: OutputGate) -> tuple[JudgedLimit, ...]:
    """Every stated limit of a gate, judged by what was measured of its output.

    What is not defined, as the SQNR of zeros, is passed by an answer without error alone.
    """
    return tuple(
        _judged(name, limit, error, gate) for name, limit in gate.limits() if limit is not None
    )


def stated_limits(gate: OutputGate) -> tuple[str, ...]:
    """Every stated limit of a gate, in words."""
    return tuple(_words(name, limit, gate) for name, limit in gate.limits() if limit is not None)


def _words(name: str, limit: float, gate: OutputGate) -> str:
    what = "argmax" if gate.top_k == 1 else f"top-{gate.top_k}"
    return _WORDS[name][0].format(limit, what=what)


def _judged(name: str, limit: float, error: OutputError, gate: OutputGate) -> JudgedLimit:
    text = _words(name, limit, gate)
    value = {
        "max_abs": error.max_abs,
        "max_rel": error.max_rel,
        "min_cosine": error.cosine,
        "min_sqnr_db": error.sqnr_db,
        "min_agreement": error.agreement,
    }[name]
    undecided = ""
    if FORM in error.breached:
        value, undecided = None, error.reason
    elif error.non_finite_share == 1:
        value, undecided = None, _NOT_FINITE
    elif value is None and name == "min_agreement":
        undecided = f"no row has more than {gate.top_k} values that are numbers"
        return JudgedLimit(name=name, limit=text, measured=None, passed=True, undecided=undecided)
    elif value is None and error.max_abs:
        undecided = "the reference or the answer is zero throughout"
    if value is None:
        passed = not undecided
    else:
        passed = value <= limit if name.startswith("max") else value >= limit
    return JudgedLimit(name=name, limit=text, measured=value, passed=passed, undecided=undecided)
