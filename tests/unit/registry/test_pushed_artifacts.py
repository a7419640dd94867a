"""Artifacts that are pushed, in both forms and to both registries, and read where they are."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from artifact_builder import build_artifact, payload_digests
from file_bytes import contents_of, flip_bit
from referrers_registry import INDEX, Fault, ReferrersRegistry, referrers_registry
from refusals import refusal, refusal_code
from registries import Registry

from aotc.cli import main as cli
from aotc.registry.descriptors import MANIFEST, Descriptor
from aotc.registry.references import Reference, parse_reference
from aotc.registry.repository import Repository, Stored
from aotc.spec.attestation_kinds import KINDS
from aotc.spec.registry_forms import BUNDLE_TYPE, FORMS, IMAGE_LAYER_TYPE, TOGETHER_TYPE
from aotc.spec.trust_anchors import TrustedKey
from aotc.tools.pushing import push
from aotc.trust import statements
from aotc.trust.container import Container
from aotc.trust.gate import authenticate, verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.opening import open_container
from aotc.trust.packing import pack
from aotc.trust.registry_container import RegistryContainer, attach

Trust = tuple[TrustedKey, ...]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, key: PrivateKey) -> Path:
    """With weights of several chunks, which are a layer of their own."""
    return build_artifact(tmp_path_factory.mktemp("made") / "linear.aotc", key, padding=20 << 20)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, key: PrivateKey) -> Path:
    """With weights of 100 kB."""
    return build_artifact(tmp_path_factory.mktemp("made") / "linear.aotc", key, padding=100_000)


@pytest.fixture(params=["docker", "ours"])
def host(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.getfixturevalue(request.param).host


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(reference: str) -> Container:
    return open_container(Path(reference))


def test_every_byte_comes_back(artifact: Path, host: str, form: str, trust: Trust) -> None:
    report = push(artifact, f"oci://{host}/there/{form}:1.4", form=form, tags=["latest"])
    content = contents_of(artifact)
    with opened(f"oci://{host}/there/{form}:latest") as container:
        assert isinstance(container, RegistryContainer)
        assert container.origin == f"{host}/there/{form}@{report.digest}"
        listing = container.listing()
        assert not listing.problems
        assert listing.files == {path: len(data) for path, data in content.items()}
        assert {path: container.read(path, 1 << 30) for path in listing.files} == content
        assert authenticate(container, trust).id == report.artifact_id
    assert report.artifact_id == payload_digests(artifact)["aotc.json"]
    assert (report.tags, report.attestations) == (("1.4", "latest"), 2)
    assert report.bytes == report.bytes_sent > 20 << 20
    again = push(artifact, f"oci://{host}/there/{form}:1.4", form=form)
    assert (again.digest, again.bytes_sent) == (report.digest, 0)
    assert again.bytes_present == report.bytes


def test_digests_are_the_same_from_anywhere(
    small: Path, tmp_path: Path, ours: ReferrersRegistry, docker: Registry, form: str
) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(small, moved, copy_function=shutil.copyfile)
    packed = tmp_path / "packed.zip"
    pack(small, packed)
    first = push(small, f"oci://{ours.host}/a", form=form)
    sources = (moved, packed, f"oci://{ours.host}/a@{first.digest}")
    for number, source in enumerate(sources):
        for host in (ours.host, docker.host):
            assert push(source, f"oci://{host}/{form}{number}", form=form).digest == first.digest
    referrers = []
    for host in (ours.host, docker.host):
        repository = Repository(parse_reference(f"{host}/{form}2"))
        referrers.append({each.digest for each in repository.referrers(first.digest)})
    assert len(referrers[0]) == 2
    assert referrers[0] == referrers[1]


def refusals_of(place: Path | str, key: Path) -> list[tuple[str, str]]:
    report = verify(place, key=key, target="none")
    return [(each.code, each.where) for each in report.refusals]


def test_changed_bytes_are_refused_as_in_a_folder(
    tmp_path: Path, ours: ReferrersRegistry, form: str
) -> None:
    private, public = generate(tmp_path / "a.pem")[:2]
    folder = build_artifact(tmp_path / "a.aotc", load_private(private), padding=100_000)
    reference = push(folder, f"oci://{ours.host}/changed", form=form).reference
    with opened(reference) as container:
        assert isinstance(container, RegistryContainer)
        pieces = dict(container.pieces())
    seen: set[str] = set()
    for path in contents_of(folder):
        piece = pieces[path]
        at = piece.size // 2
        # In an image, attestations are in a layer and beside it.
        beside = f"sha256:{hashlib.sha256((folder / path).read_bytes()).hexdigest()}"
        places = {beside: at, piece.blob.digest: piece.offset + at}
        flip_bit(folder / path, at)
        kept = {digest: ours.blobs[digest] for digest in places.keys() & ours.blobs.keys()}
        for digest, content in kept.items():
            changed = bytearray(content)
            changed[places[digest]] ^= 1
            ours.blobs[digest] = bytes(changed)
        expected, found = refusals_of(folder, public), refusals_of(reference, public)
        assert found == expected or len(kept) == 2
        assert {code for code, _ in found} == {code for code, _ in expected}
        assert any(path in where for _, where in found)
        seen.update(code for code, _ in expected)
        ours.blobs.update(kept)
        flip_bit(folder / path, at)
    assert seen >= {"AOTC-G003", "AOTC-G005"}
    config = next(digest for digest, content in ours.blobs.items() if b'"layers"' in content[:400])
    kept = {config: ours.blobs[config]}
    ours.blobs[config] = ours.blobs[config].replace(b'"layers"', b'"layerS"')
    assert refusal_code(open_container, Path(reference)) == "AOTC-I205"
    ours.blobs.update(kept)
    assert refusals_of(reference, public) == []


def test_positions_and_threads(artifact: Path, ours: ReferrersRegistry, form: str) -> None:
    reference = push(artifact, f"oci://{ours.host}/threads", form=form).reference
    path = next(each for each in contents_of(artifact) if each.endswith("weights.bin"))
    content = (artifact / path).read_bytes()
    with opened(reference) as container:

        def read(seed: int) -> None:
            drawn = random.Random(seed)
            with container.open(path) as file:
                assert file.size == len(content)
                for _ in range(12):
                    start, length = drawn.randrange(len(content)), drawn.choice((9, 5000, 1 << 20))
                    assert file.seek(start) == start
                    wanted = content[start : start + length]
                    while wanted:
                        part = file.read(len(wanted))
                        assert part
                        assert wanted.startswith(part)
                        wanted = wanted[len(part) :]
                assert file.seek(-5, 2) == len(content) - 5
                assert file.read(100) == content[-5:]
                assert file.read(1) == b""
                with pytest.raises(OSError, match="fileno"):
                    file.fileno()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))


def test_what_is_fetched_before_weights(
    artifact: Path, ours: ReferrersRegistry, form: str, trust: Trust
) -> None:
    reference = push(artifact, f"oci://{ours.host}/first", form=form).reference
    ours.asked.clear()
    with opened(reference) as container:
        authenticate(container, trust, files_to_read=lambda _: ())
        asked = len(ours.asked)
        assert asked <= 15
        ours.asked.clear()
        # Each chunk with a digest of its own is one request, and nothing small is fetched again.
        authenticate(container, trust)
        assert len(ours.requests("GET")) == 2


def test_weights_travel_once(tmp_path: Path, ours: ReferrersRegistry, key: PrivateKey) -> None:
    host = ours.host
    one = build_artifact(tmp_path / "one", key, padding=1 << 20)
    other = build_artifact(tmp_path / "other", key, padding=1 << 20, native=False)
    first = push(one, f"oci://{host}/shop/model:1")
    second = push(other, f"oci://{host}/shop/model:2")
    assert second.digest != first.digest
    assert second.bytes_sent <= 0.05 * second.bytes
    assert second.bytes_sent + second.bytes_present == second.bytes
    mounted = push(other, f"oci://{host}/shop/elsewhere", mount_from=["shop/none", "shop/model"])
    assert (mounted.bytes_sent, mounted.bytes_mounted) == (0, mounted.bytes)
    # From a reference of the same registry, nothing is fetched and sent again.
    copied = push(first.reference, f"oci://{host}/shop/copied")
    assert (copied.digest, copied.bytes_sent) == (first.digest, 0)
    images = [push(each, f"oci://{host}/shop/image", form="image") for each in (one, other)]
    assert images[1].bytes_sent <= 0.05 * images[1].bytes


def test_many_files_are_in_few_layers(
    tmp_path: Path, ours: ReferrersRegistry, key: PrivateKey, trust: Trust, form: str
) -> None:
    from artifact_builder import sign_artifact

    folder = build_artifact(tmp_path / "many", key)
    document = json.loads((folder / "payload/aotc.json").read_bytes())
    for number in range(120):
        path = folder / f"payload/fixtures/opt/{number}.npy"
        content = number.to_bytes() * (70_000 if number % 2 else number)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        document["files"].append(
            {
                "path": f"fixtures/opt/{number}.npy",
                "size": len(content),
                "sha256": digest,
                "role": "fixture",
            }
        )
    document["files"].sort(key=lambda entry: entry["path"])
    (folder / "payload/aotc.json").write_text(json.dumps(document))
    sign_artifact(folder, key)
    report = push(folder, f"oci://{ours.host}/many", form=form)
    assert report.layers == (62 if form == "modelpack" else 63)
    with opened(report.reference) as container:
        assert len(authenticate(container, trust).digests) == 127


# Attestations beside the artifact.


def approval(artifact: Path, key: PrivateKey, number: int) -> bytes:
    subject = {"aotc.json": payload_digests(artifact)["aotc.json"]}
    return statements.sign(KINDS["evidence"].predicate_type, {"seconds": number}, subject, key)


def test_attestations_are_added(small: Path, host: str, key: PrivateKey, form: str) -> None:
    report = push(small, f"oci://{host}/added/{form}", form=form)
    with opened(report.reference) as container:
        assert isinstance(container, RegistryContainer)
        repository, subject = container.repository, container.manifest
        before = [each.digest for each in repository.referrers(subject.digest)]
        known = container.listing("attestations").files
    added = {}
    for number in range(2):
        bundle = approval(small, key, number)
        attach(repository, subject, "evidence.sigstore.json", bundle)
        attach(repository, subject, "evidence.sigstore.json", bundle)
        name = f"evidence-{hashlib.sha256(bundle).hexdigest()[:16]}.sigstore.json"
        added[f"attestations/{name}"] = bundle
    after = {each.digest for each in repository.referrers(subject.digest)}
    assert set(before) < after
    assert len(after) == len(before) + 2
    with opened(report.reference) as container:
        listing = container.listing("attestations")
        # Which of equal names keeps it follows from the digests.
        assert len(listing.files) == len(known) + 2
        content = [container.read(path, 1 << 20) for path in listing.files]
        assert set(added.values()) < set(content)
        assert not listing.problems
    (listed,) = {
        (each.artifact_type, each.annotations["dev.sigstore.bundle.content"])
        for each in repository.referrers(subject.digest)
    }
    assert listed == (BUNDLE_TYPE, "dsse-envelope")


def referrer(registry: ReferrersRegistry, subject: str, **change: object) -> Descriptor:
    """A manifest in the repository `there`, as tools of others write it."""
    bundle = b"{}"
    digest = f"sha256:{hashlib.sha256(bundle).hexdigest()}"
    registry.blobs[digest] = bundle
    layer = {"mediaType": BUNDLE_TYPE, "digest": digest, "size": len(bundle)}
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE_TYPE,
        "config": {**layer, "mediaType": "application/vnd.oci.empty.v1+json"},
        "layers": [layer],
        "subject": {"mediaType": MANIFEST, "digest": subject, "size": 1},
        **change,
    }
    content = json.dumps(document).encode()
    own = f"sha256:{hashlib.sha256(content).hexdigest()}"
    repo = registry.repo("there")
    repo.blobs.add(digest)
    repo.manifests[own] = (MANIFEST, content)
    return Descriptor(media_type=MANIFEST, digest=own, size=len(content), artifact_type=BUNDLE_TYPE)


@pytest.mark.parametrize(
    ("annotations", "name"),
    [
        ({}, "attestation-44136fa355b3678a.sigstore.json"),
        (
            {"dev.sigstore.bundle.predicateType": KINDS["oms"].predicate_type},
            "oms-44136fa355b3678a.sigstore.json",
        ),
    ],
)
def test_attestations_without_a_name(
    small: Path, ours: ReferrersRegistry, annotations: dict[str, str], name: str
) -> None:
    report = push(small, f"oci://{ours.host}/there")
    referrer(ours, report.digest, annotations=annotations)
    with opened(report.reference) as container:
        assert f"attestations/{name}" in container.listing().files


def test_attestations_of_something_else(
    small: Path, ours: ReferrersRegistry, tmp_path: Path, key: PrivateKey
) -> None:
    report = push(small, f"oci://{ours.host}/there")
    found = [
        referrer(ours, "sha256:" + "0" * 64),
        referrer(ours, report.digest, layers=[]),
        referrer(ours, report.digest, mediaType=None),
    ]
    absent = Descriptor(
        media_type=MANIFEST, digest="sha256:" + "1" * 64, size=9, artifact_type=BUNDLE_TYPE
    )
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [each.to_json() for each in (*found, absent)],
    }
    content = json.dumps(index).encode()
    ours.faults.append(Fault("GET .*/referrers/", status=200, body=content))
    with opened(report.reference) as container:
        problems = {each.code: each.where for each in container.listing().problems}
    where = f"{ours.host}/there@"
    assert problems == {
        "AOTC-I215": where + found[0].digest,
        "AOTC-I211": where + found[1].digest,
    }
    report = verify(report.reference, key=generate(tmp_path / "k.pem")[1], target="none")
    assert {each.code for each in report.refusals} >= {"AOTC-I215", "AOTC-I211"}


def test_too_many_attestations(small: Path, ours: ReferrersRegistry) -> None:
    report = push(small, f"oci://{ours.host}/there")
    for number in range(63):
        referrer(ours, report.digest, annotations={"number": str(number)})
    with opened(report.reference) as container:
        (problem,) = container.listing().problems
        assert (problem.code, problem.found) == ("AOTC-G012", "65")


# What others put there.

CONFIG = {
    "modelpack": "application/vnd.cncf.model.config.v1+json",
    "image": "application/vnd.oci.image.config.v1+json",
}


def changed(
    registry: ReferrersRegistry, small: Path, form: str, change: object, media_type: str = MANIFEST
) -> str:
    """The code with which an artifact is refused whose manifest `change` changes."""
    report = push(small, f"oci://{registry.host}/there", form=form)
    repo = registry.repo("there")
    document = json.loads(repo.manifests[report.digest][1])
    change(document)  # type: ignore[operator]
    content = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    repo.manifests[digest] = (media_type, content)
    return refusal_code(open_container, Path(f"oci://{registry.host}/there@{digest}"))


def layers(**values: object) -> object:
    """Changes the first layer."""

    def change(document: dict[str, list[dict[str, object]]]) -> None:
        document["layers"][0].update(values)

    return change


def paths(*names: str) -> object:
    """Names the first layer, and further ones with its content."""

    def change(document: dict[str, list[dict[str, object]]]) -> None:
        first = document["layers"][0]
        document["layers"] += [
            {**first, "annotations": {"org.cncf.model.filepath": name}} for name in names
        ]

    return change


@pytest.mark.parametrize(
    ("form", "change", "code"),
    [
        ("modelpack", lambda d: d.update(artifactType="application/x"), "AOTC-I210"),
        ("modelpack", lambda d: d["config"].update(mediaType="application/x"), "AOTC-I210"),
        ("modelpack", lambda d: d.update(layers=None), "AOTC-I207"),
        ("modelpack", lambda d: d.update(config=3), "AOTC-I207"),
        ("modelpack", layers(size=-1), "AOTC-I207"),
        ("modelpack", layers(digest="sha512:" + "0" * 128), "AOTC-I207"),
        ("modelpack", layers(mediaType="application/vnd.cncf.model.weight.v1.tar"), "AOTC-I211"),
        ("modelpack", layers(mediaType="application/vnd.cncf.model.doc.v1.tar+zstd"), "AOTC-I211"),
        ("modelpack", layers(urls=["https://example.com/w"]), "AOTC-I211"),
        ("modelpack", layers(annotations={}), "AOTC-I213"),
        ("modelpack", paths("payload/../../x"), "AOTC-I213"),
        ("modelpack", paths("/payload/x"), "AOTC-I213"),
        ("modelpack", paths("attestations/oms-x.sigstore.json"), "AOTC-I213"),
        ("modelpack", paths("payload/aotc.json"), "AOTC-I213"),
        ("modelpack", paths("payload/new", "payload/new"), "AOTC-I213"),
        ("modelpack", paths("payload/AOTC.json"), "AOTC-I213"),
        ("modelpack", paths("payload/a/b/c/d/e/f/g/h/i"), "AOTC-G012"),
        ("modelpack", paths(*(f"payload/{n}" for n in range(999))), "AOTC-G012"),
        (
            "modelpack",
            layers(
                annotations={
                    "org.cncf.model.filepath": "payload/x",
                    "org.opencontainers.image.title": "payload/y",
                }
            ),
            "AOTC-I213",
        ),
        ("modelpack", lambda d: d["config"].update(size=1 << 30), "AOTC-I206"),
        ("image", lambda d: d["layers"].append(dict(d["layers"][0], annotations={})), "AOTC-I211"),
        ("image", lambda d: [each.pop("annotations") for each in d["layers"]], "AOTC-I210"),
        ("image", layers(mediaType=f"{IMAGE_LAYER_TYPE}+zstd"), "AOTC-I211"),
        ("image", layers(mediaType=f"{IMAGE_LAYER_TYPE}+gzip"), "AOTC-I211"),
        ("image", lambda d: d["layers"].extend(d["layers"][:1]), "AOTC-I213"),
        ("image", lambda d: d["layers"].extend(d["layers"][:1] * 100), "AOTC-G012"),
        # Content of another size is the registry's fault.
        ("image", layers(size=4096), "AOTC-I205"),
        ("modelpack", layers(mediaType=TOGETHER_TYPE), "AOTC-I214"),
    ],
)  # fmt: skip
def test_foreign_manifests(
    small: Path, ours: ReferrersRegistry, form: str, change: object, code: str
) -> None:
    assert changed(ours, small, form, change) == code


def test_files_of_all_layers_are_limited(
    small: Path, ours: ReferrersRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seven files are in two layers, and eleven with the folders.
    monkeypatch.setattr("aotc.trust.registry_container.MAX_ENTRIES", 6)
    assert changed(ours, small, "image", lambda d: None) == "AOTC-I214"
    monkeypatch.setattr("aotc.trust.registry_container.MAX_ENTRIES", 10)
    assert changed(ours, small, "image", lambda d: None) == "AOTC-G012"


def test_indexes_are_no_artifacts(small: Path, ours: ReferrersRegistry, tmp_path: Path) -> None:
    assert changed(ours, small, "image", lambda d: d.update(mediaType=INDEX), INDEX) == "AOTC-I210"
    repo = ours.repo("there")
    digest = next(each for each, (kind, _) in repo.manifests.items() if kind == INDEX)
    reference = f"oci://{ours.host}/there@{digest}"
    report = verify(reference, key=generate(tmp_path / "a.pem")[1], target="none")
    assert [each.code for each in report.refusals] == ["AOTC-I210"]
    assert report.verdict == "unverified"


def test_a_tag_is_resolved_once(small: Path, ours: ReferrersRegistry, trust: Trust) -> None:
    first = push(small, f"oci://{ours.host}/there:1")
    with opened(f"oci://{ours.host}/there:1") as container:
        ours.repo("there").tags["1"] = "sha256:" + "0" * 64
        assert authenticate(container, trust).id == first.artifact_id
        assert container.place == first.reference


def test_where_a_reference_cannot_be_used(tmp_path: Path) -> None:
    error = refusal(pack, "oci://127.0.0.1:1/a/b:1", tmp_path / "a.zip")
    assert error.code == "AOTC-I001"
    assert error.fix == "aotc pull oci://127.0.0.1:1/a/b:1 -o NAME.aotc"
    # A folder of such a name is named otherwise.
    error = refusal(pack, "./oci:/127.0.0.1:1/a", tmp_path / "a.zip")
    assert error.where == str(Path.cwd() / "oci:/127.0.0.1:1/a")


# What is not pushed.


def test_files_that_are_not_as_listed(
    artifact: Path, tmp_path: Path, ours: ReferrersRegistry, form: str
) -> None:
    target = f"oci://{ours.host}/none:1"
    for path, code in (
        ("payload/manifest.json", "AOTC-G005"),
        (next(p for p in contents_of(artifact) if p.endswith("weights.bin")), "AOTC-G005"),
    ):
        shutil.copytree(artifact, folder := tmp_path / path.rpartition("/")[2])
        flip_bit(folder / path)
        error = refusal(push, folder, target, form=form)
        assert (error.code, error.where) == (code, path)
        (folder / path).unlink()
        error = refusal(push, folder, target, form=form)
        assert (error.code, error.where) == ("AOTC-G006", path)
    shutil.copytree(artifact, folder := tmp_path / "more")
    (folder / "payload" / "more").write_bytes(b"")
    assert refusal_code(push, folder, target, form=form) == "AOTC-G007"
    repo = ours.repo("none")
    assert (repo.tags, repo.manifests) == ({}, {})


def test_references_that_nothing_is_pushed_to(small: Path, ours: ReferrersRegistry) -> None:
    digest = "sha256:" + "0" * 64
    assert refusal_code(push, small, f"oci://{ours.host}/a@{digest}") == "AOTC-I216"
    assert refusal_code(push, small, f"oci://{ours.host}/a", tags=["not a tag"]) == "AOTC-I196"
    referrers = "sha256-" + "0" * 64
    assert refusal_code(push, small, f"oci://{ours.host}/a:{referrers}") == "AOTC-I216"
    assert refusal_code(push, small, f"oci://{ours.host}/a", tags=[referrers]) == "AOTC-I216"
    assert refusal_code(push, small, f"oci://{ours.host}/a", form="zip") == "AOTC-I027"
    assert not ours.asked


def test_a_cut_leaves_no_tag(small: Path, ours: ReferrersRegistry, pauses: object) -> None:
    ours.faults.append(Fault("PUT .*/manifests/1$", status=500))
    assert refusal_code(push, small, f"oci://{ours.host}/cut:1") == "AOTC-I202"
    assert not ours.repo("cut").tags
    ours.faults.clear()
    assert push(small, f"oci://{ours.host}/cut:1").bytes_sent == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_changes_while_it_is_sent_is_told_by_its_name(
    form: str,
    tmp_path: Path,
    small: Path,
    ours: ReferrersRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the digest of its layer is known, too."""
    changing = tmp_path / "a"
    shutil.copytree(small, changing)
    weights = max(changing.rglob("*"), key=lambda path: path.stat().st_size)
    put = Repository.put_blob

    def changed(self: Repository, digest: str, size: int, *given: Any, **named: Any) -> Stored:
        if size >= 100_000:
            flip_bit(weights)
        return put(self, digest, size, *given, **named)

    monkeypatch.setattr(Repository, "put_blob", changed)
    error = refusal(push, changing, f"oci://{ours.host}/changing:1", form=form)
    assert (error.code, error.where) == ("AOTC-G005", weights.relative_to(changing).as_posix())
    assert not ours.repo("changing").manifests


def test_what_is_pushed_without_a_tag_is_not_the_latest(
    small: Path, ours: ReferrersRegistry
) -> None:
    target = f"oci://{ours.host}/untagged"
    assert push(small, target).tags == ()
    error = refusal(RegistryContainer, target)
    assert (error.code, error.where) == ("AOTC-I201", f"{target}:latest")


def test_of_many_layers_little_is_fetched_before_a_signature_is(
    tmp_path: Path, ours: ReferrersRegistry, key: PrivateKey
) -> None:
    """A manifest of whoever may push, with the same layer of 6 MB again and again."""
    made = build_artifact(tmp_path / "a", key, padding=6_000_000)
    reference = parse_reference(push(made, f"oci://{ours.host}/a", form="image").reference)
    repository = Repository(reference)
    document = json.loads(repository.resolve(reference)[1])
    document["layers"] = [max(document["layers"], key=lambda layer: layer["size"])] * 50
    bad = repository.put_manifest(json.dumps(document).encode(), MANIFEST)
    ours.asked.clear()
    assert refusal_code(RegistryContainer, f"{ours.host}/a@{bad.digest}") == "AOTC-I213"
    whole = [
        each for each in ours.asked if "/blobs/" in each.target and "Range" not in each.headers
    ]
    assert 1 <= len(whole) <= 6


# Images over others.


def base_image(registry: ReferrersRegistry, name: str, **changed: object) -> Reference:
    """An image of one compressed layer, and nothing in it."""
    layer = b"\x1f\x8b compressed"
    settings = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "1" * 64]},
            "history": [{"created_by": "others"}],
            **changed,
        }
    ).encode()
    described = []
    repo = registry.repo(name)
    for content, kind in (
        (settings, "application/vnd.docker.container.image.v1+json"),
        (layer, "application/vnd.docker.image.rootfs.diff.tar.gzip"),
    ):
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        registry.blobs[digest] = content
        repo.blobs.add(digest)
        described.append({"mediaType": kind, "digest": digest, "size": len(content)})
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    config, *layers = described
    document = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}
    content = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    repo.manifests[digest] = (kind, content)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {"mediaType": kind, "digest": "sha256:" + "2" * 64, "size": 3, "platform": {"os": "x"}},
            {
                "mediaType": kind,
                "digest": digest,
                "size": len(content),
                "platform": {"os": "linux", "architecture": "amd64"},
            },
        ],
    }
    listed = json.dumps(index).encode()
    own = f"sha256:{hashlib.sha256(listed).hexdigest()}"
    repo.manifests[own] = (INDEX, listed)
    repo.tags.update({"index": own, "image": digest})
    return parse_reference(f"{registry.host}/{name}@{digest}")


@pytest.mark.parametrize("tag", ["image", "index"])
def test_an_image_over_another(
    tmp_path: Path,
    ours: ReferrersRegistry,
    docker: Registry,
    key: PrivateKey,
    trust: Trust,
    tag: str,
) -> None:
    small = build_artifact(
        tmp_path / "a", key, requirements={"architecture": "x86_64", "os": "linux"}
    )
    base = base_image(ours, "busy/box")
    for host in (ours.host, docker.host):
        ours.asked.clear()
        report = push(
            small, f"oci://{host}/over/{tag}", form="image", base=f"{ours.host}/busy/box:{tag}"
        )
        assert report.base == base.digest
        repository = Repository(parse_reference(report.reference))
        content = repository.resolve(parse_reference(report.reference))[1]
        document = json.loads(content)
        assert document["layers"][0]["mediaType"] == f"{IMAGE_LAYER_TYPE}+gzip"
        config = json.loads(
            repository.read_blob(
                Descriptor(
                    media_type="",
                    digest=document["config"]["digest"],
                    size=document["config"]["size"],
                ),
                1 << 20,
            )
        )
        assert config["config"] == {"Cmd": ["/bin/sh"]}
        assert len(config["rootfs"]["diff_ids"]) == len(config["history"]) == report.layers + 1
        assert config["rootfs"]["diff_ids"][0] == "sha256:" + "1" * 64
        with opened(report.reference) as container:
            assert authenticate(container, trust).id == report.artifact_id
    assert ours.requests("GET .*busy/box/blobs")


def test_certificates_hold_for_all_that_is_read_there(
    tmp_path: Path, key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"architecture": "x86_64", "os": "linux"}
    small = build_artifact(tmp_path / "a", key, requirements=needs)
    with referrers_registry(tls=tmp_path / "tls") as there:
        ca, host = there.ca, there.host
        assert ca is not None
        first = push(small, f"oci://{host}/a", ca=ca)
        base = str(base_image(there, "base"))
        source = first.reference
        over = push(source, f"oci://{host}/b", form="image", base=base, ca=ca)
        assert over.artifact == source
        assert over.artifact_id == first.artifact_id
        monkeypatch.setenv("AOTC_OCI_CA", str(ca))
        with opened(over.reference) as container:
            assert len(container.listing("attestations").files) == 2


@pytest.mark.parametrize(
    "settings",
    [{"architecture": "s390x"}, {"os": "plan9"}, {"rootfs": {"diff_ids": []}}, {"rootfs": 3}],
)
def test_bases_that_cannot_be_used(
    small: Path, ours: ReferrersRegistry, settings: dict[str, object]
) -> None:
    base = str(base_image(ours, "base", **settings))
    error = refusal(push, small, f"oci://{ours.host}/a", form="image", base=base)
    assert error.code == "AOTC-I217"
    assert refusal_code(push, small, f"oci://{ours.host}/a", base=base) == "AOTC-I217"


def test_a_base_is_no_artifact_and_is_named_by_a_digest(
    small: Path, ours: ReferrersRegistry
) -> None:
    """Files of two artifacts in one folder would verify nowhere."""
    target = f"oci://{ours.host}/a"
    below = push(small, target, form="image").reference
    error = refusal(push, small, target, form="image", base=below)
    assert (error.code, error.where) == ("AOTC-I217", below)
    base_image(ours, "base")
    repo = ours.repo("base")
    kind, listed = repo.manifests[repo.tags["index"]]
    own = repo.tags["image"].encode()
    repo.tags["index"] = (
        "sha256:" + hashlib.sha256(changed := listed.replace(own, b"image")).hexdigest()
    )
    repo.manifests[repo.tags["index"]] = (kind, changed)
    named = f"{ours.host}/base:index"
    assert refusal_code(push, small, target, form="image", base=named) == "AOTC-I207"


def test_the_command(
    small: Path, ours: ReferrersRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    target = f"oci://{ours.host}/shop/model:1.4"
    assert cli.main(["push", str(small), target, "--tag", "latest", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "aotc.push/1"
    assert said["tags"] == ["1.4", "latest"]
    assert cli.main(["push", str(small), target, "--form", "image"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"oci://{ours.host}/shop/model@sha256:")
    assert "2 attestations" in shown
    assert "4 layers" in shown
    assert cli.main(["push", str(small), target, "--quiet"]) == 0
    assert capsys.readouterr().out == said["reference"] + "\n"
    assert cli.main(["push", str(small), f"{target}@sha256:{'0' * 64}"]) == 3
    assert "AOTC-I216" in capsys.readouterr().err
