"""Pulling an artifact from a registry: into a store, a folder, or a packed file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.replacing import NEW, put_in_place
from aotc.base.files.work_folders import prepare_output, resumable_folder
from aotc.base.interruptions import uninterrupted
from aotc.base.progress import Progress, watched
from aotc.registry.references import parse_reference
from aotc.registry.repository import Repository
from aotc.runtime.store.installing import chosen_store, install_entry
from aotc.runtime.store.publication import Draft, fetch, is_cut
from aotc.spec.command_reports import PullReport
from aotc.spec.packed_form import SUFFIX
from aotc.trust.container import Container
from aotc.trust.gate import AuthenticArtifact, authenticate
from aotc.trust.packing import pack
from aotc.trust.policy.host_trust import Trust, resolve
from aotc.trust.registry_container import RegistryContainer

_FIX: Final = "Choose another output with -o, or remove it; --force replaces only an artifact."

_UNWRITABLE: Final = ("AOTC-I018", "AOTC-I026")


@uninterrupted
def pull(
    reference: str,
    output: str | Path | None = None,
    *,
    store: str | Path | None = None,
    system: bool = False,
    trust: str | Path | Trust | None = None,
    key: str | Path | None = None,
    channel: str | None = None,
    unsafe_no_trust_state: bool = False,
    plain_http: bool = False,
    ca: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> PullReport:
    """Fetch an artifact from a registry, verified while it comes.

    `reference` is `oci://HOST/REPOSITORY`, with a tag or a digest; a tag is resolved once, and
    `origin` of the report says to what.  The artifact goes into this user's store, or the one that
    `store` or `system` names, as `aotc install` puts it there; or to `output`, a new folder, or a
    packed file if its name ends in `.zip`, which `force` replaces.  Signatures and policy are
    judged before any large file is fetched.  `plain_http` speaks HTTP to a registry that is not on
    this machine, and `ca` is a file of certificates (PEM) that are trusted instead of the system's;
    $AOTC_OCI_PLAIN_HTTP and $AOTC_OCI_CA say so where no argument can.  What a pull that was cut
    left behind is used by the next one for the same artifact, as far as its digests are right.

    Raises AOTC-I196 to I208 and I210 to I215 for the reference and the registry, the gate's
    refusals (AOTC-G); in a store AOTC-R006, R007 and R016, and I017, I018 and I026 for an output.
    """
    started = time.perf_counter()
    stated = parse_reference(reference)
    place = Path(output) if output is not None else None
    if place is not None:
        if store is not None or system:
            what = "an output and a store cannot be used together"
            raise AotcError("AOTC-I027", what, where="--output")
        packed = place.suffix == SUFFIX
        prepare_output(place, folder=not packed, force=force, fix=_FIX)
    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    added: tuple[str, ...] = ()
    root = ""
    authorities = Path(ca) if ca is not None else None
    repository = Repository(stated, plain_http=plain_http, ca=authorities)
    with watched(progress), RegistryContainer(stated, repository) as source:
        if place is None:
            target = chosen_store(store, system=system)
            stored, added = install_entry(target, source, trusted)
            stored.close()
            authentic, pulled = stored.authentic, not stored.from_store
            root, path = str(target.root), str(stored.folder.parent)
        else:
            authentic, pulled = _into_output(source, place, trusted, force=force), True
            path = str(place)
        origin = source.origin
    size = sum(entry.size for entry in authentic.manifest.files)
    return PullReport(
        reference=str(stated),
        origin=origin,
        artifact_id=authentic.id,
        name=authentic.manifest.name,
        store=root,
        path=path,
        pulled=pulled,
        attestations=added,
        bytes=size,
        bytes_fetched=size - authentic.bytes_present if pulled else 0,
        bytes_present=authentic.bytes_present if pulled else 0,
        findings=authentic.findings,
        seconds=time.perf_counter() - started,
    )


def _into_output(
    source: Container, place: Path, trusted: Trust, *, force: bool
) -> AuthenticArtifact:
    """Write a verified copy as a folder, or as a packed file if the name says so."""
    # Nothing is written before the artifact is accepted.
    accepted = authenticate(source, trusted, files_to_read=lambda _: ())
    try:
        with resumable_folder(place, is_cut) as work:
            draft = Draft.at(work / NEW)
            try:
                authentic = fetch(source, trusted, draft, accepted.manifest)
            finally:
                draft.discard(keep=True)
            finished = draft.folder
            if place.suffix == SUFFIX:
                finished = work / f"packed{SUFFIX}"
                pack(draft.folder, finished, force=True)
            put_in_place(finished, place, force=force, fix=_FIX)
    except AotcError as error:
        if error.code in _UNWRITABLE:
            error.where = str(place)  # The work folder is nobody's choice, and is gone.
        raise
    return authentic
