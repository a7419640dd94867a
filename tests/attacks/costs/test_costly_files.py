"""Payload files that are made to take long: none is read unless a trusted key signed its size.

The tests count what is opened and hashed, never time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from artifact_builder import payload_digests
from policy_host import resign
from policy_setting import Setting

from aotc.base.errors import AotcError
from aotc.runtime.store.user_store import Store
from aotc.spec.reports import VerifyReport
from aotc.trust import oms
from aotc.trust.attesting import authenticate_artifact
from aotc.trust.container import FolderContainer
from aotc.trust.gate import verify
from aotc.trust.packing import pack
from aotc.trust.policy.host_trust import resolve

# A sparse file of zeros, which a digest must still read.
HUGE = 8 << 30


@pytest.fixture
def host(host: Setting) -> Setting:
    for name in ("release", "stranger"):
        (host.folder / f"{name}.pub").write_text(host.keys[name].public_pem)
    return host


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files that were opened, except documents that are read into memory."""
    found: list[str] = []
    plain = FolderContainer.open

    def noting(container: FolderContainer, path: str) -> object:
        if path.startswith("payload/") and not path.endswith(".json"):
            found.append(path)
        return plain(container, path)

    monkeypatch.setattr(FolderContainer, "open", noting)
    return found


def weights(host: Setting) -> Path:
    return next(host.artifact.rglob("weights.bin"))


def grow(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(HUGE)


def by_release(host: Setting, *, full: bool = False) -> VerifyReport:
    return verify(host.artifact, key=host.folder / "release.pub", full=full)


def by_a_stranger(host: Setting) -> None:
    resign(host, host.keys["stranger"])


def by_nobody(host: Setting) -> None:
    for path in (host.artifact / "attestations").iterdir():
        path.unlink()


def by_a_broken_signature(host: Setting) -> None:
    path = host.artifact / "attestations" / "oms.sigstore.json"
    bundle = json.loads(path.read_bytes())
    bundle["dsseEnvelope"]["payload"] = bundle["dsseEnvelope"]["payload"][:-8] + "AAAAAAA="
    path.write_text(json.dumps(bundle))


def by_a_manifest_that_was_not_signed(host: Setting) -> None:
    """The signature is valid; without the signed manifest nothing states the size of the file."""
    path = host.artifact / "payload" / "aotc.json"
    path.write_bytes(path.read_bytes() + b" ")


def by_no_manifest(host: Setting) -> None:
    (host.artifact / "payload" / "aotc.json").unlink()


SWAPS = [
    by_a_stranger,
    by_nobody,
    by_a_broken_signature,
    by_a_manifest_that_was_not_signed,
    by_no_manifest,
]


@pytest.mark.parametrize("full", [False, True], ids=["", "full"])
@pytest.mark.parametrize("swap", SWAPS)
def test_no_large_file_is_read_without_a_trusted_signature(
    swap: Callable[[Setting], None], full: bool, host: Setting, opened: list[str]
) -> None:
    grow(weights(host))
    swap(host)
    report = by_release(host, full=full)
    assert not report.authentic
    assert report.hashed_bytes < 1 << 20
    assert opened == []
    # What was not checked is not reported as correct.
    assert report.steps[3].status in ("failed", "not-run")
    assert "hashed" in report.steps[3].detail


@pytest.mark.parametrize("swap", SWAPS)
def test_loads_installs_and_attestations_read_none_as_well(
    swap: Callable[[Setting], None], host: Setting, opened: list[str]
) -> None:
    grow(weights(host))
    swap(host)
    store = host.folder / "store"
    with pytest.raises(AotcError) as caught:
        Store(store).install(host.artifact, resolve(key=host.folder / "release.pub"))
    assert caught.value.code.startswith("AOTC-G")
    with pytest.raises(AotcError) as caught:
        authenticate_artifact(host.artifact, host.keys["release"], host.folder / "release.pub")
    assert caught.value.code.startswith("AOTC-G")
    assert [path for path in opened if path.endswith("weights.bin")] == []
    assert not list(store.glob("sha256-*"))


def test_a_file_that_grew_is_recognized_by_its_size(host: Setting) -> None:
    """A trusted key signed the manifest, and the manifest states the size."""
    grow(weights(host))
    report = by_release(host)
    (refusal,) = report.refusals
    assert (refusal.code, refusal.found) == ("AOTC-G005", f"{HUGE} bytes")
    assert report.hashed_bytes < 1 << 20


def test_a_signed_file_that_no_manifest_lists_is_not_read(host: Setting, opened: list[str]) -> None:
    extra = host.artifact / "payload" / "extra.bin"
    extra.write_bytes(b"x")
    digests = payload_digests(host.artifact)
    grow(extra)
    bundle = oms.sign(digests, host.keys["release"])
    (host.artifact / "attestations" / "oms.sigstore.json").write_bytes(bundle)
    report = by_release(host)
    assert [(refusal.code, refusal.where) for refusal in report.refusals] == [
        ("AOTC-G014", "extra.bin")
    ]
    assert "payload/extra.bin" not in opened
    assert report.steps[3].status == "not-run"


def test_a_packed_artifact_of_an_unknown_signer_is_not_read(host: Setting, tmp_path: Path) -> None:
    by_a_stranger(host)
    pack(host.artifact, packed := tmp_path / "a.zip")
    report = verify(packed, key=host.folder / "release.pub", full=True)
    assert [refusal.code for refusal in report.refusals] == ["AOTC-G002"]
    assert report.hashed_bytes == 0
