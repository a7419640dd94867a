"""`--against`: an artifact is only published if it answers as an earlier one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, with_others
from aotc.base.records import replace
from aotc.runtime.answers import Side, interface_difference, same_calls
from aotc.runtime.rehearsal import Staged, staged_request
from aotc.session.worker_pool import Workers
from aotc.spec.answers import SameCalls
from aotc.spec.evidence import OutputError
from aotc.spec.payload import Value
from aotc.spec.run_report import Gate, Journal
from aotc.spec.versions import artifact_name, artifact_path
from aotc.trust.container import FolderContainer
from aotc.trust.opening import identified, open_container, read_manifest

_COMPARED: Final = {
    "ran": "both run, and golden outputs of the earlier one",
    "ran-b": "golden outputs of the earlier one",
    "golden": "golden outputs of both",
    "one-id": "equal manifests",
}


@contextmanager
def earlier_artifact(given: str | Path | None) -> Iterator[Side | None]:
    """The artifact at a path, or of an id, open; None for None.

    Raises AOTC-I001 and G015 where there is none, and G009 and G010 if it cannot be read.
    """
    if given is None:
        yield None
        return
    path = artifact_path(given)
    with open_container(path) as container:
        content, artifact_id = identified(container, path)
        yield Side(
            path=path,
            container=container,
            manifest=read_manifest(content),
            artifact_id=artifact_id,
        )


def require_interface(
    earlier: Side | None, inputs: Sequence[Value], outputs: Sequence[Value]
) -> None:
    """Raise AOTC-N061 unless the earlier artifact has these inputs and outputs."""
    if earlier is None:
        return
    difference = interface_difference(inputs, outputs, earlier.manifest)
    if difference:
        raise AotcError(
            "AOTC-N061",
            "the earlier artifact has other inputs or outputs",
            where=f"--against {artifact_name(earlier.path)}",
            found=difference,
        )


def judge_answers(
    earlier: Side | None,
    staged: Staged,
    workers: Workers,
    work: Path,
    journal: Journal,
) -> SameCalls | None:
    """The gate `answers` of an artifact that is about to be published; None for no earlier one.

    Raises AOTC-N059 for each output that differs, N060 if nothing could be compared, and N061.
    """
    if earlier is None:
        return None
    with FolderContainer(staged.folder) as container:
        content, artifact_id = identified(container, staged.folder)
        manifest = read_manifest(content)
        require_interface(earlier, manifest.inputs, manifest.outputs)
        new = Side(
            path=staged.folder,
            container=container,
            manifest=manifest,
            artifact_id=artifact_id,
            staged=staged_request(staged),
        )
        old = replace(earlier, signers=staged.signers)
        found = same_calls(old, new, lambda: workers, work, strict=False)
    limit = f"as {artifact_name(earlier.path)}"
    if found.how == "none":
        gate = Gate(
            name="answers",
            subject="all outputs",
            status="not-judged",
            limit=limit,
            measured=found.reason,
        )
        journal.judged((gate,))
        raise AotcError(
            "AOTC-N060",
            "the answers cannot be compared with those of the earlier artifact",
            where=f"--against {artifact_name(earlier.path)}",
            found=found.reason,
        )
    how = _COMPARED[found.how]
    judged = found.worst() or [
        (fixture.name, OutputError(output=value.name, max_abs=0.0, max_rel=0.0))
        for fixture in manifest.fixtures[:1]
        for value in manifest.outputs
    ]
    journal.judged(
        Gate(
            name="answers",
            subject=f"output {error.output!r}",
            status="passed" if error.passed else "failed",
            limit=limit,
            measured=f"{error.reason or f'max absolute {error.max_abs:.3g}'} ({how})",
        )
        for _, error in judged
    )
    breaches = [
        AotcError(
            "AOTC-N059",
            f"output {error.output!r} differs from that of the earlier artifact",
            where=f"fixture {fixture} of {artifact_name(earlier.path)}",
            expected=f"its answer, by the tolerance ({how})",
            found=error.reason,
        )
        for fixture, error in judged
        if not error.passed
    ]
    if breaches:
        raise with_others(breaches)
    return found
