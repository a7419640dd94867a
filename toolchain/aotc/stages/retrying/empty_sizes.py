"""Size 0 of dims that nobody bounded, if a variant does not compute the model's results there.

ONNX Runtime's kernels were seen to leave memory unset for no elements; then the range begins at 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.contract.finding import Finding
from aotc.errors import AotcError
from aotc.stages.types import AnalyzedModel

# Codes of a variant's proof: wrong results, a graph that does not run, a crash.
_CODES = frozenset({"AOTC-N001", "AOTC-R005", "AOTC-R008", "AOTC-I013"})


def fails_at_empty_sizes(analyzed: AnalyzedModel, errors: Sequence[AotcError]) -> bool:
    """Whether all of `errors` concern fixtures in which a dim that nobody bounded has size 0."""
    probed = {name for name, dim in analyzed.domain.dims.items() if dim.origin == "probed"}
    empty = {
        reference.name
        for reference in analyzed.references
        if any(reference.sizes.get(name) == 0 for name in probed)
    }
    failures = [failure for error in errors for failure in (error, *error.also)]
    return bool(failures) and all(
        failure.code in _CODES and failure.where.rpartition("fixture ")[2] in empty
        for failure in failures
    )


def empty_sizes_finding(error: AotcError) -> Finding:
    """The finding AOTC-S027: because of `error`, ranges that included 0 begin above it."""
    return Finding(
        code="AOTC-S027",
        what=f"size 0 is left out, at which a variant fails: {error.code} {error.what}",
        where=error.where,
    )
