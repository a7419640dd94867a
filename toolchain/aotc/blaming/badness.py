"""How far an answer is from its limits, as one number that trials are compared by."""

from __future__ import annotations

from typing import Final

from aotc.contract.precision.gates import OutputGate
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputError
from aotc.engine.output_gates import FORM, TOLERANCE, JudgedLimit, judged_limits
from aotc.engine.parity import UNBOUNDED

# The next float above 1: what fails by the breadth of a rounding.
_ABOVE: Final = 1.0 + 2.0**-52


def badness(error: OutputError, tolerance: Tolerance, gate: OutputGate | None = None) -> float:
    """The largest of measured/limit over the limits of one output: at most 1 where it passes.

    Of a cosine and an agreement, what lacks to 1 is compared; of an SQNR, amplitudes.  `UNBOUNDED`
    where nothing can be measured, as where NaN differ.
    """
    shares = [0.0]
    if gate is None or not gate.instead:
        shares += _of_tolerance(error, tolerance)
    if gate is not None:
        shares += map(_of_limit, judged_limits(error, gate), _limits(gate))
    worst = min(max(shares), UNBOUNDED)
    if error.passed:
        return min(worst, 1.0)
    return UNBOUNDED if worst <= 1.0 and _is_unmeasured(error) else max(worst, _ABOVE)


def _is_unmeasured(error: OutputError) -> bool:
    return FORM in error.breached or error.max_abs >= UNBOUNDED


def _of_tolerance(error: OutputError, tolerance: Tolerance) -> list[float]:
    if error.max_abs >= UNBOUNDED:
        return [UNBOUNDED if TOLERANCE in error.breached or FORM in error.breached else 0.0]
    largest = error.max_abs / error.max_rel if 0.0 < error.max_rel < UNBOUNDED else 0.0
    found = [_divided(error.max_abs, tolerance.atol + tolerance.rtol * largest)]
    if error.cosine is not None and error.max_abs > tolerance.atol:
        # A tensor of one element has no direction, which the verdict knows and the cosine does not.
        share = _divided(1.0 - error.cosine, 1.0 - tolerance.min_cosine)
        found.append(min(share, 1.0) if error.passed else share)
    return found


def _limits(gate: OutputGate) -> list[float]:
    return [limit for _, limit in gate.limits() if limit is not None]


def _of_limit(judged: JudgedLimit, limit: float) -> float:
    if judged.measured is None:
        return 0.0 if judged.passed else UNBOUNDED
    if judged.name == "min_sqnr_db":
        return float(10.0 ** min((limit - judged.measured) / 20.0, 300.0))
    if judged.name.startswith("min"):
        return _divided(1.0 - judged.measured, 1.0 - limit)
    return _divided(judged.measured, limit)


def _divided(measured: float, limit: float) -> float:
    if measured <= 0.0:
        return 0.0
    return min(measured / limit, UNBOUNDED) if limit > 0.0 else UNBOUNDED
