"""Size 0 of dims that nobody bounded, if a variant does not compute the model's results there.

ONNX Runtime's kernels were seen to leave memory unset for no elements; then the range begins at 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.stages.fallback import is_budget
from aotc.stages.types import AnalyzedModel

# Codes of a variant's proof: wrong results, a graph that does not run, a crash.
_CODES = frozenset({"AOTC-N001", "AOTC-R005", "AOTC-R008", "AOTC-I013"})


def fails_at_empty_sizes(analyzed: AnalyzedModel, errors: Sequence[AotcError]) -> bool:
    """Whether a variant fails only where a dim that nobody bounded has size 0.

    `errors` are the variants', each with its further ones; budgets that it exceeds do not count.
    """
    probed = {name for name, dim in analyzed.domain.dims.items() if dim.origin == "probed"}
    empty = {
        reference.name
        for reference in analyzed.references
        if any(reference.sizes.get(name) == 0 for name in probed)
    }
    for error in errors:
        failures = [each for each in (error, *error.also) if not is_budget(each)]
        if failures and all(
            failure.code in _CODES and failure.where.rpartition("fixture ")[2] in empty
            for failure in failures
        ):
            return True
    return False


def empty_sizes_finding(error: AotcError) -> Finding:
    """The finding AOTC-S027: because of `error`, ranges that included 0 begin above it."""
    return Finding(
        code="AOTC-S027",
        what=f"size 0 is left out, at which a variant fails: {error.code} {error.what}",
        where=error.where,
    )
