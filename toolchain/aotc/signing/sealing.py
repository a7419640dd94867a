"""What a build says of its artifact: signature, evidence, provenance and bill of materials.

Beside an artifact that is there already, one further attestation is written so that nobody ever
sees half of it, and nothing else is touched.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.contract.attestations import PROVENANCE_PREDICATE, SBOM_PREDICATE
from aotc.contract.manifest import Manifest
from aotc.contract.parsing import Json, decode, encode, strict_json
from aotc.contract.report import Evidence
from aotc.contract.signer import Signer
from aotc.contract.versions import EVIDENCE_PREDICATE
from aotc.errors import AotcError, cannot_write
from aotc.files.renaming import rename_new
from aotc.signing import attest, oms, provenance, sbom

SUFFIX: Final = ".sigstore.json"
FOLDER: Final = "attestations"


def seal(
    folder: Path,
    digests: Mapping[str, str],
    evidence: Evidence,
    materials: provenance.Materials,
    signer: Signer,
) -> None:
    """Write the attestations of a finished payload in `folder/payload`, whose sha256s by path
    are `digests`.

    Equal arguments give equal bytes; the signature and the bill of materials hold no time.
    """
    manifest = decode(Manifest, strict_json((folder / "payload" / "aotc.json").read_bytes()))
    libraries = provenance.libraries(manifest)
    artifact = digests["aotc.json"]
    subject = {"aotc.json": artifact}
    root = oms.root(digests[name] for name in oms.in_order(digests))
    said: tuple[tuple[str, str, Mapping[str, str], Json], ...] = (
        ("evidence", EVIDENCE_PREDICATE, subject, encode(evidence)),
        (
            "provenance",
            PROVENANCE_PREDICATE,
            {**subject, oms.SUBJECT_NAME: root},
            provenance.predicate(manifest, materials, libraries),
        ),
        ("sbom", SBOM_PREDICATE, subject, sbom.document(manifest, artifact, materials, libraries)),
    )
    place = folder / FOLDER
    place.mkdir()
    (place / f"oms{SUFFIX}").write_bytes(oms.sign(digests, signer))
    for name, kind, subjects, predicate in said:
        bundle = attest.attest(kind, predicate, subjects, signer)
        (place / f"{name}{SUFFIX}").write_bytes(bundle)


def refuse_existing(artifact: Path, name: str, *, force: bool) -> Path:
    """Where the attestation `name` of an artifact's folder goes.

    Raises I017 where one is there, unless `force`, and I036 where none can be added.
    """
    folder = artifact / FOLDER
    if artifact.is_file():
        raise AotcError(
            "AOTC-I036",
            "a packed artifact takes no further attestation",
            where=str(artifact),
            mend="Unpack it, attest, and pack it again.",
        )
    if folder.is_symlink() or not folder.is_dir():
        raise AotcError(
            "AOTC-I036", "the artifact has no folder of attestations", where=str(artifact)
        )
    path = folder / f"{name}{SUFFIX}"
    if path.is_symlink() or path.is_dir() or (path.exists() and not force):
        raise AotcError(
            "AOTC-I017",
            "this attestation is there already",
            where=str(path),
            mend="Replace it with --force.",
        )
    return path


def add(artifact: Path, name: str, bundle: bytes, *, force: bool) -> tuple[Path, bool]:
    """Write one attestation: its path, and whether it replaced one.

    It is written beside the artifact and renamed in, so that a reader finds all of it or nothing.
    Raises I017 (it is there, and not `force`), I018, I026 and I036.
    """
    path = refuse_existing(artifact, name, force=force)
    draft = artifact.absolute().parent / f".{artifact.name}.{secrets.token_hex(8)}"
    try:
        _write(draft, bundle)
        replaced = _named(draft, path, force=force)
    except FileExistsError:
        # Another process added one of this name just now: says so.
        refuse_existing(artifact, name, force=force)
        raise
    except OSError as error:
        raise cannot_write(error, "cannot write the attestation", str(path)) from None
    finally:
        draft.unlink(missing_ok=True)
    return path, replaced


def _write(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _named(draft: Path, path: Path, *, force: bool) -> bool:
    """Give a whole file its name; whether it replaced one, as only `force` lets it.

    Without a lock, which whoever may read the artifact could hold: of two processes that add one of
    a name, the file system lets the first.  Raises FileExistsError and OSError.
    """
    try:
        rename_new(draft, path)
    except FileExistsError:
        if not force:
            raise
        draft.replace(path)
        return True
    return False
