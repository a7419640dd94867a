"""Where a build writes: a folder or one file, as its name says, and what it may replace there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write
from aotc.base.files.folders import ATTESTATIONS, MANIFEST
from aotc.base.files.reading import file_sha256
from aotc.base.files.replacing import put_in_place
from aotc.base.files.work_folders import prepare_output
from aotc.base.progress import Progress
from aotc.base.records import record
from aotc.graph.external_data import path_with_data
from aotc.graph.model import model_bytes
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.manifest import Capture, Manifest
from aotc.spec.packed_form import SUFFIX
from aotc.spec.trust_anchors import Anchor, TrustedKey, key_id
from aotc.trust import dsse, statements
from aotc.trust.opening import identified, open_container, read_manifest
from aotc.trust.packing import pack

# Of archives and of models: an artifact is neither, and a folder of such a name would deceive.
_REFUSED: Final = (
    *(".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar", ".whl"),
    *(".onnx", ".ort", ".pb", ".pbtxt", ".pt", ".pth", ".pt2", ".safetensors", ".tflite"),
    *(".engine", ".plan", ".trt", ".xml", ".bin", ".npz", ".npy", ".h5", ".keras", ".mlmodel"),
)
_FIX: Final = (
    "Name a folder NAME.aotc, or one file NAME.aotc.zip; 'aotc pack' makes a file of a folder, too."
)


@record
class Standing:
    """An artifact that stands at the output: its model, and what keeps it there."""

    source: Capture
    key: str = ""
    further: str = ""


class Output:
    """The place of a build's artifact, checked before anything is built.

    A packed artifact is a file whose name ends in `.zip`; everything else is a folder.  What exists
    is replaced with `force` if it is an artifact.  Without, it must be one of this build's own
    (ADR 0090): of the same model, signed by the same key, with the attestations of a build alone.
    """

    def __init__(self, place: Path, model: str | Path | bytes | Capture, *, force: bool) -> None:
        """`model` is what is built, or was.

        Raises AOTC-I027 for a name of something else, I017 and I026 as `check_output` does.
        """
        self.place = place
        self.packed = self.place.name.lower().endswith(SUFFIX)
        self._force = force
        self._standing: Standing | None = None
        if self.place.suffix.lower() in _REFUSED:
            raise AotcError(
                "AOTC-I027",
                "an artifact is a folder, or one file whose name ends in .zip",
                where=f"-o {self.place}",
                expected="NAME.aotc, or NAME.aotc.zip",
                fix=_FIX,
            )
        if os.path.lexists(self.place):
            # A folder is looked at by `check_output`.
            if self.packed and self.place.is_file() and not _is_packed(self.place):
                raise AotcError(
                    "AOTC-I017",
                    "the output exists and is not an artifact, so that --force does not replace it",
                    where=str(self.place),
                    fix="Choose another output with -o, or remove it yourself.",
                )
            if not self._force:
                self._standing = _standing(self.place)
                if self._standing is not None:
                    self._require(self._standing, _is_of(self._standing.source, model))
        prepare_output(self.place, folder=not self.packed, force=self._may_replace)

    @property
    def _may_replace(self) -> bool:
        return self._force or self._standing is not None

    def require_signer(self, signers: Iterable[Anchor]) -> None:
        """Raise AOTC-I017 where what stands is signed by none of `signers`, this build's."""
        # An identity has no key of its own, and signs with a new one each time.
        keys = {key_id(each.pem) for each in signers if isinstance(each, TrustedKey)}
        if self._standing is not None and self._standing.key not in keys:
            raise _kept(self.place, "is signed by another key")

    def deliver(
        self, folder: Path, manifest: Manifest, work: Path, progress: Progress | None
    ) -> None:
        """Give the finished artifact in `folder` its name; raises AOTC-I017, I018, I026 and I035.

        `work` is a folder next to the output.  What was put at the output meanwhile is looked at
        again.
        """
        draft = folder
        if self.packed:
            draft = work / self.place.name
            pack(folder, draft, progress=progress)
        if self._standing is not None and os.path.lexists(self.place):
            if (now := _standing(self.place)) is not None:
                self._require(now, _digests(now.source) == _digests(manifest.source))
            if now is None or now.key != self._standing.key:
                raise _kept(self.place, "was replaced meanwhile")
        try:
            put_in_place(draft, self.place, force=self._may_replace)
        except OSError as error:
            raise cannot_write(error, "cannot write the output", str(self.place)) from None

    def _require(self, standing: Standing, is_of_model: bool) -> None:
        if not is_of_model:
            raise _kept(self.place, "is of another model")
        if standing.further:
            raise _kept(self.place, f"has {standing.further}, which a build does not make again")


def _kept(place: Path, why: str) -> AotcError:
    return AotcError("AOTC-I017", f"the output exists and {why}", where=str(place))


def _is_packed(place: Path) -> bool:
    try:
        with open_container(place) as container:
            return MANIFEST in container.listing().files
    except (AotcError, OSError):
        return False


def _standing(place: Path) -> Standing | None:
    """The artifact at `place`, by what it says of itself; None if it cannot be read as one."""
    try:
        if place.is_symlink():
            return None
        with open_container(place) as container:
            manifest = read_manifest(identified(container, place)[0])
            own = {kind.path for kind in KINDS.values() if kind.by_build}
            further = sorted(set(container.listing(ATTESTATIONS).files) - own)
            signature = container.read(KINDS["oms"].path, dsse.MAX_BUNDLE_BYTES)
            key = statements.read_unverified(signature).hint
    except (AotcError, OSError, ValueError):
        return None
    return Standing(source=manifest.source, key=key, further=next(iter(further), ""))


def _digests(source: Capture) -> tuple[str, ...]:
    """The digests of the model that an artifact was built from, with its external data."""
    return (source.sha256, *sorted(each.sha256 for each in source.external_data))


def _is_of(source: Capture, model: str | Path | bytes | Capture) -> bool:
    """Whether `source` tells of these very bytes; raises AOTC-I001 and I002 for no model.

    Equal models name equal files, so none is parsed.
    """
    if isinstance(model, Capture):
        return _digests(source) == _digests(model)
    path = Path("model") if isinstance(model, bytes) else Path(model)
    data = model if isinstance(model, bytes) else model_bytes(path)
    if hashlib.sha256(data).hexdigest() != source.sha256:
        return False
    held = {each.location: each.sha256 for each in source.external_data}
    folder = path_with_data(held, path).parent
    try:
        return all(file_sha256(folder / name) == digest for name, digest in held.items())
    except OSError:
        # The build will say what is wrong with it.
        return True
