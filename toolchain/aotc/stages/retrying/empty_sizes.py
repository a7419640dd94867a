"""Size 0 of dims that nobody bounded, where a variant does not answer there as the model does.

ONNX Runtime's kernels were seen to leave memory unset over no elements; the range begins at 1 then.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.stages.types import AnalyzedModel

# Wrong answers, a graph that does not run, a crash: of a variant's proof.
_CODES = frozenset({"AOTC-N001", "AOTC-R005", "AOTC-R008", "AOTC-I013"})


def fails_empty(analyzed: AnalyzedModel, errors: Sequence[AotcError]) -> bool:
    """Whether all of `errors` are of fixtures in which a dim that nobody bounded has size 0."""
    probed = {name for name, dim in analyzed.domain.dims.items() if dim.origin == "probed"}
    empty = {
        each.name
        for each in analyzed.references
        if any(each.sizes.get(name) == 0 for name in probed)
    }
    every = [each for error in errors for each in (error, *error.also)]
    return bool(every) and all(
        each.code in _CODES and each.where.rpartition("fixture ")[2] in empty for each in every
    )


def not_empty(error: AotcError) -> Finding:
    """AOTC-S027: ranges that went down to 0 begin above it, as of `error`."""
    return Finding(
        code="AOTC-S027",
        what=f"size 0 is left out, at which a variant fails: {error.code} {error.what}",
        where=error.where,
    )
