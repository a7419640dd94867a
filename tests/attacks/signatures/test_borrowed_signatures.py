"""Signatures of one artifact, added to another one under every name that a file may have.

The signed type says what a bundle is, and the signed list says which files it is about.
"""

from __future__ import annotations

import shutil

import pytest
from artifact_builder import build_artifact, payload_digests
from policy_host import SIGNATURE, loaded
from policy_setting import Setting

from aotc.base.errors import AotcError
from aotc.trust import oms
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate, verify
from aotc.trust.policy.host_trust import resolve

# Names sorted before and after the artifact's own signature; the last is a name of a signature.
NAMES = ("a", "x", "evidence", "approval-prod-0000000000000000", "oms-0000000000000000")


def use_unlisted_signer(host: Setting) -> None:
    """Build the artifact with a key that may sign payloads but that no rule names."""
    shutil.rmtree(host.artifact)
    build_artifact(host.artifact, host.keys["stranger"], padding=4096)
    (host.artifact / "attestations" / "evidence.sigstore.json").unlink()
    host.policy["keys"].append(host.key("stranger", "oms"))
    host.write()


def borrowed(host: Setting, signer: str) -> bytes:
    """The signature of another artifact by `signer`."""
    other = build_artifact(host.folder / "other.aotc", host.keys[signer], padding=64)
    return (other / "attestations" / SIGNATURE).read_bytes()


def put(host: Setting, name: str, bundle: bytes) -> None:
    (host.artifact / "attestations" / f"{name}.sigstore.json").write_bytes(bundle)


def refused_by_the_gate(host: Setting) -> AotcError:
    with FolderContainer(host.artifact) as container, pytest.raises(AotcError) as caught:
        authenticate(container, resolve(host.path))
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_a_signature_of_another_artifact_meets_no_requirement(name: str, host: Setting) -> None:
    use_unlisted_signer(host)
    assert host.codes() == ["AOTC-G025", "AOTC-G026"]
    put(host, name, borrowed(host, "release"))
    report = host.verify()
    assert not report.authentic
    assert report.refusals[0].code == "AOTC-G014"
    assert report.policy is None or not report.policy.accepted
    assert refused_by_the_gate(host).code == "AOTC-G014"
    assert loaded(host) == "AOTC-G014"


@pytest.mark.parametrize("name", NAMES)
def test_a_signature_of_another_artifact_is_not_a_second_signer(name: str, host: Setting) -> None:
    host.policy["keys"].append({**host.key("security", "oms"), "id": "second"})
    host.policy["keys"] = [key for key in host.policy["keys"] if key["id"] != "security"]
    host.rule["require"] = [
        {"predicate": "oms", "signers": ["release", "second"], "threshold": 2},
    ]
    host.write()
    assert host.codes() == ["AOTC-G026"]
    put(host, name, borrowed(host, "security"))
    assert host.codes()[0] == "AOTC-G014"
    assert loaded(host) == "AOTC-G014"
    # By the same key over this payload it is a second signer, under the same name.
    put(host, name, oms.sign(payload_digests(host.artifact), host.keys["security"]))
    assert host.codes() == []
    assert loaded(host) == "native"


@pytest.mark.parametrize("name", NAMES)
def test_two_trusted_keys_without_a_policy(name: str, host: Setting) -> None:
    use_unlisted_signer(host)
    trust = host.folder / "trusted.pub"
    trust.write_text(host.keys["release"].public_pem + host.keys["stranger"].public_pem)
    assert verify(host.artifact, trust=trust).authentic
    put(host, name, borrowed(host, "release"))
    assert verify(host.artifact, trust=trust).refusals[0].code == "AOTC-G014"
    assert loaded(host, resolve(trust)) == "AOTC-G014"


@pytest.mark.parametrize("name", ["oms", "a"])
def test_a_borrowed_signature_alone(name: str, host: Setting) -> None:
    """The files are not those that it lists."""
    use_unlisted_signer(host)
    (host.artifact / "attestations" / SIGNATURE).unlink()
    put(host, name, borrowed(host, "release"))
    codes = set(host.codes())
    assert codes <= {"AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G009", "AOTC-G014"}
    assert codes & {"AOTC-G005", "AOTC-G006"}
    assert loaded(host) in codes


@pytest.mark.parametrize("name", ["oms", "oms-prod", "oms-0000000000000000"])
def test_an_approval_under_the_name_of_a_signature(name: str, host: Setting) -> None:
    """Its key is trusted, so its own type counts: it is not a signature."""
    host.write()
    assert host.codes() == []
    host.approve("ops", name=name)
    codes = host.codes()
    assert codes[0] == "AOTC-G004"
    assert loaded(host) == "AOTC-G004"


@pytest.mark.parametrize("name", ["signature", "approval-prod-0000000000000000", "evidence"])
def test_a_signature_counts_by_its_type(name: str, host: Setting) -> None:
    host.write()
    for path in (host.artifact / "attestations").iterdir():
        path.unlink()
    assert host.codes() == ["AOTC-G001"]
    put(host, name, oms.sign(payload_digests(host.artifact), host.keys["release"]))
    report = host.verify()
    assert report.authentic
    assert report.signers == (host.keys["release"].key_id,)
    assert report.policy is not None
    (requirement,) = report.policy.requirements
    (considered,) = requirement.considered
    assert considered.path == f"attestations/{name}.sigstore.json"
    assert loaded(host) == "native"


def test_one_signature_under_two_names_is_one_signer(host: Setting) -> None:
    host.policy["keys"].append({**host.key("security", "oms"), "id": "second"})
    host.policy["keys"] = [key for key in host.policy["keys"] if key["id"] != "security"]
    host.rule["require"] = [
        {"predicate": "oms", "signers": ["release", "second"], "threshold": 2},
    ]
    host.write()
    put(host, "x", (host.artifact / "attestations" / SIGNATURE).read_bytes())
    assert host.codes() == ["AOTC-G026"]
    assert loaded(host) == "AOTC-G026"
