"""What a build says of its artifact: signature, evidence, provenance and bill of materials.

Beside an artifact that is there already, one further attestation is written so that nobody ever
sees half of it, and nothing else is touched.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aotc.contract.attestation_kinds import BUNDLE_SUFFIX, KINDS, Usage
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.manifest.document import Manifest
from aotc.contract.results.build_evidence import Evidence
from aotc.contract.trust.signer import Signer
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS, MANIFEST
from aotc.files.failures import cannot_write
from aotc.files.renaming import rename_new
from aotc.files.replacing import NEW, reason_to_keep
from aotc.files.work_folders import remove_abandoned_in, work_folder
from aotc.files.writing import remove_leftovers, write_hidden, write_new
from aotc.signing import oms, provenance, sbom
from aotc.signing import statements as attest

# Of an attestation that is about to replace another.
_SECOND: Final = "aotc-replacing-"


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
    manifest = decode(Manifest, strict_json((folder / MANIFEST).read_bytes()))
    libraries = provenance.libraries(manifest)
    artifact = digests["aotc.json"]
    subject = {"aotc.json": artifact}
    root = oms.root(digests[name] for name in oms.in_order(digests))
    said: tuple[tuple[Usage, Mapping[str, str], Json], ...] = (
        ("evidence", subject, encode(evidence)),
        (
            "provenance",
            {**subject, oms.SUBJECT_NAME: root},
            provenance.predicate(manifest, materials, libraries),
        ),
        ("sbom", subject, sbom.document(manifest, artifact, materials, libraries)),
    )
    (folder / ATTESTATIONS).mkdir()
    (folder / KINDS["oms"].path).write_bytes(oms.sign(digests, signer))
    for usage, subjects, predicate in said:
        kind = KINDS[usage]
        bundle = attest.attest(kind.predicate_type, predicate, subjects, signer)
        (folder / kind.path).write_bytes(bundle)


def refuse_existing(artifact: Path, name: str, *, force: bool) -> Path:
    """Where the attestation `name` of an artifact's folder goes.

    Raises I017 where one is there, unless `force`, and I036 where none can be added.
    """
    folder = artifact / ATTESTATIONS
    if artifact.is_file():
        raise AotcError(
            "AOTC-I036",
            "a packed artifact takes no further attestation",
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
            "this attestation is there already",
            where=str(path),
            fix="Replace it with --force.",
        )
    return path


def add(artifact: Path, name: str, bundle: bytes, *, force: bool) -> tuple[Path, bool]:
    """Write one attestation: its path, and whether it replaced one.

    A reader finds all of it or nothing, and never another file beside the attestations: it has no
    name until it is whole, or is renamed in from beside the artifact.
    Raises I017 (it is there, and not `force`), I018, I026 and I036.
    """
    path = refuse_existing(artifact, name, force=force)
    replaced = path.exists()
    remove_abandoned_in(artifact.absolute().parent, artifact.name)
    try:
        if replaced:
            _replace(artifact, path, bundle)
        elif not _add_unseen(path, bundle, new=not force):
            replaced = _rename_in(artifact, path, bundle, force=force)
    except FileExistsError:
        # Another process added one of this name just now: says so.
        refuse_existing(artifact, name, force=force)
        raise
    except OSError as error:
        raise cannot_write(
            error,
            "cannot write the attestation",
            str(path),
            further_fix="Attest a copy of the artifact, in a folder that may be written.",
        ) from None
    return path, replaced


def _add_unseen(path: Path, bundle: bytes, *, new: bool) -> bool:
    """Write an attestation that has no name until it is whole; False where no file can be so.

    What replaces one is seen under a second name for a moment, as an attestation like any other.
    """
    remove_leftovers(path.parent, _SECOND)
    second = path.with_name(f"{_SECOND}{secrets.token_hex(8)}{BUNDLE_SUFFIX}")
    return write_hidden(path, bundle, second_name=second, new=new)


def _replace(artifact: Path, path: Path, bundle: bytes) -> None:
    """Write an attestation over one: by a rename, or where none goes there, as unseen as can be.

    So it is where the artifact is a mount point, or the folder that it lies in takes no other file.
    """
    try:
        _rename_in(artifact, path, bundle, force=True)
    except (OSError, AotcError) as error:
        if isinstance(error, AotcError) and error.code != "AOTC-I026":
            raise
        if not _add_unseen(path, bundle, new=False):
            raise


def _rename_in(artifact: Path, path: Path, bundle: bytes, *, force: bool) -> bool:
    """Write an attestation beside the artifact and rename it in; whether it replaced one.

    Without a lock, which whoever may read the artifact could hold: of two processes that add one of
    a name, the file system lets the first.  Raises FileExistsError and OSError.
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
