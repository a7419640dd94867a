"""What a fresh process does with an artifact that is about to be published: judge it, or load it.

The folder is the build's own, which no other user may write, so that it is loaded from there, and
not from a copy in the store.  All else is what `verify` and `load` do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.target import Target
from aotc.contract.trust.anchors import TrustedKey
from aotc.errors import AotcError
from aotc.files.artifact_layout import PAYLOAD
from aotc.runtime.loading import host_of, open_stored
from aotc.runtime.ready_model import ReadyModel
from aotc.store.hold import hold
from aotc.store.user_store import StoredArtifact
from aotc.verification.compatibility import error_of, judge
from aotc.verification.container.folder_container import FolderContainer
from aotc.verification.gate import AuthenticArtifact, authenticate


def gate(request: Json) -> Json:
    """Steps 1 to 9 of the gate, every byte read: refusals as data, none where all is well.

    Of a target that was described, at least one variant must fit it.  On this host, each of those
    that `ran` here must; others were not run, which their manifest says.
    """
    try:
        authentic = _authentic(request, whole=True)
    except AotcError as error:
        return _refused(error)
    manifest = authentic.manifest
    if request["target"] is not None:
        judgement = judge(manifest, decode(Target, request["target"]))
        reasons = [error_of(each) for each in judgement.refusals]
        return {"refusals": [each.to_dict() for each in reasons]}
    verdicts = judge(manifest, host_of(manifest, _libraries(request))).variants
    return {
        "refusals": [
            error_of(reason).to_dict()
            for verdict in verdicts
            if verdict.name in request["ran"]
            for reason in verdict.reasons
        ]
    }


def load(request: Json) -> Json:
    """Load the `variants`, which are of one kind, and run the fixtures; refusals as data."""
    try:
        model = open_staged(request, request["variants"])
        model.warm()
    except AotcError as error:
        return _refused(error)
    return {"refusals": [], "fixtures": model.report.fixtures}


def open_staged(request: Json, variants: Sequence[str] | None) -> ReadyModel:
    """The `variants`, None: those that suit this host, loaded from the folder as `load` does it.

    Whoever built it has read every byte.  Raises what `load` does but for digests.
    """
    started = time.perf_counter()
    authentic = _authentic(request, whole=False)
    folder = Path(request["artifact"])
    held = hold(folder)
    if held is None:
        raise AotcError("AOTC-R999", "the staged artifact is gone", where=str(folder))
    stored = StoredArtifact(
        folder=folder / PAYLOAD,
        authentic=authentic,
        from_store=False,
        seconds=time.perf_counter() - started,
        hold=held,
        hashed=False,
    )
    return open_stored(stored, variants, _libraries(request))


def _authentic(request: Json, *, whole: bool) -> AuthenticArtifact:
    key = decode(TrustedKey, request["key"])
    with FolderContainer(Path(request["artifact"])) as container:
        return authenticate(container, [key], files_to_read=None if whole else lambda _: ())


def _libraries(request: Json) -> dict[str, Path]:
    return {name: Path(path) for name, path in request["libraries"].items()}


def _refused(error: AotcError) -> Json:
    return {"refusals": [each.to_dict() for each in (error, *error.also)]}
