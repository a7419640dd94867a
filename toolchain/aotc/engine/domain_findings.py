"""What the search for sizes noticed, as findings."""

from __future__ import annotations

from aotc.contract.manifest import Finding
from aotc.contract.shapes import Domain

# Fields of the profile, by what ended a search.
_LIMITS = {
    "size": "probe.max_size",
    "bytes": "probe.max_input_bytes or probe.max_activation_bytes",
    "work": "probe.max_flops",
    "count": "probe.max_runs",
    "time": "probe.seconds",
}


def domain_findings(domain: Domain) -> list[Finding]:
    """One finding for each thing that a user should know of a probed range."""
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
                    f"largest, exceeds {_LIMITS[dim.stopped_by]}",
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
        Finding(code="AOTC-S007", what=str(relation), where=relation.dim)
        for relation in domain.relations
    ]
    return found
