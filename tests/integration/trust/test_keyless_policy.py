"""An artifact that a keyless identity vouches for, under a policy that knows the identity."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sigstore")

import yaml
from built_artifact import BuiltArtifact
from keyless_world import World
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier

from aotc import load, verify
from aotc.base.errors import AotcError
from aotc.runtime.qualification import qualify
from aotc.trust import key_files
from aotc.trust.attesting import approve, sign
from aotc.trust.key_loading import PrivateKey, load_private
from aotc.trust.policy import roots

WHO = "https://example.com/release/.github/workflows/release.yml@refs/tags/v1"
ISSUER = "https://token.example.com"


@dataclass(frozen=True)
class Site:
    """The artifact, the policy about it, and somebody who attests to it."""

    artifact: Path
    policy: Path
    ops: PrivateKey

    def write(self, **identity: Any) -> None:
        """The policy: the identity signs payloads, and ops approves and qualifies."""
        document = {
            "schema": "aotc.trust/1",
            "name": "site",
            "sequence": 1,
            "expires": "2099-01-01T00:00:00Z",
            "keys": [
                {
                    "id": "ops",
                    "pem": self.ops.public_pem,
                    "usage": ["oms", "approval", "qualification"],
                }
            ],
            "identities": [
                {"id": "ci", "identity": WHO, "issuer": ISSUER, "usage": ["oms"], **identity}
            ],
            "rules": [
                {
                    "name": "digits",
                    "match": {"name": "digits"},
                    "require": [
                        {"predicate": "oms", "signers": ["ci"]},
                        {"predicate": "approval", "signers": ["ops"]},
                    ],
                }
            ],
        }
        self.policy.write_text(yaml.safe_dump(document))

    def codes(self) -> list[str]:
        report = verify(self.artifact, trust=self.policy, channel="prod")
        return [refusal.code for refusal in report.refusals]

    def attestations(self) -> list[str]:
        return sorted(path.name for path in (self.artifact / "attestations").iterdir())


@pytest.fixture
def site(digits: BuiltArtifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Only the identity vouches for the payload; the sigstore instance is a private one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("AOTC_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", tmp_path / "etc" / "root.yaml")
    world = World.new()
    trusted = TrustedRoot.from_file(str(world.write_trusted_root(tmp_path / "trusted_root.json")))
    monkeypatch.setattr(Verifier, "production", lambda *, offline: Verifier(trusted_root=trusted))
    shutil.copytree(digits.path, tmp_path / "a.aotc")
    place = tmp_path / "a.aotc" / "attestations"
    signed = json.loads((place / "oms.sigstore.json").read_bytes())
    statement = json.loads(base64.b64decode(signed["dsseEnvelope"]["payload"]))
    for path in place.iterdir():
        path.unlink()
    bundle = world.bundle(statement, WHO, ISSUER)
    (place / "oms.sigstore.json").write_text(json.dumps(bundle))
    ops = load_private(key_files.generate(tmp_path / "ops.pem")[0])
    result = Site(tmp_path / "a.aotc", tmp_path / "trust.yaml", ops)
    result.write()
    yield result
    for path in (tmp_path / "store").rglob("*"):
        if path.is_dir():
            path.chmod(0o700)


def _approve(site: Site) -> object:
    return approve(site.artifact, site.ops, channel="prod", expires="2099-01-01", trust=site.policy)


def _sign(site: Site) -> object:
    return sign(site.artifact, site.ops, trust=site.policy)


def _qualify(site: Site) -> object:
    return qualify(site.artifact, site.ops, trust=site.policy, runs=1)


ATTESTING = {"approve": _approve, "sign": _sign, "qualify": _qualify}
Attest = Callable[[Site], object]


@pytest.mark.parametrize("attest", ATTESTING.values(), ids=ATTESTING.keys())
def test_what_an_identity_vouches_for_is_attested(attest: Attest, site: Site) -> None:
    before = site.attestations()
    attest(site)
    assert len(site.attestations()) == len(before) + 1


def test_what_an_identity_vouches_for_is_loaded_once_it_is_approved(site: Site) -> None:
    assert site.codes() == ["AOTC-G025"]
    _approve(site)
    assert site.codes() == []
    with load(site.artifact, trust=site.policy, channel="prod") as model:
        assert model.ready


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"revoked": "the workflow was taken over"}, "AOTC-G028"),
        ({"valid_until": "2026-01-01T00:00:00Z"}, "AOTC-G028"),
        ({"identity": "https://example.com/other"}, "AOTC-G002"),
        ({"issuer": "https://other.example.com"}, "AOTC-G002"),
    ],
    ids=["revoked", "expired", "another identity", "another issuer"],
)
@pytest.mark.parametrize("attest", ATTESTING.values(), ids=ATTESTING.keys())
def test_an_identity_that_does_not_count_vouches_for_nothing(
    attest: Attest, change: dict[str, str], code: str, site: Site
) -> None:
    site.write(**change)
    before = site.attestations()
    assert code in site.codes()
    with pytest.raises(AotcError) as caught:
        attest(site)
    assert caught.value.code == code
    assert site.attestations() == before
