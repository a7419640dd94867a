"""The page of an artifact, for reviewers who have no aotc: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.writing import write_atomically
from aotc.report.html.artifact_contents import read_contents, read_node_times
from aotc.report.html.graph_section import graph_section
from aotc.report.html.memory_section import memory_section
from aotc.report.html.page import flowing, page, tag, unverified
from aotc.report.html.sections import (
    claims_section,
    exactness_section,
    manifest_section,
    overview_section,
    passes_section,
    run_section,
    shapes_section,
)
from aotc.spec.evidence import NodeErrors
from aotc.spec.run_report import RunReport
from aotc.spec.versions import artifact_path


def write_page(
    artifact: str | Path,
    file: str | Path,
    *,
    traffic: str | Path | None = None,
    times: str | Path | None = None,
) -> None:
    """Write the page of an artifact into `file`: one file of HTML that asks for nothing else.

    `artifact` is the path of a folder or packed artifact, or `sha256-<id>` for an entry of a store;
    nothing of it is verified.  `traffic` is a file of recorded shapes, of which the page then tells
    what the artifact would do with them; `times` what `aotc bench --nodes --json` printed of it.  A
    file that exists is replaced.  Graphs, and the memory over them, need the extra `report`: where
    it is missing, the page says so in their place.

    Raises AOTC-I057 for a model, I058 for times of another artifact, what `aotc.inspect` raises,
    and I018 (full disk) and I026 where the page cannot be written.
    """
    text = artifact_page(
        artifact_path(artifact),
        traffic=None if traffic is None else Path(traffic),
        times=None if times is None else Path(times),
    )
    try:
        write_atomically(Path(file), text.encode("ascii"))
    except OSError as error:
        raise cannot_write(error, "cannot write the page", str(file)) from None


def artifact_page(
    artifact: Path,
    *,
    traffic: Path | None = None,
    run_report: RunReport | None = None,
    times: Path | None = None,
    errors: Mapping[str, NodeErrors] | None = None,
) -> str:
    """The page as text; `times` is what `aotc bench --nodes --json` printed for the artifact.

    `errors` are by variant, as `debug_parity.measure_nodes` measures them.

    Raises AOTC-I057 for a model, and what `aotc.inspect` and `read_node_times` do.
    """
    contents = read_contents(artifact, traffic=traffic)
    summary = contents.summary
    seconds = read_node_times(times, summary.artifact_id) if times is not None else {}
    ran = (run_section(run_report),) if run_report is not None else ()
    # A page of a benchmark is about that, and one of a failure about what failed.
    is_about_run = run_report is not None and (
        run_report.command == "bench" or run_report.outcome != "passed"
    )
    name = contents.report.name
    if run_report is not None and is_about_run:
        name = f"{name}: aotc {run_report.command} {run_report.outcome}"
    return page(
        name,
        (
            unverified(
                "this page repeats what the artifact says of itself: 'aotc verify' checks it."
            ),
        ),
        (
            *(ran if is_about_run else ()),
            overview_section(contents.report, summary),
            *(() if is_about_run else ran),
            graph_section(contents, seconds, errors or {}),
            memory_section(contents),
            shapes_section(contents.report),
            exactness_section(summary, contents.evidence, errors or {}),
            passes_section(summary),
            claims_section(contents.report, summary),
            manifest_section(contents.manifest_json),
        ),
    )


def run_page(artifact: Path | None, run: RunReport) -> str:
    """The page of a run, with that of its artifact (None: nothing was built).

    Of a run whose artifact is not there or cannot be read, the page has the run alone.
    """
    said = "There is no artifact: nothing was built, and this page shows the results of the run."
    if artifact is not None:
        try:
            return artifact_page(artifact, run_report=run)
        except AotcError as error:
            why = error.line()
        said = f"This page shows the results of the run. The artifact could not be read: {why}"
    title = f"aotc {run.command}: {run.outcome}"
    return page(title, (tag("p", *flowing(said), class_="notice"),), (run_section(run),))
