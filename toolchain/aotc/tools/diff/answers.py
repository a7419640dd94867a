"""What two artifacts answer to the same inputs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import replace
from aotc.runtime.answers import Side, interface_difference, same_calls
from aotc.session.worker_pool import Workers
from aotc.spec.answers import SameCalls
from aotc.spec.diff_report import AreaDiff
from aotc.spec.profile import WorkerLimits
from aotc.tools.diff.model_side import is_model
from aotc.tools.diff.models import made_calls
from aotc.tools.diff.opened_artifact import change
from aotc.tools.inspect import ArtifactContents

# Of the worker in which both are run.
_LIMITS: Final = WorkerLimits(seconds=600.0)


def compared_answers(
    a: ArtifactContents, b: ArtifactContents, *, run: bool
) -> tuple[SameCalls | None, AreaDiff]:
    """Both on the same inputs, where both verify and `run` is true; else their golden outputs.

    An output differs where the judge of builds refuses it, by the narrower tolerance of the two.
    """
    other = interface_difference(b.manifest.inputs, b.manifest.outputs, a.manifest)
    if other:
        return None, _not_compared(f"{other} in B")
    try:
        with ExitStack() as stack:
            work = stack.enter_context(temporary_folder("answers"))
            found = same_calls(
                _side(a),
                _side(b),
                (lambda: stack.enter_context(Workers(_LIMITS))) if run else None,
                work,
                strict=True,
                made=(lambda folder: made_calls(a, b, folder)) if _any_model(a, b) else None,
            )
    except AotcError as error:
        return None, _not_compared(error.line())
    if found.how == "none":
        return found, _not_compared(found.reason)
    changes = tuple(
        change(error.output, None, error.reason, f"fixture {name}")
        for name, error in found.worst()
        if not error.passed
    )
    return found, AreaDiff(area="answers", status="changed" if changes else "same", changes=changes)


def _side(artifact: ArtifactContents) -> Side:
    return Side(
        path=artifact.path,
        container=artifact.container,
        manifest=artifact.manifest,
        artifact_id=artifact.artifact_id,
        model=artifact.path if is_model(artifact) else None,
    )


def _any_model(*sides: ArtifactContents) -> bool:
    return any(is_model(side) for side in sides)


def _not_compared(reason: str) -> AreaDiff:
    return AreaDiff(area="answers", status="not-compared", reason=reason)


def exactness_of(area: AreaDiff, answers: AreaDiff) -> AreaDiff:
    """Errors that did not change say nothing where the answers did, or may have."""
    if area.status != "same" or answers.status == "same":
        return area
    changed = answers.status == "changed"
    reason = "the answers differ" if changed else f"answers are not compared: {answers.reason}"
    return replace(area, status="not-compared", reason=reason)
