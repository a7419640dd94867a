"""Artifacts that were changed after they were signed: `verify` and `run` refuse every one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import TOOLCHAIN, Command, Outcome
from file_bytes import flip_bit
from made_models import linear, save

from aotc.spec.json import canonical_json
from aotc.trust import key_files, oms
from aotc.trust.gate import verify
from aotc.trust.key_loading import load_private

FILES = (
    "attestations/evidence.sigstore.json",
    "attestations/oms.sigstore.json",
    "attestations/provenance.sigstore.json",
    "attestations/sbom.sigstore.json",
    "payload/aotc.json",
    "payload/fixtures/opt/input_0.npy",
    "payload/fixtures/opt/output_0.npy",
    "payload/manifest.json",
    "payload/model/portable/model.onnx",
    "payload/model.*/native/model.onnx",
    "payload/shared_assets/*/weights.bin",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `good.aotc`, of two variants and external weights, and its `release.pub`."""
    folder = tmp_path_factory.mktemp("built")
    aotc = Command(folder)
    assert aotc("keygen", "-o", "release.pem").status == 0
    save(linear(features=32), folder / "linear.onnx")
    words = ("-o", "good.aotc", "--key", "release.pem", "--profile", "server-cpu")
    assert aotc("build", "linear.onnx", *words).status == 0
    return folder


@pytest.fixture
def aotc(tmp_path: Path, built: Path) -> Command:
    """The command, in a folder with a copy `a.aotc` to spoil and `release.pub`."""
    shutil.copytree(built / "good.aotc", tmp_path / "a.aotc")
    shutil.copy(built / "release.pub", tmp_path)
    return Command(tmp_path)


def judged(aotc: Command, command: str = "verify") -> Outcome:
    return aotc(command, "a.aotc", "--key", "release.pub")


def refused(aotc: Command, *codes: str) -> Outcome:
    """`verify` and `run` refuse `a.aotc`, first for a code of `codes`; `verify`'s outcome."""
    ran = judged(aotc, "run")
    assert ran.status == 1, ran
    assert ran.codes[0] in codes
    assert not list(aotc.store.glob("*")), "the store took what was refused"
    assert not list(aotc.store.glob(".new-*"))
    outcome = judged(aotc)
    assert outcome.status == 1, outcome
    assert outcome.codes[0] in codes
    assert outcome.document["schema"] == "aotc.verify/1"
    assert outcome.document["authentic"] is False
    assert outcome.document["verdict"] == "unverified"
    return outcome


def file_of(artifact: Path, name: str) -> Path:
    """The one file that the pattern `name` stands for: some folders have a digest for a name."""
    (path,) = artifact.glob(name)
    return path


def signed_anew(artifact: Path, folder: Path) -> None:
    """Sign the payload as it is with a key that `release.pub` then names."""
    (folder / "release.pub").unlink()
    private, _ = key_files.generate(folder / "release.pem")
    payload = artifact / "payload"
    digests = {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }
    for bundle in (artifact / "attestations").iterdir():
        bundle.unlink()
    bundle = oms.sign(digests, load_private(private))
    (artifact / "attestations" / "oms.sigstore.json").write_bytes(bundle)


def test_the_artifact_is_good(aotc: Command) -> None:
    """What follows is refused for its fault alone, and covers every file there is."""
    assert judged(aotc).status == 0
    ran = judged(aotc, "run")
    assert (ran.status, ran.document["schema"]) == (0, "aotc.run/1")
    artifact = aotc.folder / "a.aotc"
    covered = {file_of(artifact, name) for name in FILES}
    others = {path for path in artifact.rglob("*") if path.is_file()} - covered
    assert {path.parent.parent.name for path in others} <= {"fixtures"}


# -- flipped bits
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit(aotc: Command, name: str) -> None:
    path = file_of(aotc.folder / "a.aotc", name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    if name.startswith("payload/"):
        outcome = refused(aotc, "AOTC-G005", "AOTC-G009")
        assert "AOTC-G005" in outcome.codes
    else:
        refused(aotc, "AOTC-G003", "AOTC-G004")


def test_a_flipped_bit_in_every_file(aotc: Command) -> None:
    """First, last and some between, of each file there is: `verify` in this process is quick."""
    artifact, public = aotc.folder / "a.aotc", aotc.folder / "release.pub"
    for path in sorted(path for path in artifact.rglob("*") if path.is_file()):
        content = path.read_bytes()
        step = max(1, len(content) // 8)
        for index in {*range(0, len(content), step), len(content) - 1}:
            spoilt = bytearray(content)
            spoilt[index] ^= 1 << index % 8
            path.write_bytes(spoilt)
            report = verify(artifact, key=public)
            assert not report.authentic, (path, index)
            assert report.verdict == "unverified"
        path.write_bytes(content)
    assert verify(artifact, key=public).authentic


@pytest.mark.slow
def test_a_flipped_bit_in_every_byte_of_the_attestations(aotc: Command) -> None:
    artifact, public = aotc.folder / "a.aotc", aotc.folder / "release.pub"
    for path in sorted((artifact / "attestations").iterdir()):
        content = path.read_bytes()
        for index in range(len(content)):
            spoilt = bytearray(content)
            spoilt[index] ^= 1 << index % 8
            path.write_bytes(spoilt)
            assert not verify(artifact, key=public).authentic, (path.name, index)
        path.write_bytes(content)


def test_what_was_verified_is_what_runs(aotc: Command) -> None:
    """With a verified copy in the store, spoilt weights at the source change no answer."""
    words = ("run", "a.aotc", "--key", "release.pub")
    before = aotc(*words).document["runs"]
    path = file_of(aotc.folder / "a.aotc", "payload/shared_assets/*/weights.bin")
    path.write_bytes(b"\xff" * path.stat().st_size)
    after = aotc(*words).document["runs"]
    assert [run["outputs"] for run in after] == [run["outputs"] for run in before]
    assert judged(aotc).status == 1


def test_a_damaged_store_is_mended_from_the_source(aotc: Command) -> None:
    words = ("run", "a.aotc", "--key", "release.pub")
    before = aotc(*words).document
    (stored,) = aotc.store.glob("sha256-*")
    for name in ("payload/model/portable/model.onnx", "payload/aotc.json"):
        path = stored / name
        path.chmod(0o644)
        flip_bit(path)
        after = aotc(*words, "--variant", "portable")
        assert after.status == 0
        assert after.document["load"]["from_store"] is False
        outputs = [run["outputs"] for run in after.document["runs"]]
        assert len(outputs) == len(before["runs"])
    path = file_of(stored, "payload/shared_assets/*/weights.bin")
    for each in (path, file_of(aotc.folder / "a.aotc", "payload/shared_assets/*/weights.bin")):
        each.chmod(0o644)
        each.write_bytes(bytes(each.stat().st_size))
    outcome = aotc(*words)
    assert outcome.status == 1
    assert outcome.codes[0] == "AOTC-R006"
    assert "AOTC-G005" in outcome.codes


# -- files that are not the signed ones
@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(aotc: Command, name: str) -> None:
    path = file_of(aotc.folder / "a.aotc", name)
    path.unlink()
    if name == "payload/aotc.json":
        refused(aotc, "AOTC-G015", "AOTC-G006")
    elif name == "attestations/oms.sigstore.json":
        refused(aotc, "AOTC-G001")
    elif name.startswith("attestations/"):
        # An attestation may be added or taken away: the payload stays what it is.
        assert judged(aotc).status == 0
    else:
        outcome = refused(aotc, "AOTC-G006")
        assert outcome.first["where"] == str(path.relative_to(aotc.folder / "a.aotc"))


@pytest.mark.parametrize("place", ["payload", "payload/model/portable", "payload/new", ""])
def test_an_extra_file(aotc: Command, place: str) -> None:
    folder = aotc.folder / "a.aotc" / place
    folder.mkdir(exist_ok=True)
    (folder / ".extra").write_bytes(b"x")
    outcome = refused(aotc, "AOTC-G007")
    assert f"{place}/.extra".lstrip("/") in [each["where"] for each in outcome.document["refusals"]]


def test_an_extra_folder(aotc: Command) -> None:
    (aotc.folder / "a.aotc" / "payload" / "empty").mkdir()
    refused(aotc, "AOTC-G007")


def test_an_extra_attestation_that_is_none(aotc: Command) -> None:
    (aotc.folder / "a.aotc" / "attestations" / "notes.txt").write_text("hello")
    refused(aotc, "AOTC-G007", "AOTC-G004")


@pytest.mark.parametrize("name", [each for each in FILES if each.startswith("payload/")][::3])
def test_a_renamed_file(aotc: Command, name: str) -> None:
    path = file_of(aotc.folder / "a.aotc", name)
    path.rename(path.with_name("renamed"))
    outcome = refused(aotc, "AOTC-G006", "AOTC-G015")
    assert name == "payload/aotc.json" or {"AOTC-G006", "AOTC-G007"} <= set(outcome.codes)


def test_two_files_that_changed_places(aotc: Command) -> None:
    payload = aotc.folder / "a.aotc" / "payload"
    one, other = (payload / "fixtures" / "opt" / f"{name}_0.npy" for name in ("input", "output"))
    one.rename(payload / "between")
    other.rename(one)
    (payload / "between").rename(other)
    assert refused(aotc, "AOTC-G005").codes.count("AOTC-G005") >= 2


@pytest.mark.parametrize("name", FILES[1::3])
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hardlink"])
def test_a_link(aotc: Command, name: str, link: Callable[[Path, Path], None]) -> None:
    """To the very bytes that were signed, from outside of the artifact."""
    path = file_of(aotc.folder / "a.aotc", name)
    outside = aotc.folder / "outside"
    path.rename(outside)
    link(outside, path)
    outcome = refused(aotc, "AOTC-G008")
    assert outcome.first["where"] == str(path.relative_to(aotc.folder / "a.aotc"))


@pytest.mark.parametrize("name", ["payload", "attestations", "payload/model"])
def test_a_linked_folder(aotc: Command, name: str) -> None:
    path = aotc.folder / "a.aotc" / name
    path.rename(aotc.folder / "outside")
    path.symlink_to(aotc.folder / "outside")
    refused(aotc, "AOTC-G008", "AOTC-G015")


def test_a_pipe(aotc: Command) -> None:
    """Opening it must not wait for a writer."""
    path = aotc.folder / "a.aotc" / "payload" / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    refused(aotc, "AOTC-G008")


# -- signatures
def test_an_unknown_key(aotc: Command) -> None:
    assert aotc("keygen", "-o", "stranger.pem").status == 0
    for command in ("verify", "run"):
        aotc(command, "a.aotc", "--key", "stranger.pub").refused("AOTC-G002", 1)
        aotc(command, "a.aotc").refused("AOTC-G002", 1)


@pytest.mark.parametrize("content", [b"", b"garbage", b"{}", b"\xff" * 9])
def test_a_bundle_of_garbage(aotc: Command, content: bytes) -> None:
    (aotc.folder / "a.aotc/attestations/oms.sigstore.json").write_bytes(content)
    refused(aotc, "AOTC-G004")


def test_another_artifacts_signature(aotc: Command) -> None:
    save(linear(features=8), aotc.folder / "other.onnx")
    (aotc.folder / "release.pub").unlink()
    assert aotc("keygen", "-o", "release.pem").status == 0
    for name in ("a", "b"):
        model = save(linear(features=8 + len(name) * (name == "b")), aotc.folder / f"{name}.onnx")
        words = ("-o", f"{name}.aotc", "--key", "release.pem", "--force")
        assert aotc("build", model, *words).status == 0
    bundle = Path("attestations") / "oms.sigstore.json"
    shutil.copy(aotc.folder / "b.aotc" / bundle, aotc.folder / "a.aotc" / bundle)
    outcome = refused(aotc, "AOTC-G005")
    assert "payload/aotc.json" in [each["where"] for each in outcome.document["refusals"]]


# -- what a trusted signer signed all the same
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'{"', b'{"name":"twice","', "duplicate key"),
        (b'"ir_version":10', b'"ir_version":NaN', "NaN"),
        (b'"ir_version":10', b'"ir_version":1e999', "out of range"),
        (b'"ir_version":10', b'"ir_version":10,"ir_version":10', "duplicate key"),
        (b'"ir_version":10', b'"ir_version":"ten"', "expected an integer"),
    ],
)
def test_a_signed_manifest_with_two_readings(
    aotc: Command, old: bytes, new: bytes, says: str
) -> None:
    artifact = aotc.folder / "a.aotc"
    path = artifact / "payload" / "aotc.json"
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    signed_anew(artifact, aotc.folder)
    assert says in refused(aotc, "AOTC-G009").first["found"]


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("required_features", ["time-travel"], "AOTC-G011"),
        ("schema", "aotc.manifest/99.0", "AOTC-G010"),
        ("files", [], "AOTC-G009"),
        ("unheard_of", 1, "AOTC-G009"),
    ],
)
def test_a_signed_manifest_that_cannot_be_meant(
    aotc: Command, field: str, value: object, code: str
) -> None:
    artifact = aotc.folder / "a.aotc"
    path = artifact / "payload" / "aotc.json"
    document = json.loads(path.read_bytes())
    path.write_bytes(canonical_json({**document, field: value}))
    signed_anew(artifact, aotc.folder)
    assert code in refused(aotc, "AOTC-G009", code).codes


# -- no artifact at all
def test_no_artifact(aotc: Command) -> None:
    (aotc.folder / "empty").mkdir()
    for command in ("verify", "run", "inspect"):
        aotc(command, "none.aotc").refused("AOTC-I001", 3)
    for command in ("verify", "run"):
        aotc(command, "empty").refused("AOTC-G015", 1)
        aotc(command, "release.pub").refused("AOTC-G015", 1)


# -- where the packages of a build host are missing
_BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnxruntime", "numpy", "ml_dtypes"):
            raise ModuleNotFoundError("blocked: " + name, name=name)

sys.meta_path.insert(0, Blocker())
try:
    import onnx
except ImportError as error:
    assert str(error) == "blocked: onnx"
else:
    raise SystemExit("the blocker blocks nothing")
from aotc.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["verify", "a.aotc", "--key", "release.pub", "--full"], 0),
        (["verify", "a.aotc", "--key", "release.pub", "--target", "linux-arm64"], 1),
        (["inspect", "a.aotc"], 0),
        (["run", "a.aotc", "--key", "release.pub"], 3),
        (["build", "linear.onnx"], 3),
    ],
)
def test_a_host_without_onnx(aotc: Command, words: list[str], status: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", _BLOCKED, *words, "--json"],
        cwd=aotc.folder,
        env={**aotc.environment(), "PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (status, ""), result
    document = json.loads(result.stdout)
    if status == 3:
        assert document["errors"][0]["code"] == "AOTC-I019"


def test_loading_needs_onnxruntime_and_numpy_alone(aotc: Command) -> None:
    """As the help of a base install says: 'pip install onnxruntime' is enough to run."""
    others = '("onnx", "google", "ml_dtypes", "cyclonedx", "prometheus_client")'
    code = _BLOCKED.replace('("onnx", "onnxruntime", "numpy", "ml_dtypes")', others)
    assert others in code
    for words in (["run", "a.aotc"], ["bench", "a.aotc", "--runs", "1"]):
        result = subprocess.run(
            [sys.executable, "-c", code, *words, "--key", "release.pub", "--json"],
            cwd=aotc.folder,
            env={**aotc.environment(), "PYTHONPATH": str(TOOLCHAIN)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, ""), result
