"""Writing attestations: those of a build, and further ones of an existing artifact.

A build writes signature, evidence, provenance and bill of materials.  A further attestation is
added atomically, and nothing else of the artifact is changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import ATTESTATIONS, MANIFEST
from aotc.base.files.replacing import NEW, reason_to_keep, rename_new
from aotc.base.files.work_folders import remove_abandoned_in, work_folder
from aotc.base.files.writing import remove_leftovers, write_hidden, write_new
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX, KINDS, Usage
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Evidence
from aotc.spec.json import strict_json
from aotc.spec.manifest import Manifest
from aotc.spec.trust_policy import Sealer, SignedBy, Signer
from aotc.trust import oms, provenance, sbom, statements
from aotc.trust.signers import signed_by

# Begins the temporary name of an attestation that replaces another one.
_REPLACING: Final = "aotc-replacing-"


def seal(
    folder: Path,
    digests: Mapping[str, str],
    evidence: Evidence,
    materials: provenance.Materials,
    signer: Signer | Sealer,
) -> SignedBy:
    """Write the attestations of a build into `folder/attestations`.

    `folder/payload` holds the finished payload; `digests` maps its paths to their sha256 (hex).
    Equal arguments with a key give equal bytes; the signature and the bill of materials hold no
    time.  An identity signs each of them with a key of its own.  Returns who signed the payload.
    """
    manifest = decode(Manifest, strict_json((folder / MANIFEST).read_bytes()))
    libraries = provenance.libraries(manifest)
    artifact = digests["aotc.json"]
    predicates: dict[Usage, Json] = {
        "evidence": encode(evidence),
        "provenance": provenance.build_predicate(manifest, materials, libraries),
        "sbom": sbom.bill_of_materials(manifest, artifact, materials, libraries),
    }
    return sign_all(folder, digests, predicates, signer)


def sign_all(
    folder: Path,
    digests: Mapping[str, str],
    predicates: Mapping[Usage, Json],
    signer: Signer | Sealer,
) -> SignedBy:
    """Sign the payload in `folder`, and a statement of each of `predicates`, as `seal` does."""
    subject = {"aotc.json": digests["aotc.json"]}
    root = oms.root_digest(digests[name] for name in oms.in_path_order(digests))
    (folder / ATTESTATIONS).mkdir()
    signature = oms.sign(digests, signer)
    (folder / KINDS["oms"].path).write_bytes(signature)
    for usage, predicate in predicates.items():
        kind = KINDS[usage]
        subjects = {**subject, oms.SUBJECT_NAME: root} if usage == "provenance" else subject
        bundle = statements.sign(kind.predicate_type, predicate, subjects, signer)
        (folder / kind.path).write_bytes(bundle)
    return signed_by(signature, signer)


def attestation_path(artifact: Path, name: str, *, force: bool) -> Path:
    """The path for a new attestation `name` of an artifact's folder.

    Raises AOTC-I017 if it exists, unless `force`, and I036 if the artifact takes no attestations.
    """
    folder = artifact / ATTESTATIONS
    if artifact.is_file():
        raise AotcError(
            "AOTC-I036",
            "attestations cannot be added to a packed artifact",
            where=str(artifact),
            fix="Unpack it, attest, and pack it again.",
        )
    if folder.is_symlink() or not folder.is_dir():
        raise AotcError(
            "AOTC-I036", "the artifact has no folder of attestations", where=str(artifact)
        )
    path = folder / f"{name}{BUNDLE_SUFFIX}"
    kept = reason_to_keep(path)
    if kept or (kept is not None and not force):
        raise AotcError(
            "AOTC-I017",
            "this attestation already exists",
            where=str(path),
            fix="Replace it with --force.",
        )
    return path


def add_attestation(artifact: Path, name: str, bundle: bytes, *, force: bool) -> tuple[Path, bool]:
    """Write an attestation; returns its path, and whether it replaced one.

    Readers see it completely or not at all, and no other file among the attestations: it gets its
    name when it is complete, or is written next to the artifact and renamed.
    Raises AOTC-I017 (it exists, without `force`), I018, I026 and I036.
    """
    path = attestation_path(artifact, name, force=force)
    # Without `force`, one that appeared since is not replaced.
    replaced = force and path.exists()
    remove_abandoned_in(artifact.absolute().parent, artifact.name)
    try:
        if replaced:
            _replace(artifact, path, bundle)
        elif not _write_hidden(path, bundle, new=not force):
            replaced = _rename_into(artifact, path, bundle, force=force)
    except FileExistsError:
        # Another process has just added one of this name; this raises AOTC-I017.
        attestation_path(artifact, name, force=force)
        raise
    except OSError as error:
        raise cannot_write(
            error,
            "cannot write the attestation",
            str(path),
            further_fix="Attest a copy of the artifact in a folder that is writable.",
        ) from None
    return path, replaced


def _write_hidden(path: Path, bundle: bytes, *, new: bool) -> bool:
    """Write an attestation that has no name until it is complete; False if the system cannot.

    One that replaces another has a second name for a moment, under which it is a valid attestation.
    """
    remove_leftovers(path.parent, _REPLACING)
    second = path.with_name(f"{_REPLACING}{secrets.token_hex(8)}{BUNDLE_SUFFIX}")
    return write_hidden(path, bundle, second_name=second, new=new)


def _replace(artifact: Path, path: Path, bundle: bytes) -> None:
    """Replace an attestation by a rename, or else by a file without a name.

    A rename fails if the artifact is a mount point, or if its parent folder is not writable.
    """
    try:
        _rename_into(artifact, path, bundle, force=True)
    except (OSError, AotcError) as error:
        if isinstance(error, AotcError) and error.code != "AOTC-I026":
            raise
        if not _write_hidden(path, bundle, new=False):
            raise


def _rename_into(artifact: Path, path: Path, bundle: bytes, *, force: bool) -> bool:
    """Write an attestation next to the artifact and rename it; returns whether it replaced one.

    It uses no lock, since every reader of the artifact could hold that: if two processes add the
    same name, the file system lets the first one win.  Raises FileExistsError and OSError.
    """
    with work_folder(artifact) as work:
        draft = work / NEW
        write_new(draft, bundle, durable=True)
        try:
            rename_new(draft, path)
        except FileExistsError:
            if not force:
                raise
            draft.replace(path)
            return True
        return False
