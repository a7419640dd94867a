"""Pushes to registries that refuse, break off, lie or lead elsewhere: whole, or not at the tag."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from referrers_registry import Fault, ReferrersRegistry, referrers_registry
from registries import log_in
from shops import NAME, PADDING

import aotc
from aotc.base.errors import AotcError
from aotc.registry import connection, uploads
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

UPLOAD = rf"(PUT|PATCH) /v2/{NAME}/blobs/uploads/"
MANIFEST = rf"PUT /v2/{NAME}/manifests/"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An artifact, and the key of its signer."""
    folder = tmp_path_factory.mktemp("artifact")
    private, public = generate(folder / "release.pem")
    return build_artifact(folder / "a.aotc", load_private(private), padding=PADDING), public


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReferrersRegistry]:
    for module in (connection, uploads):
        monkeypatch.setattr(module, "pause", lambda *_: None)
    with referrers_registry() as opened:
        yield opened


def reference(registry: ReferrersRegistry) -> str:
    return f"oci://{registry.host}/{NAME}:1"


FAULTS = {
    "who are you": (Fault("POST", status=401), "AOTC-I199"),
    "not you": (Fault("POST", status=403), "AOTC-I199"),
    "read-only": (Fault("POST", status=405), "AOTC-I202"),
    "too large": (Fault(UPLOAD, status=413), "AOTC-I202"),
    "no room": (Fault(UPLOAD, status=507), "AOTC-I202"),
    "too many requests": (Fault(UPLOAD, status=429, headers={"Retry-After": "0"}), "AOTC-I202"),
    "down": (Fault("POST", status=503), "AOTC-I202"),
    "no place to upload to": (Fault("POST", headers={"Location": None}), "AOTC-I207"),
    "an upload elsewhere": (Fault("POST", headers={"Location": "ftp://x/y"}), "AOTC-I203"),
    "no manifest is taken": (Fault(MANIFEST, status=400), "AOTC-I202"),
    "no tag is taken": (Fault(MANIFEST + "1$", status=403), "AOTC-I199"),
    "another manifest is kept": (
        Fault(MANIFEST, headers={"Docker-Content-Digest": "sha256:" + "0" * 64}),
        "AOTC-I205",
    ),
    "each upload is cut": (Fault(UPLOAD, cut_after=0), "AOTC-I204"),
}


@pytest.mark.parametrize("row", FAULTS)
def test_a_push_that_fails_leaves_no_tag(
    registry: ReferrersRegistry, artifact: tuple[Path, Path], row: str
) -> None:
    fault, code = FAULTS[row]
    registry.faults.append(fault)
    with pytest.raises(AotcError) as caught:
        aotc.push(artifact[0], reference(registry))
    assert caught.value.code == code, caught.value
    assert registry.repo(NAME).tags == {}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(UPLOAD, cut_after=100_000, times=3),
        Fault("POST", status=503, times=2),
        Fault(UPLOAD, status=429, headers={"Retry-After": "0"}, times=2),
        Fault(MANIFEST, status=502, times=2),
    ],
    ids=["cut", "down", "too many requests", "a gateway"],
)
@pytest.mark.parametrize("resumes", [True, False])
def test_a_push_gets_over(
    registry: ReferrersRegistry,
    artifact: tuple[Path, Path],
    tmp_path: Path,
    fault: Fault,
    resumes: bool,
) -> None:
    registry.resumes = resumes
    registry.faults.append(Fault(**vars(fault)))
    aotc.push(artifact[0], reference(registry))
    aotc.pull(reference(registry), key=artifact[1], output=tmp_path / "again.aotc")
    assert contents_of(tmp_path / "again.aotc") == contents_of(artifact[0])


def test_an_upload_on_another_host_gets_no_login(
    registry: ReferrersRegistry,
    artifact: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some registries take uploads at a service of their own, by addresses that allow it."""
    registry.auth = "basic"
    monkeypatch.setenv("DOCKER_CONFIG", str(log_in(tmp_path, registry.host)))
    with referrers_registry() as other:
        place = f"http://{other.host}/v2/{NAME}/blobs/uploads/1"
        registry.faults.append(Fault("POST", headers={"Location": place}))
        with pytest.raises(AotcError):
            aotc.push(artifact[0], reference(registry))
        assert other.asked
        for asked in other.asked:
            names = {name.lower() for name in asked.headers}
            assert not {"authorization", "cookie", "proxy-authorization"} & names
    assert registry.repo(NAME).tags == {}


def test_a_changed_file_is_not_pushed(
    registry: ReferrersRegistry, artifact: tuple[Path, Path], tmp_path: Path
) -> None:
    """Weights, and a small file: what is pushed is what the manifest lists."""
    for name in ("weights.bin", "x.npy"):
        changed = Path(shutil.copytree(artifact[0], tmp_path / name))
        (path,) = changed.rglob(name)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(AotcError) as caught:
            aotc.push(changed, reference(registry))
        assert caught.value.code == "AOTC-G005"
        assert name in caught.value.where
    assert registry.repo(NAME).tags == {}
