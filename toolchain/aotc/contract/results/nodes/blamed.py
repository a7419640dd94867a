"""Which nodes make a variant in a lower precision too inexact."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.profile_terms import Precision
from aotc.records import record

# By what a search ended: all was tried that it tries, or there were no more trials, or no time.
SearchEnd = Literal["complete", "trials", "time"]


@record
class OutputChange:
    """The largest error of one output over the fixtures, before and after."""

    output: str
    max_abs_before: float
    max_rel_before: Annotated[float, "max |actual - reference| / max |reference|"]
    max_abs_after: Annotated[float | None, "None: no set of nodes passes"] = None
    max_rel_after: float | None = None


@record
class Blamed:
    """The nodes to blame for one variant's errors, by the names of the imported model.

    A `badness` is the largest of measured/limit over outputs, fixtures and limits: above 1 where a
    limit is not met.
    """

    variant: str
    precision: Precision
    kept: Annotated[
        tuple[str, ...],
        "with these in float32 the variant passes, in the order of the model; empty: none found",
    ] = ()
    kept_before: Annotated[
        tuple[str, ...], "names and patterns that were in float32 already, and stay there"
    ] = ()
    first: Annotated[str, "first node out of tolerance whose inputs are within it"] = ""
    worst: Annotated[str, "node that adds most to the error of its inputs"] = ""
    candidates: Annotated[int, "nodes that compute in the lower precision"] = 0
    badness_before: float = 0.0
    badness_after: Annotated[float | None, "None: no set of nodes passes"] = None
    outputs: tuple[OutputChange, ...] = ()
    trials: Annotated[int, "sessions that were made and run"] = 0
    most_trials: int = 0
    minimal: Annotated[bool, "it was tried that none of `kept` can be left out"] = False
    all_pass: Annotated[
        bool | None,
        "whether it passes with all of them in float32; False: precision is not to blame, None: "
        "not tried",
    ] = None
    ended: Annotated[
        SearchEnd,
        "by what the search ended; time: that of a step, so a quicker host may find fewer nodes",
    ] = "complete"
    optimization: Annotated[str, "level at which it was tried"] = ""
    profile: Annotated[str, "line for the profile; empty: no set was found"] = ""
