"""Pushing an artifact into a registry, as a ModelPack model or as an image, with its attestations.

Nothing is trusted or verified here: who pulls verifies.  But what is sent is what aotc.json lists:
a file that differs is refused before its layer exists.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from aotc.base.errors import AotcError, with_others
from aotc.base.files.folders import ATTESTATIONS, MANIFEST, PAYLOAD
from aotc.base.interruptions import Interrupted, stop_if_interrupted, uninterrupted
from aotc.base.progress import BYTES, Progress, Reporter, Tally
from aotc.base.records import field, record, replace
from aotc.registry.descriptors import INDEX, Descriptor, read_descriptor, read_document
from aotc.registry.descriptors import MANIFEST as MANIFEST_TYPE
from aotc.registry.references import Reference, is_fallback_tag, parse_reference
from aotc.registry.repository import BlobStream, Repository, Stored
from aotc.spec import registry_forms as forms
from aotc.spec.attestation_kinds import BUNDLE_SUFFIX
from aotc.spec.codec import Json
from aotc.spec.command_reports import PushReport
from aotc.spec.json import canonical_json
from aotc.spec.manifest import Manifest
from aotc.spec.packed_form import colliding_paths, name_problem
from aotc.spec.versions import artifact_name, artifact_path, stated_reference
from aotc.trust.container import ArtifactFile, Container
from aotc.trust.dsse import MAX_BUNDLE_BYTES
from aotc.trust.opening import identified, open_container, read_manifest
from aotc.trust.registry_container import RegistryContainer, attach, put_bytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_AT_ONCE: Final = 4
_BUFFER_BYTES: Final = 1 << 20
# The role of aotc.json and manifest.json.
_DOCUMENT: Final = "package"
# Of all layers, how many hold several files each.
_TOGETHER_LAYERS: Final = 20
_MAX_BASE_BYTES: Final = 4 << 20
_BASE_NAME: Final = "org.opencontainers.image.base.name"
_BASE_DIGEST: Final = "org.opencontainers.image.base.digest"
_INDEX_TYPES: Final = (
    INDEX,
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_OCI_TYPES: Final = {
    "application/vnd.docker.image.rootfs.diff.tar": forms.IMAGE_LAYER_TYPE,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{forms.IMAGE_LAYER_TYPE}+gzip",
}


@record(kw_only=False)
class _File:
    """A file that is pushed: its path in the artifact, its size, sha256 (hex) and role."""

    path: str
    size: int
    sha256: str
    role: str


Part: TypeAlias = bytes | _File


@record
class _Layer:
    """A layer before it is sent: what its bytes are, and what the manifest says of it.

    `digest` is empty if it is known only when the bytes were read.
    """

    media_type: str
    parts: tuple[Part, ...]
    digest: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(_length, self.parts))


@record
class _Base:
    """A base image: its layers, its configuration, and where they are."""

    repository: Repository
    reference: Reference
    layers: tuple[Descriptor, ...]
    config: Mapping[str, Json]
    diff_ids: tuple[str, ...]


@uninterrupted
def push(
    artifact: str | Path,
    reference: str,
    *,
    form: str = "modelpack",
    base: str | None = None,
    tags: Sequence[str] = (),
    mount_from: Sequence[str] = (),
    plain_http: bool = False,
    ca: str | Path | None = None,
    progress: Progress | None = None,
) -> PushReport:
    """Push an artifact to `oci://HOST/REPOSITORY[:TAG]`, and its attestations as its referrers.

    `artifact` is a folder, a packed file, `sha256-<id>` of an entry of a store, or a reference.
    `form` is `modelpack` or `image`; the files, and so the artifact's id and signatures, are the
    same in both.  `base` is the image over which an image is laid, and `tags` are further tags.

    What the repository has is not sent; what one of the repositories `mount_from` of the same
    registry has, is mounted.  Tags are set last, so nobody meets half an artifact.  The same
    artifact has the same digests wherever it is pushed from.  `plain_http` speaks HTTP to the
    registry, and `ca` is a file of certificates (PEM) to trust.

    Nothing is verified, but files must be those that aotc.json lists: AOTC-G005, G006 and G007.
    Raises AOTC-I027 (no such form), I216 (the reference), I217 (the base image), what opening an
    artifact does, G004 for a malformed attestation, and what `Repository` does.
    """
    started = time.perf_counter()
    if form not in forms.FORMS:
        what = f"there is no form {form!r}"
        raise AotcError("AOTC-I027", what, expected=" or ".join(forms.FORMS), found=form)
    target = parse_reference(reference)
    if target.digest is not None:
        what = "an artifact is pushed to a repository and tags, not to a digest"
        raise AotcError("AOTC-I216", what, where=reference, found=target.digest)
    wanted = tuple(dict.fromkeys((*((target.tag,) if target.tag else ()), *tags)))
    for tag in tags:
        parse_reference(f"{target.repository_name}:{tag}")
    if referrers := next(filter(is_fallback_tag, wanted), None):
        what = "a tag sha256-DIGEST is for the list of what refers to a manifest"
        raise AotcError("AOTC-I216", what, where=reference, found=referrers)
    if base is not None and form != "image":
        raise _unusable("only an image has a base image", base, "--form image", form)

    def connect(reference: Reference) -> Repository:
        """What was stated for the registry holds for all that is read from it, too."""
        if reference.registry != target.registry:
            return Repository(reference)
        certificates = Path(ca) if ca is not None else None
        return Repository(reference, plain_http=plain_http, ca=certificates)

    repository = connect(target)
    with _opened(artifact, connect) as source:
        content, artifact_id = identified(source, Path(source.place))
        manifest = read_manifest(content)
        listed = _listed_files(source, manifest, artifact_id, len(content))
        bundles = _bundles(source)
        image = form == "image"
        layers = _image_layers(listed, bundles) if image else _model_layers(listed)
        below = _base(base, manifest, connect) if base is not None else None
        total = sum(layer.size for layer in layers)
        if isinstance(source, RegistryContainer) and source.reference.registry == target.registry:
            mount_from = (*mount_from, source.reference.repository)
        sender = _Sender(repository, source, mount_from, total)
        with Reporter(progress).counting("push", target.repository_name, sender.tally):
            sent, found = sender.send(layers, below)
        config, annotations = (
            _image_config(manifest, sent, below) if image else _model_config(manifest, sent)
        )
        document: dict[str, Json] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            **({} if image else {"artifactType": forms.MODEL_TYPE}),
            "config": put_bytes(
                repository,
                forms.IMAGE_CONFIG_TYPE if image else forms.MODEL_CONFIG_TYPE,
                canonical_json(config),
            ).to_json(),
            "layers": [layer.to_json() for layer in sent],
            "annotations": {forms.ARTIFACT_ID: artifact_id, **annotations},
        }
        written = canonical_json(document)
        stored = repository.put_manifest(written, MANIFEST_TYPE)
        for name, bundle in bundles.items():
            attach(repository, stored, name, bundle)
        for tag in wanted:
            repository.put_manifest(written, MANIFEST_TYPE, tag)
    return PushReport(
        artifact=artifact_name(artifact),
        artifact_id=artifact_id,
        reference=f"oci://{target.repository_name}@{stored.digest}",
        digest=stored.digest,
        tags=wanted,
        form=form,
        base=str(annotations.get(_BASE_DIGEST, "")),
        layers=len(layers),
        attestations=len(bundles),
        bytes=total,
        bytes_sent=found["sent"],
        bytes_present=found["present"],
        bytes_mounted=found["mounted"],
        seconds=time.perf_counter() - started,
    )


# What is pushed: the files that aotc.json lists, as they are in the artifact.


def _opened(artifact: str | Path, connect: Callable[[Reference], Repository]) -> Container:
    stated = stated_reference(artifact)
    if stated is None:
        return open_container(artifact_path(artifact))
    reference = parse_reference(stated)
    return RegistryContainer(reference, connect(reference))


def _listed_files(
    source: Container, manifest: Manifest, artifact_id: str, size: int
) -> tuple[_File, ...]:
    """All payload files, sorted by path.

    Raises what the listing refuses, and AOTC-G005, G006 and G007 where files are not as listed.
    """
    listing = source.listing()
    if listing.problems:
        raise with_others(listing.problems)
    files = {
        MANIFEST: _File(MANIFEST, size, artifact_id, _DOCUMENT),
        **{
            f"{PAYLOAD}/{each.path}": _File(
                f"{PAYLOAD}/{each.path}", each.size, each.sha256, each.role
            )
            for each in manifest.files
        },
    }
    problems = []
    for path in sorted(listing.files.keys() | files.keys()):
        if path not in listing.files:
            problems.append(AotcError("AOTC-G006", "a listed file is missing", where=path))
        elif path in files:
            if listing.files[path] != files[path].size:
                found = f"{listing.files[path]} bytes"
                problems.append(_changed(path, f"{files[path].size} bytes", found))
        elif not (path.startswith(f"{ATTESTATIONS}/") and path.endswith(BUNDLE_SUFFIX)):
            problems.append(AotcError("AOTC-G007", "a file is not listed in aotc.json", where=path))
    problems += [
        AotcError("AOTC-G007", f"a path {name_problem(path)}", where=repr(path))
        for path in files
        if name_problem(path)
    ]
    problems += [
        AotcError("AOTC-G007", f"the path is the same as {other!r} elsewhere", where=repr(one))
        for one, other in colliding_paths(files)
    ]
    if problems:
        raise with_others(problems)
    return tuple(files[path] for path in sorted(files, key=str.encode))


def _bundles(source: Container) -> dict[str, bytes]:
    """The attestations by the names of their files."""
    paths = sorted(source.listing(ATTESTATIONS).files)
    return {path.rpartition("/")[2]: source.read(path, MAX_BUNDLE_BYTES) for path in paths}


def _changed(path: str, expected: str, found: str) -> AotcError:
    what = "the file's bytes are not the ones that aotc.json lists"
    return AotcError("AOTC-G005", what, where=path, expected=expected, found=found)


# The layers of both forms.


def _divided(files: Iterable[_File], limit: int) -> tuple[list[_File], list[list[_File]]]:
    """The files that are layers of their own, and groups of those that are together in one.

    There are at most `limit` of both.  The manifests, which each release changes, are apart from
    graphs and fixtures, which it may not.
    """
    files = list(files)
    large = sorted(
        (each for each in files if each.size >= forms.ALONE_BYTES),
        key=lambda each: (-each.size, each.path),
    )
    alone = set(large[: limit - _TOGETHER_LAYERS])
    rest = [each for each in files if each not in alone]
    # Two groups that follow each other are larger together than what one may have.
    most = max(forms.TOGETHER_BYTES, 2 * sum(each.size for each in rest) // (_TOGETHER_LAYERS - 2))
    groups: list[list[_File]] = []
    for is_document in (True, False):
        taken = most + 1  # The first file opens a group, also an empty one.
        for each in rest:
            if (each.role == _DOCUMENT) != is_document:
                continue
            if taken + each.size > most:
                groups.append([])
                taken = 0
            groups[-1].append(each)
            taken += each.size
    return [each for each in files if each in alone], groups


def _model_layers(files: Iterable[_File]) -> list[_Layer]:
    alone, groups = _divided(files, forms.MAX_LAYERS["modelpack"])
    return [
        *(
            _Layer(
                media_type=forms.RAW_TYPES[each.role],
                parts=(each,),
                digest=f"sha256:{each.sha256}",
                annotations={forms.FILE_PATH: each.path, forms.TITLE: each.path},
            )
            for each in alone
        ),
        *(_Layer(media_type=forms.TOGETHER_TYPE, parts=_tar(group, "")) for group in groups),
    ]


def _image_layers(files: Iterable[_File], bundles: Mapping[str, bytes]) -> list[_Layer]:
    alone, groups = _divided(files, forms.MAX_LAYERS["image"] - 1)
    root = f"{forms.IMAGE_ROOT}/"
    layers = [
        _Layer(
            media_type=forms.IMAGE_LAYER_TYPE,
            parts=_tar(group, root),
            annotations={forms.LAYER: forms.PAYLOAD_LAYER},
        )
        for group in (*([each] for each in alone), *groups)
    ]
    if bundles:
        parts: list[Part] = []
        for name, bundle in sorted(bundles.items()):
            header = forms.tar_header(f"{root}{ATTESTATIONS}/{name}", len(bundle))
            parts += [header, bundle, forms.tar_padding(len(bundle))]
        layers.append(
            _Layer(
                media_type=forms.IMAGE_LAYER_TYPE,
                parts=(*parts, forms.END),
                annotations={forms.LAYER: forms.ATTESTATIONS_LAYER},
            )
        )
    return layers


def _tar(files: Iterable[_File], root: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for each in files:
        header = forms.tar_header(f"{root}{each.path}", each.size)
        parts += [header, each, forms.tar_padding(each.size)]
    return (*parts, forms.END)


class _Hashed:
    """How far a file was hashed, however often its parts are read, and the hash up to there."""

    def __init__(self) -> None:
        self.position = 0
        self._hash = hashlib.sha256()

    def update(self, listed: _File, start: int, part: memoryview) -> None:
        """Take a part that was read; at the end of the file, raises AOTC-G005 if it is another."""
        end = start + len(part)
        if not start <= self.position < end:
            return
        self._hash.update(part[self.position - start :])
        self.position = end
        if end == listed.size and (found := self._hash.hexdigest()) != listed.sha256:
            raise _changed(listed.path, f"sha256 {listed.sha256}", f"sha256 {found}")


class _Content(io.RawIOBase):
    """The bytes of a layer, made while they are read; files are hashed meanwhile.

    A layer that is sent in parts is opened for each, and `hashed` goes on from one to the next.
    Raises AOTC-G005 at the end of a file that is not as listed.
    """

    def __init__(
        self,
        source: Container,
        layer: _Layer,
        stopped: threading.Event,
        hashed: dict[_File, _Hashed],
    ) -> None:
        self._source, self._parts, self._stopped = source, layer.parts, stopped
        self._hashed = hashed
        self._size = layer.size
        self._number, self._inside = 0, 0
        self._file: ArtifactFile | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return sum(map(_length, self._parts[: self._number])) + self._inside

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._size}[whence]
        self._leave()
        self._number, self._inside = 0, max(0, base + offset)
        while self._number < len(self._parts) and self._inside >= _length(self._part):
            self._inside -= _length(self._part)
            self._number += 1
        return base + offset

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if self._stopped.is_set():
            raise Interrupted
        while self._number < len(self._parts) and self._inside >= _length(self._part):
            self._leave()
            self._number, self._inside = self._number + 1, 0
        if self._number >= len(self._parts) or not view:
            return 0
        part = self._part
        if isinstance(part, bytes):
            found = part[self._inside : self._inside + len(view)]
            view[: len(found)] = found
            self._inside += len(found)
            return len(found)
        return self._read_file(part, view[: part.size - self._inside])

    def close(self) -> None:
        self._leave()
        super().close()

    @property
    def _part(self) -> Part:
        return self._parts[self._number]

    def _read_file(self, listed: _File, view: memoryview) -> int:
        if self._file is None:
            self._file = self._source.open(listed.path)
            self._file.seek(self._inside)
        count = self._file.readinto(view) or 0
        if not count:
            raise _changed(listed.path, f"{listed.size} bytes", f"{self._inside} bytes")
        self._hashed.setdefault(listed, _Hashed()).update(listed, self._inside, view[:count])
        self._inside += count
        return count

    def _leave(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _length(part: Part) -> int:
    return len(part) if isinstance(part, bytes) else part.size


class _Remote(io.RawIOBase):
    """A blob of another registry, as it is copied into this one."""

    def __init__(self, repository: Repository, blob: Descriptor) -> None:
        self._repository, self._blob = repository, blob
        self._position = 0
        self._stream: BlobStream | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._stop()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._blob.size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")[: self._blob.size - self._position]
        if not view:
            return 0
        if self._stream is None:
            self._stream = self._repository.open_blob(self._blob, self._position)
        count = self._stream.readinto(view)
        self._position += count
        return count

    def close(self) -> None:
        self._stop()
        super().close()

    def _stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class _Sender:
    """Sends layers, several at once."""

    def __init__(
        self, repository: Repository, source: Container, mount_from: Sequence[str], total: int
    ) -> None:
        self.tally = Tally(total, BYTES)
        self._repository, self._source = repository, source
        self._mount_from = tuple(mount_from)
        self._stopped = threading.Event()

    def send(
        self, layers: Iterable[_Layer], base: _Base | None
    ) -> tuple[list[Descriptor], dict[str, int]]:
        """All layers in their order, those of a base image first; and bytes by what became of them.

        The latter is of the artifact's own layers.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            below = []
            if base is not None:
                below = [pool.submit(self._send_base, base, each) for each in base.layers]
            own = [pool.submit(self._send_layer, each) for each in layers]
            every: list[Future[Any]] = [*below, *own]
            pending = set(every)
            try:
                while pending:
                    stop_if_interrupted()
                    done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                    for each in done:
                        each.result()
            except BaseException:
                self._stopped.set()
                for started in every:
                    started.cancel()
                raise
        found = {"sent": 0, "present": 0, "mounted": 0}
        for future in own:
            layer, stored = future.result()
            found[stored.how] += stored.sent if stored.how == "sent" else layer.size
        return [each.result() for each in below] + [each.result()[0] for each in own], found

    def _send_layer(self, layer: _Layer) -> tuple[Descriptor, Stored]:
        hashed: dict[_File, _Hashed] = {}

        def opened() -> BinaryIO:
            content = _Content(self._source, layer, self._stopped, hashed)
            return io.BufferedReader(content, _BUFFER_BYTES)

        digest = layer.digest
        if not digest:
            hasher = hashlib.sha256()
            with opened() as content:
                while part := content.read(_BUFFER_BYTES):
                    hasher.update(part)
            digest = f"sha256:{hasher.hexdigest()}"
            hashed.clear()  # What is sent is read anew.
        stored = self._repository.put_blob(
            digest, layer.size, opened, mount_from=self._mount_from, told=self.tally.add
        )
        if stored.how != "sent":
            self.tally.add(layer.size)
        descriptor = Descriptor(
            media_type=layer.media_type,
            digest=digest,
            size=layer.size,
            annotations=layer.annotations,
        )
        return descriptor, stored

    def _send_base(self, base: _Base, layer: Descriptor) -> Descriptor:
        same = base.reference.registry == self._repository.reference.registry
        mount_from = (base.reference.repository,) if same else ()

        def opened() -> BinaryIO:
            return io.BufferedReader(_Remote(base.repository, layer), _BUFFER_BYTES)

        self._repository.put_blob(layer.digest, layer.size, opened, mount_from=mount_from)
        return layer


# What the manifests of both forms refer to besides layers.


def _model_config(
    manifest: Manifest, layers: Iterable[Descriptor]
) -> tuple[dict[str, Json], dict[str, Json]]:
    """The configuration of ModelPack; no layer is compressed, so digests are those of content."""
    return {
        "descriptor": {"name": manifest.name},
        "config": {"format": "onnx"},
        "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
    }, {}


def _image_config(
    manifest: Manifest, layers: Sequence[Descriptor], base: _Base | None
) -> tuple[dict[str, Json], dict[str, Json]]:
    """The configuration of an image, and the annotations that say what it is based on."""
    system, architecture = _platform(manifest)
    own = [layer.digest for layer in layers if forms.LAYER in layer.annotations]
    below = base.diff_ids if base is not None else ()
    config: dict[str, Json] = {
        "architecture": architecture,
        "os": system,
        "config": {},
        **(base.config if base is not None else {}),
        "rootfs": {"type": "layers", "diff_ids": [*below, *own]},
    }
    if base is None:
        return config, {}
    history = config.get("history")
    if isinstance(history, list):
        config["history"] = [*history, *({"created_by": "aotc push"} for _ in own)]
    return config, {
        _BASE_NAME: base.reference.repository_name,
        _BASE_DIGEST: str(base.reference.digest),
    }


def _platform(manifest: Manifest) -> tuple[str, str]:
    """System and architecture of the first variant, as images name them."""
    needed = manifest.variants[0].requirements
    return needed.os, forms.ARCHITECTURES.get(needed.architecture, needed.architecture)


def _base(name: str, manifest: Manifest, connect: Callable[[Reference], Repository]) -> _Base:
    """The base image for the artifact's platform; raises AOTC-I217."""
    reference = parse_reference(name)
    repository = connect(reference)
    descriptor, content = repository.resolve(reference)
    system, architecture = _platform(manifest)
    document = read_document(content, name)
    if descriptor.media_type in _INDEX_TYPES:
        for each in _mappings(document.get("manifests")):
            platform = each.get("platform")
            if not isinstance(platform, dict):
                continue
            if (platform.get("os"), platform.get("architecture")) == (system, architecture):
                named = read_descriptor(dict(each), f"{name} manifests")
                reference = replace(reference, tag=None, digest=named.digest)
                break
        else:
            what = "the base image has no manifest for the artifact's platform"
            raise _unusable(what, name, f"{system}/{architecture}", "others")
        descriptor, content = repository.resolve(reference)
        document = read_document(content, name)
    reference = replace(reference, tag=None, digest=descriptor.digest)
    config = read_descriptor(document.get("config"), f"{name} config")
    listed = [read_descriptor(each, f"{name} layers") for each in _mappings(document.get("layers"))]
    if any(forms.LAYER in each.annotations for each in listed):
        what = "the base image has an artifact already, whose files would lie below"
        raise _unusable(what, name, "an image without one", f"layers with {forms.LAYER}")
    layers = [
        replace(each, media_type=_OCI_TYPES.get(each.media_type, each.media_type))
        for each in listed
    ]
    if len(layers) > forms.MAX_BASE_LAYERS or not layers:
        expected = f"1 to {forms.MAX_BASE_LAYERS} layers"
        raise _unusable("the base is no image, or a large one", name, expected, str(len(layers)))
    settings = read_document(repository.read_blob(config, _MAX_BASE_BYTES), name)
    found = (settings.get("os"), settings.get("architecture"))
    if found != (system, architecture):
        what = "the base image is for another platform than the artifact"
        raise _unusable(what, name, f"{system}/{architecture}", "/".join(map(str, found)))
    rootfs = settings.get("rootfs")
    ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(ids, list) or len(ids) != len(layers):
        what = "the base image does not state what each layer contains"
        raise _unusable(what, name, f"{len(layers)} diff_ids", "others")
    return _Base(
        repository=repository,
        reference=reference,
        layers=tuple(layers),
        config=settings,
        diff_ids=tuple(map(str, ids)),
    )


def _mappings(data: Json) -> list[Mapping[str, Json]]:
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []


def _unusable(what: str, name: str, expected: str, found: str) -> AotcError:
    return AotcError("AOTC-I217", what, where=name, expected=expected, found=found)
