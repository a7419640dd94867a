"""Jobs in a fresh process on an artifact that is about to be published: judge it, or load it.

The folder is the build's own, which no other user may write, so it is loaded from there and not
from a copy in the store.  Everything else is as in `verify` and `load`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.files.folders import PAYLOAD
from aotc.runtime.loading import open_stored
from aotc.runtime.model import Model
from aotc.runtime.store.entries import hold
from aotc.runtime.store.user_store import StoredArtifact
from aotc.spec.codec import Json, decode
from aotc.spec.target import Target
from aotc.spec.trust_anchors import Anchor, TrustedIdentity, TrustedKey
from aotc.trust.compatibility import error_of, judge, probe_host
from aotc.trust.container import FolderContainer
from aotc.trust.gate import AuthenticArtifact, authenticate


def gate(request: Json) -> Json:
    """Steps 1 to 9 of the gate, reading every byte; returns refusals as data.

    At least one variant must fit a described target.  On this host, each variant in `ran` must fit;
    others were not run, as their manifest says.
    """
    try:
        authentic = _authenticate(request, every_byte=True)
    except AotcError as error:
        return _refusals(error)
    manifest = authentic.manifest
    if request["target"] is not None:
        judgement = judge(manifest, decode(Target, request["target"]))
        reasons = [error_of(refusal) for refusal in judgement.refusals]
        return {"refusals": [reason.to_dict() for reason in reasons]}
    verdicts = judge(manifest, probe_host(manifest, _libraries(request))).variants
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
        return _refusals(error)
    return {"refusals": [], "fixtures": model.report.fixtures}


def open_staged(request: Json, variants: Sequence[str] | None) -> Model:
    """The `variants` loaded from the staged folder as `load` does; None: those that suit this host.

    The build has read every byte, so digests are not checked.  Otherwise raises as `load` does.
    """
    started = time.perf_counter()
    authentic = _authenticate(request, every_byte=False)
    folder = Path(request["artifact"])
    entry_hold = hold(folder)
    if entry_hold is None:
        raise AotcError("AOTC-R999", "the staged artifact no longer exists", where=str(folder))
    stored = StoredArtifact(
        folder=folder / PAYLOAD,
        authentic=authentic,
        from_store=False,
        seconds=time.perf_counter() - started,
        hold=entry_hold,
        hashed=False,
    )
    return open_stored(stored, variants, _libraries(request))


def _authenticate(request: Json, *, every_byte: bool) -> AuthenticArtifact:
    anchors: tuple[Anchor, ...] = (
        *decode(tuple[TrustedKey, ...], request["keys"]),
        *decode(tuple[TrustedIdentity, ...], request.get("identities", [])),
    )
    with FolderContainer(Path(request["artifact"])) as container:
        return authenticate(container, anchors, files_to_read=None if every_byte else lambda _: ())


def _libraries(request: Json) -> dict[str, Path]:
    return {name: Path(path) for name, path in request["libraries"].items()}


def _refusals(error: AotcError) -> Json:
    return {"refusals": [refusal.to_dict() for refusal in (error, *error.also)]}
