"""Findings from the search for sizes."""

from __future__ import annotations

from aotc.contract.finding import Finding
from aotc.contract.shapes.domain import Domain
from aotc.probing.sizes.trials import ENDED

# By what ended the search: the limits of the profile.
_LIMITS = {
    "together": "fails",
    "size": "exceeds probe.max_size",
    "bytes": "exceeds probe.max_input_bytes, or the share of probe.max_activation_bytes that "
    "sizes beyond the usual ones have",
    "work": "exceeds probe.max_flops, or the share of it that sizes beyond the usual ones have",
    "count": f"was not tried: the search {ENDED['count']}",
    "time": f"was not tried: the search {ENDED['time']}",
}


def domain_findings(domain: Domain) -> list[Finding]:
    """A finding for everything that a user should know about the probed ranges."""
    found = []
    for name, dim in domain.dims.items():
        probed = dim.origin == "probed" or dim.stopped_by != ""
        if probed and dim.min == dim.max and dim.stopped_by in ("", "error"):
            found.append(
                Finding(code="AOTC-S006", what=f"only size {dim.min} was found to run", where=name)
            )
        elif probed and dim.stopped_by not in ("", "error"):
            found.append(
                Finding(
                    code="AOTC-S008",
                    what=f"proven for {dim.text()}; more, with the other dims at their "
                    f"largest, {_LIMITS[dim.stopped_by]}",
                    where=name,
                )
            )
    found += [
        Finding(
            code="AOTC-S013",
            what=f"these sizes do not run: {', '.join(str(size) for size in dim.gaps)}",
            where=name,
        )
        for name, dim in domain.dims.items()
        if dim.gaps
    ]
    found += [
        Finding(
            code="AOTC-S007",
            what=str(relation)
            if relation.enforced
            else f"tried where {relation}; that others fail was not shown, and none is refused",
            where=relation.dim,
        )
        for relation in domain.relations
    ]
    return found
