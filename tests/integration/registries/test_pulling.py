"""Artifacts out of registries: pulled, verified before weights are fetched, loaded, attested."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from policy_setting import ahead
from referrers_registry import Fault, ReferrersRegistry, referrers_registry
from refusals import refusal
from registries import Registry, docker_registry

import aotc
from aotc.cli.main import main
from aotc.registry import connection
from aotc.registry.references import parse_reference
from aotc.runtime.store.pruning import remove_entry
from aotc.spec.command_reports import PullReport
from aotc.trust import packing
from aotc.trust.attesting import approve, sign
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.registry_container import RegistryContainer, attach

# Its largest file is a blob of its own, and has three chunks with digests of their own.
PADDING = 40 << 20
CHUNK = 16 << 20
REPOSITORY = "team/linear"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A key of the builder and one of another person."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: generate(folder / f"{name}.pem")[0] for name in ("builder", "other")}


@pytest.fixture(scope="module")
def signer(keys: dict[str, Path]) -> PrivateKey:
    return load_private(keys["builder"])


@pytest.fixture(scope="module")
def key(keys: dict[str, Path]) -> Path:
    return keys["builder"].with_suffix(".pub")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, signer: PrivateKey) -> Path:
    return build_artifact(tmp_path_factory.mktemp("made") / "linear.aotc", signer, padding=PADDING)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, signer: PrivateKey) -> Path:
    folder = tmp_path_factory.mktemp("small")
    return build_artifact(folder / "other.aotc", signer, padding=100_000, change={"name": "other"})


@pytest.fixture(scope="module")
def shared(artifact: Path) -> Iterator[ReferrersRegistry]:
    """The registry of the tests with the artifact in both forms, of which nothing is changed."""
    with referrers_registry() as registry:
        for form in ("modelpack", "image"):
            aotc.push(artifact, f"{registry.host}/{REPOSITORY}:{form}", form=form)
        yield registry


@pytest.fixture
def registry(small: Path) -> Iterator[ReferrersRegistry]:
    """One of a test's own, with the small artifact."""
    with referrers_registry() as registry:
        aotc.push(small, f"{registry.host}/{REPOSITORY}:1.0")
        yield registry


@pytest.fixture(scope="module")
def docker(
    tmp_path_factory: pytest.TempPathFactory, artifact: Path, small: Path
) -> Iterator[Registry]:
    with docker_registry(tmp_path_factory.mktemp("docker")) as registry:
        aotc.push(artifact, f"{registry.host}/{REPOSITORY}:modelpack")
        aotc.push(small, f"{registry.host}/{REPOSITORY}:small", form="image")
        yield registry


@pytest.fixture(autouse=True)
def of_no_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "own-store"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DOCKER_CONFIG", "DOCKER_AUTH_CONFIG", "AOTC_OCI_CA", "AOTC_OCI_PLAIN_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(connection, "pause", lambda *_: None)


def weights_of(registry: ReferrersRegistry, repository: str = REPOSITORY) -> str:
    """The digest of the largest blob."""
    held = registry.repo(repository).blobs
    return max(held, key=lambda digest: len(registry.blobs[digest]))


def fetched(registry: ReferrersRegistry, since: int, repository: str = REPOSITORY) -> list[str]:
    """Requests for more than a few bytes of the largest blob: the headers of a tar are small."""
    weights, found = weights_of(registry, repository), []
    for asked in registry.asked[since:]:
        start, _, end = asked.headers.get("Range", "").removeprefix("bytes=").partition("-")
        is_small = bool(end) and int(end) - int(start) < 64 << 10
        if asked.method == "GET" and weights in asked.target and not is_small:
            found.append(str(asked))
    return found


def is_same(pulled: Path, artifact: Path) -> bool:
    return contents_of(pulled) == contents_of(artifact)


@pytest.mark.parametrize("form", ["modelpack", "image"])
def test_a_pull_into_a_store_is_the_artifact_byte_for_byte(
    form: str, shared: ReferrersRegistry, artifact: Path, key: Path, tmp_path: Path
) -> None:
    reference = f"oci://{shared.host}/{REPOSITORY}:{form}"
    report = aotc.pull(reference, store=tmp_path / "store", key=key)
    digest = shared.repo(REPOSITORY).tags[form]
    assert report.origin == f"{shared.host}/{REPOSITORY}@{digest}"
    assert (report.reference, report.pulled, report.bytes_present) == (reference, True, 0)
    assert report.bytes == report.bytes_fetched > PADDING
    assert is_same(Path(report.path), artifact)
    (told,) = [each for each in report.findings if each.code == "AOTC-I218"]
    assert (told.what, told.where) == (f"the tag is {digest}", reference)
    before = len(shared.asked)
    again = aotc.pull(report.origin, store=tmp_path / "store", key=key)
    assert (again.pulled, again.bytes_fetched, again.path) == (False, 0, report.path)
    assert "AOTC-I218" not in {each.code for each in again.findings}
    assert not fetched(shared, before)


@pytest.mark.parametrize("tag", ["modelpack", "small"])
def test_debians_registry_serves_it_too(
    tag: str, docker: Registry, artifact: Path, small: Path, key: Path, tmp_path: Path
) -> None:
    report = aotc.pull(f"{docker.host}/{REPOSITORY}:{tag}", store=tmp_path / "store", key=key)
    assert is_same(Path(report.path), artifact if tag == "modelpack" else small)
    assert report.attestations == ()


def test_an_output_is_a_folder_or_a_packed_file(
    registry: ReferrersRegistry, small: Path, key: Path, tmp_path: Path
) -> None:
    reference = f"{registry.host}/{REPOSITORY}:1.0"
    folder, packed = tmp_path / "out" / "a.aotc", tmp_path / "out" / "a.aotc.zip"
    folder.parent.mkdir()
    report = aotc.pull(reference, folder, key=key)
    assert (report.store, report.path) == ("", str(folder))
    assert is_same(folder, small)
    aotc.pull(reference, packed, key=key)
    assert sorted(packed.parent.iterdir()) == [folder, packed]
    assert aotc.verify(packed, key=key).authentic
    modes = {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~_umask()}
    assert refusal(lambda: aotc.pull(reference, folder, key=key)).code == "AOTC-I017"
    (folder / "payload" / "manifest.json").write_bytes(b"{}")
    aotc.pull(reference, folder, key=key, force=True)
    assert is_same(folder, small)
    both = refusal(lambda: aotc.pull(reference, folder, store=tmp_path, key=key))
    assert both.code == "AOTC-I027"


@pytest.mark.parametrize("name", ["a.aotc", "a.aotc.zip"])
def test_a_full_disk_is_told_by_the_output_and_nothing_is_left(
    name: str,
    registry: ReferrersRegistry,
    key: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "out").mkdir()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patched:
        if name.endswith(".zip"):
            patched.setattr(packing._Packer, "write", Mock(side_effect=full))
        else:
            patched.setattr(os, "pwrite", Mock(side_effect=full))
        found = refusal(
            lambda: aotc.pull(f"{registry.host}/{REPOSITORY}:1.0", tmp_path / "out" / name, key=key)
        )
    assert (found.code, found.where) == ("AOTC-I018", str(tmp_path / "out" / name))
    assert not list((tmp_path / "out").iterdir())


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_what_is_refused_has_no_weights_fetched_and_leaves_nothing(
    registry: ReferrersRegistry, keys: dict[str, Path], tmp_path: Path
) -> None:
    """By nobody who is trusted: the documents and the attestations are all that is asked for."""
    reference = f"{registry.host}/{REPOSITORY}:1.0"
    other = keys["other"].with_suffix(".pub")
    before = len(registry.asked)
    report = aotc.verify(f"oci://{reference}", key=other)
    assert [each.code for each in report.refusals] == ["AOTC-G002"]
    assert report.artifact == f"oci://{reference}"
    digest = registry.repo(REPOSITORY).tags["1.0"]
    assert report.origin == f"{registry.host}/{REPOSITORY}@{digest}"
    for call in (
        lambda: aotc.pull(reference, store=tmp_path / "store", key=other),
        lambda: aotc.pull(reference, tmp_path / "a.aotc", key=other),
        lambda: aotc.load(f"oci://{reference}", store=tmp_path / "store", key=other),
    ):
        assert refusal(call).code == "AOTC-G002"  # type: ignore[arg-type]
    assert not fetched(registry, before)
    assert not (tmp_path / "a.aotc").exists()
    left = (tmp_path / "store").iterdir() if (tmp_path / "store").exists() else ()
    assert not list(left)


def policy(tmp_path: Path, signer: PrivateKey, *repositories: str) -> Path:
    stated = {
        "schema": "aotc.trust/1",
        "name": "plant",
        "sequence": 1,
        "expires": ahead(days=30),
        "keys": [{"id": "builder", "pem": signer.public_pem, "usage": ["oms", "evidence"]}],
        "rules": [
            {
                "name": "all",
                "match": {"name": "*"},
                "require": [{"predicate": "oms", "signers": ["builder"]}],
                "repositories": list(repositories),
            }
        ],
    }
    path = tmp_path / "policy.yaml"
    path.write_text(json.dumps(stated))
    return path


def test_a_policy_takes_artifacts_from_its_repositories_alone(
    registry: ReferrersRegistry, small: Path, signer: PrivateKey, tmp_path: Path
) -> None:
    """Before the weights are fetched; of a folder the signatures alone decide."""
    reference = f"oci://{registry.host}/{REPOSITORY}:1.0"
    elsewhere = policy(tmp_path, signer, "ghcr.io/team/*", f"{registry.host}/other/*")
    before = len(registry.asked)
    report = aotc.verify(reference, trust=elsewhere)
    (found,) = report.refusals
    assert (found.code, found.where) == ("AOTC-G049", "rule all")
    assert found.expected == f"ghcr.io/team/*, {registry.host}/other/*"
    assert found.found == f"{registry.host}/{REPOSITORY}"
    statuses = {step.step: step.status for step in report.steps}
    assert (statuses["4 digests"], statuses["7 policy"]) == ("not-run", "failed")
    assert report.policy is not None
    assert report.policy.repository == f"{registry.host}/{REPOSITORY}"
    pulled = refusal(lambda: aotc.pull(reference, store=tmp_path / "store", trust=elsewhere))
    assert pulled.code == "AOTC-G049"
    assert not fetched(registry, before)
    assert aotc.verify(small, trust=elsewhere).authentic
    here = policy(tmp_path, signer, f"{registry.host}/team/*")
    assert aotc.verify(reference, trust=here).authentic
    stored = aotc.pull(reference, store=tmp_path / "store", trust=here)
    # A copy in the store does not hide where it is said to come from.
    elsewhere = policy(tmp_path, signer, "ghcr.io/team/*")
    loaded = refusal(lambda: aotc.load(reference, store=tmp_path / "store", trust=elsewhere))
    assert loaded.code == "AOTC-G049"
    assert aotc.verify(stored.path, trust=elsewhere).authentic


def test_what_stands_for_a_host_stands_for_no_part_of_a_repository(
    registry: ReferrersRegistry, small: Path, signer: PrivateKey, tmp_path: Path
) -> None:
    """Whoever has a registry may name a repository like the host of another."""
    reference = f"oci://{registry.host}/a.example.com/linear:1"
    aotc.push(small, reference)
    for pattern, codes in (
        ("*.example.com/linear", ["AOTC-G049"]),
        ("127.0.0.?:*/linear", ["AOTC-G049"]),
        ("127.0.0.?:*/*", []),
        ("127.0.0.1:*/*.example.com/linear", []),
    ):
        report = aotc.verify(reference, trust=policy(tmp_path, signer, pattern))
        assert [each.code for each in report.refusals] == codes, pattern


@pytest.mark.parametrize("form", ["modelpack", "image"])
def test_a_digest_stands_for_no_other_signed_artifact(
    form: str, registry: ReferrersRegistry, signer: PrivateKey, key: Path, tmp_path: Path
) -> None:
    """The registry gives, for one release, all of another: blobs of the same sizes, and bundles."""
    held, layers, subjects = registry.repo(REPOSITORY), [], []
    for name in ("first", "other"):
        made = build_artifact(tmp_path / f"{name}.aotc", signer, change={"name": name})
        with (made / "payload/aotc.json").open("rb") as file:
            assert name.encode() in file.read()
        aotc.push(made, f"{registry.host}/{REPOSITORY}:{name}", form=form)
        subjects.append(held.tags[name])
        document = json.loads(held.manifests[subjects[-1]][1])
        layers.append([each["digest"] for each in document["layers"] if "sha256" in each["digest"]])
    first, other = subjects
    for bundle in [each for each, (_, text) in held.manifests.items() if b'"subject"' in text]:
        if json.loads(held.manifests[bundle][1])["subject"]["digest"] == other:
            del held.manifests[bundle]
    with RegistryContainer(f"{registry.host}/{REPOSITORY}@{first}") as container:
        bundles = {
            path: container.read(path, 1 << 20) for path in container.listing("attestations").files
        }
        for path, bundle in bundles.items():
            subject, _ = container.repository.resolve(parse_reference(f"x.y/z@{other}"))
            attach(container.repository, subject, path.rpartition("/")[2], bundle)
    for pushed, given in zip(layers[1], layers[0], strict=True):
        assert len(registry.blobs[pushed]) == len(registry.blobs[given])
        registry.blobs[pushed] = registry.blobs[given]
    reference = f"oci://{registry.host}/{REPOSITORY}@{other}"
    for call in (
        lambda: aotc.pull(reference, store=tmp_path / "store", key=key),
        lambda: aotc.pull(reference, tmp_path / "a.aotc", key=key),
        lambda: aotc.load(reference, store=tmp_path / "store", key=key),
        lambda: approve(reference, signer, channel="prod", expires="2099-01-31"),
    ):
        found = refusal(call)  # type: ignore[arg-type]
        assert (found.code, found.where) == ("AOTC-G005", "payload/aotc.json")
    report = aotc.verify(reference, key=key)
    assert not report.authentic
    assert "AOTC-G005" in [each.code for each in report.refusals]
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "a.aotc").exists()


def test_a_load_fetches_weights_once_and_tells_the_digest_of_a_tag(
    registry: ReferrersRegistry, key: Path, tmp_path: Path
) -> None:
    reference = f"oci://{registry.host}/{REPOSITORY}:1.0"
    digest = registry.repo(REPOSITORY).tags["1.0"]
    with aotc.load(reference, key=key, store=tmp_path / "store") as model:
        answer = model.run({"x": np.ones((2, 4), np.float32)})
        (told,) = [each for each in model.report.findings if each.code == "AOTC-I218"]
        assert digest in told.what
    assert fetched(registry, 0)
    before = len(registry.asked)
    with aotc.load(
        f"oci://{registry.host}/{REPOSITORY}@{digest}", key=key, store=tmp_path / "store"
    ) as again:
        assert "AOTC-I218" not in {each.code for each in again.report.findings}
        for name, value in again.run({"x": np.ones((2, 4), np.float32)}).items():
            np.testing.assert_array_equal(value, answer[name])
    assert not fetched(registry, before)


def test_a_digest_that_the_store_has_loads_while_the_registry_fails(
    registry: ReferrersRegistry, small: Path, key: Path, tmp_path: Path, signer: PrivateKey
) -> None:
    """Nothing is taken for a tag, and nothing that was not pulled by that very digest."""
    reference = f"oci://{registry.host}/{REPOSITORY}:1.0"
    store = tmp_path / "store"
    pulled = aotc.pull(reference, store=store, key=key)
    by_digest = f"oci://{pulled.origin}"
    registry.faults.append(Fault(of="GET ", status=503))
    with aotc.load(by_digest, key=key, store=store) as model:
        (told,) = [each for each in model.report.findings if each.code == "AOTC-I219"]
        assert told.where == by_digest
        assert "AOTC-I202" in told.what
        assert model.report.artifact_id == pulled.artifact_id
    elsewhere = policy(tmp_path, signer, "ghcr.io/team/*")
    for call, code in (
        (lambda: aotc.load(reference, key=key, store=store), "AOTC-I202"),
        (lambda: aotc.load(by_digest, key=key, store=tmp_path / "other"), "AOTC-I202"),
        (lambda: aotc.load(f"{by_digest[:-4]}0000", key=key, store=store), "AOTC-I202"),
        (lambda: aotc.load(by_digest, trust=elsewhere, store=store), "AOTC-G049"),
        (lambda: aotc.verify(by_digest, key=key), "AOTC-I202"),
    ):
        assert refusal(call).code == code  # type: ignore[arg-type]
    remove_entry(store, pulled.artifact_id)
    assert refusal(lambda: aotc.load(by_digest, key=key, store=store)).code == "AOTC-I202"
    assert [path.name for path in store.iterdir()] == [".lock"]


def test_a_tag_that_moves_meanwhile_changes_nothing(
    registry: ReferrersRegistry, small: Path, signer: PrivateKey, key: Path, tmp_path: Path
) -> None:
    """It is asked for once, and everything else by digest."""
    other = build_artifact(tmp_path / "b.aotc", signer, padding=200_000, change={"name": "moved"})
    aotc.push(other, f"{registry.host}/{REPOSITORY}:2.0")
    tags = registry.repo(REPOSITORY).tags
    first, second = tags["1.0"], tags["2.0"]

    def move() -> None:
        tags["1.0"] = second

    def is_first(found: PullReport) -> bool:
        return found.origin.endswith(first) and found.name == "other"

    for number, output in enumerate((None, tmp_path / "a.aotc")):
        tags["1.0"] = first
        # With the first thing that follows the manifest.
        registry.faults[:] = [Fault(of="GET .*/(blobs|referrers)/", times=1, then=move)]
        before = len(registry.asked)
        store = None if output else tmp_path / f"store-{number}"
        report = aotc.pull(f"{registry.host}/{REPOSITORY}:1.0", output, store=store, key=key)
        assert is_first(report)
        assert tags["1.0"] == second
        assert is_same(Path(report.path), small)
        assert len([each for each in registry.requests()[before:] if "/manifests/1.0" in each]) == 1


@pytest.mark.parametrize("into", ["store", "output"])
def test_a_pull_that_was_cut_goes_on(into: str, artifact: Path, key: Path, tmp_path: Path) -> None:
    """The registry answers no more after two of three chunks; they are not fetched again."""
    with referrers_registry() as registry:
        reference = f"{registry.host}/{REPOSITORY}:1.0"
        aotc.push(artifact, reference)
        weights = weights_of(registry)

        def pull() -> PullReport:
            if into == "store":
                return aotc.pull(reference, store=tmp_path / "store", key=key)
            return aotc.pull(reference, tmp_path / "store" / "a.aotc", key=key)

        (tmp_path / "store").mkdir(mode=0o700)
        registry.faults.append(Fault(of=f"GET .*{weights}", after=2, status=503))
        assert refusal(pull).code == "AOTC-I202"
        assert not list((tmp_path / "store").glob("[!.]*"))
        registry.faults.clear()
        report = pull()
        assert report.bytes_present >= CHUNK
        assert report.bytes_present + report.bytes_fetched == report.bytes
        assert is_same(Path(report.path), artifact)
        left = {path.name for path in (tmp_path / "store").iterdir()}
        assert not [name for name in left if "-part-" in name]


def test_an_approval_is_pushed_and_nothing_else_changes(
    registry: ReferrersRegistry, keys: dict[str, Path], key: Path, tmp_path: Path
) -> None:
    reference = f"oci://{registry.host}/{REPOSITORY}:1.0"
    repo = registry.repo(REPOSITORY)
    before, asked = dict(repo.manifests), len(registry.asked)
    other = load_private(keys["other"])
    answer = approve(reference, other, channel="prod", expires="2099-01-31", trust=key)
    added = repo.manifests.keys() - before.keys()
    assert answer.path == f"oci://{registry.host}/{REPOSITORY}@{added.pop()}"
    assert (not added, dict(before) == {k: repo.manifests[k] for k in before}) == (True, True)
    assert answer.artifact == f"oci://{registry.host}/{REPOSITORY}@{repo.tags['1.0']}"
    with RegistryContainer(reference) as container:
        names = container.listing("attestations").files
    assert [each for each in names if "approval-prod-" in each]
    again = refusal(
        lambda: approve(reference, other, channel="prod", expires="2099-01-31", trust=key)
    )
    assert again.code == "AOTC-I017"
    sign(reference, other, trust=key)
    assert not fetched(registry, asked)
    assert aotc.verify(reference, key=keys["other"].with_suffix(".pub")).authentic
    # By nobody who is trusted nothing is signed.
    count, third = len(repo.manifests), load_private(generate(tmp_path / "third.pem")[0])
    lacking = refusal(lambda: approve(reference, third, channel="dev", expires="2099-01-31"))
    assert (lacking.code, len(repo.manifests)) == ("AOTC-G002", count)


def test_commands_take_references(
    registry: ReferrersRegistry,
    small: Path,
    keys: dict[str, Path],
    key: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference = f"oci://{registry.host}/{REPOSITORY}:1.0"

    def answer(*words: str, status: int = 0) -> dict[str, object]:
        assert main([*words, "--json"]) == status, capsys.readouterr()
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    trusted = ("--key", str(key))
    assert answer("verify", reference, *trusted)["artifact"] == reference
    shown = answer("inspect", reference)
    assert (shown["path"], shown["kind"]) == (reference, "artifact")
    compared = answer("diff", reference, str(small), "--no-run")
    assert compared["same_id"]
    written = answer("export", reference, "-o", str(tmp_path / "plain"), *trusted)
    assert written["artifact"] == reference
    assert (tmp_path / "plain" / "model.onnx").is_file()
    assert answer("run", reference, *trusted)
    assert answer("install", reference, *trusted)["artifact"] == reference
    pulled = answer("pull", reference, "-o", str(tmp_path / "a.aotc"), *trusted)
    assert pulled["path"] == str(tmp_path / "a.aotc")
    approval = ("--approve", "--channel", "prod", "--expires", "2099-01-31")
    signed = ("--key", str(keys["other"]), "--trust", str(key))
    refused = answer("attest", reference, *approval, *signed, status=2)
    assert json.dumps(refused).count("AOTC-I027") == 1
    refused = answer("attest", str(small), *approval, *signed, "--push", status=2)
    assert json.dumps(refused).count("AOTC-I027") == 1
    assert answer("attest", reference, *approval, *signed, "--push")["schema"] == "aotc.attest/1"
    qualified = answer("attest", reference, "--qualify", "--runs", "2", *signed, "--push")
    assert str(qualified["path"]).startswith(f"oci://{registry.host}/{REPOSITORY}@sha256:")
    matrix = answer("fleet", "verify", reference, "--targets", "linux-x86-64", *trusted)
    assert matrix["artifacts"] == {reference: pulled["artifact_id"]}
    for words in (
        ("pack", reference, "-o", str(tmp_path / "b.zip")),
        ("verify", f"oci://{registry.host}/{REPOSITORY}:none"),
    ):
        assert answer(*words, status=3)["schema"] == "aotc.error/1"
