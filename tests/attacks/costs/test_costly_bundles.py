"""Bundles and documents without a trusted signer, made to cost much time or memory before refusal.

Nothing trusted signed them, so none may cost more than a bounded number of steps.  The tests count
work, never time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from artifact_builder import payload_digests, sign_artifact
from cryptography.hazmat.primitives.serialization import Encoding
from made_certificates import Issued, authority, leaf, p256, public_pem
from policy_host import SIGNATURE, loaded, resign
from policy_setting import Setting

from aotc.base.errors import AotcError
from aotc.spec.codec import ParseError
from aotc.spec.json import MAX_VALUES, canonical_json, strict_json
from aotc.spec.reports import VerifyReport
from aotc.spec.trust_anchors import key_id
from aotc.trust import certificates, dsse, oms
from aotc.trust.authenticity import MAX_REFUSALS
from aotc.trust.container import MAX_BUNDLES_BYTES, FolderContainer
from aotc.trust.gate import verify
from aotc.trust.key_loading import PrivateKey
from aotc.trust.policy.host_trust import resolve

MAX_CHECKS = 32
MAX_REPORTED = 20


def put(host: Setting, name: str, bundle: bytes) -> None:
    (host.artifact / "attestations" / f"{name}.sigstore.json").write_bytes(bundle)


def by_key(host: Setting, signer: str = "release") -> VerifyReport:
    return verify(host.artifact, key=host.folder / f"{signer}.pub")


@pytest.fixture(autouse=True)
def write_public_keys(host: Setting) -> None:
    for name in ("release", "stranger"):
        (host.folder / f"{name}.pub").write_text(host.keys[name].public_pem)


# Certificates that seem to have issued each other.


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list with one item for each check of a certificate's signature."""
    made: list[int] = []
    issued = certificates._issued

    def counting(child: Any, parent: Any) -> bool:
        made.append(1)
        return issued(child, parent)

    monkeypatch.setattr(certificates, "_issued", counting)
    return made


def one_key() -> list[Issued]:
    """All are signed by one key, so that every order of them is a path."""
    secret = p256()
    own = authority("company", secret=secret)
    return [leaf(own), *(authority("company", own, secret) for _ in range(7))]


def keys_of_their_own() -> list[Issued]:
    """Each is self-issued; the names fit, but no signature does."""
    return [leaf(authority("company")), *(authority("company") for _ in range(7))]


def two_names() -> list[Issued]:
    """Each is issued by every certificate of the other name."""
    secret = p256()
    first, second = authority("company", secret=secret), authority("subsidiary", secret=secret)
    below = [authority("subsidiary", first, secret) for _ in range(4)]
    return [leaf(second), *below, *(authority("company", second, secret) for _ in range(3))]


MAZES: dict[str, Callable[[], list[Issued]]] = {
    "one key": one_key,
    "keys of their own": keys_of_their_own,
    "two names": two_names,
}


@pytest.mark.parametrize("trusted", [1, 40])
@pytest.mark.parametrize("maze", MAZES)
def test_a_maze_of_certificates(maze: str, trusted: int, checks: list[int]) -> None:
    chain = [issued.certificate.public_bytes(Encoding.DER) for issued in MAZES[maze]()]
    assert len(chain) == 8
    anchors = [authority("company").authority for _ in range(trusted)]
    with pytest.raises(AotcError) as caught:
        certificates.verify_chain(chain, anchors)
    assert caught.value.code in ("AOTC-G037", "AOTC-G038")
    assert 0 < len(checks) <= MAX_CHECKS


@pytest.mark.parametrize("maze", MAZES)
def test_a_maze_of_certificates_in_an_artifact(maze: str, host: Setting, checks: list[int]) -> None:
    made = MAZES[maze]()
    resign(host, made[0].signer(*made[1:]))
    company = authority("company")
    host.policy["authorities"] = [{"id": "ca", "pem": company.pem, "usage": ["oms"]}]
    host.rule["require"] = [{"predicate": "oms", "signers": ["ca"]}]
    host.write()
    assert set(host.codes()) <= {"AOTC-G037", "AOTC-G038"}
    assert 0 < len(checks) <= MAX_CHECKS
    assert loaded(host) in ("AOTC-G037", "AOTC-G038")


def test_the_path_through_a_small_maze_is_found(checks: list[int]) -> None:
    """A renewed CA appears twice, which is not an attack."""
    root, secret = authority("root"), p256()
    lower = [authority("lower", root, secret) for _ in range(3)]
    chain = [
        issued.certificate.public_bytes(Encoding.DER) for issued in (leaf(lower[0]), *lower, root)
    ]
    assert certificates.verify_chain(chain, [root.authority]).subject == "CN=release"
    assert len(checks) <= MAX_CHECKS


# Unknown names.


def crowded(*path: Any) -> bytes:
    """A bundle with 9 000 additional fields in one of its objects."""
    secret = p256()
    pem = public_pem(secret)
    key = PrivateKey(pem, key_id(pem), False, secret)
    document = json.loads(oms.sign({"aotc.json": "2" * 64}, key))
    place = document
    for name in path:
        place = place[name]
    place.update({f"unknown-{number:x}": 0 for number in range(9_000)})
    return json.dumps(document).encode()


PLACES: dict[str, tuple[Any, ...]] = {
    "bundle": (),
    "material": ("verificationMaterial",),
    "key": ("verificationMaterial", "publicKey"),
    "envelope": ("dsseEnvelope",),
    "signature": ("dsseEnvelope", "signatures", 0),
}


@pytest.mark.parametrize("place", PLACES)
def test_very_many_unknown_fields(place: str) -> None:
    with pytest.raises(AotcError) as caught:
        dsse.parse(crowded(*PLACES[place]))
    assert caught.value.code == "AOTC-G004"
    assert len(caught.value.also) <= MAX_REPORTED


def test_very_many_unknown_fields_in_an_artifact(host: Setting) -> None:
    put(host, "x", crowded())
    report = by_key(host)
    assert {refusal.code for refusal in report.refusals} == {"AOTC-G004"}
    assert len(report.refusals) <= MAX_REPORTED + 1
    assert loaded(host, resolve(key=host.folder / "release.pub")) == "AOTC-G004"


def test_a_long_name_is_cut() -> None:
    with pytest.raises(AotcError) as caught:
        dsse.parse(json.dumps({"n" * (1 << 20): 0}).encode())
    assert caught.value.code == "AOTC-G004"
    assert all(len(error.line()) < 1000 for error in (caught.value, *caught.value.also))


# Bundles that are large together, each of them within its limit.


def test_bundles_that_are_too_large_together(
    host: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [dsse.MAX_BUNDLE_BYTES] * 3
    assert sum(sizes) > MAX_BUNDLES_BYTES
    for number, size in enumerate(sizes):
        put(host, f"z{number}", b"")
        # A sparse file of zeros.
        with (host.artifact / "attestations" / f"z{number}.sigstore.json").open("r+b") as file:
            file.truncate(size)
    read: list[str] = []
    plain = FolderContainer.read

    def noting(container: FolderContainer, path: str, limit: int) -> bytes:
        read.append(path)
        return plain(container, path, limit)

    monkeypatch.setattr(FolderContainer, "read", noting)
    assert [refusal.code for refusal in by_key(host).refusals] == ["AOTC-G012"]
    assert not any(path.startswith("attestations/") for path in read)
    assert loaded(host, resolve(key=host.folder / "release.pub")) == "AOTC-G012"
    assert not any(path.startswith("attestations/") for path in read)


def test_one_bundle_that_is_too_large(host: Setting) -> None:
    put(host, "z", b"")
    with (host.artifact / "attestations" / "z.sigstore.json").open("r+b") as file:
        file.truncate(dsse.MAX_BUNDLE_BYTES + 1)
    assert [refusal.code for refusal in by_key(host).refusals] == ["AOTC-G012"]


# JSON of a few bytes that needs much memory.


@pytest.mark.parametrize("item", [b"{},", b"[],", b"0,", b'"",'])
def test_too_many_values_are_refused_before_they_are_parsed(item: bytes) -> None:
    # The text is not complete: parsing it would report a syntax error.
    with pytest.raises(ParseError) as caught:
        strict_json(b"[" + item * (MAX_VALUES + 1))
    assert [problem.what for problem in caught.value.problems] == [f"more than {MAX_VALUES} values"]


def test_a_million_values_are_read() -> None:
    found = strict_json(b"[" + b"0," * (MAX_VALUES - 1) + b"0]")
    assert len(found) == MAX_VALUES
    with pytest.raises(ParseError):
        strict_json(b"[" + b"0," * MAX_VALUES + b"0]")


@pytest.mark.parametrize("name", ["aotc.json", "manifest.json"])
def test_a_document_of_too_many_values(name: str, host: Setting) -> None:
    (host.artifact / "payload" / name).write_bytes(b"[" + b"{}," * MAX_VALUES + b"{}]")
    sign_artifact(host.artifact, host.keys["release"])
    report = by_key(host)
    malformed = [refusal for refusal in report.refusals if refusal.code == "AOTC-G009"]
    assert [f"more than {MAX_VALUES} values" in refusal.found for refusal in malformed] == [True]
    assert loaded(host, resolve(key=host.folder / "release.pub")) == "AOTC-G009"


def test_a_bundle_of_too_many_values(host: Setting) -> None:
    put(host, "x", b"[" + b"{}," * MAX_VALUES + b"{}]")
    (refusal,) = by_key(host).refusals
    assert refusal.code == "AOTC-G004"
    assert f"more than {dsse.MAX_BUNDLE_VALUES} values" in refusal.found


# Statements of an unknown signer.


def unknown_statement(resources: list[Any]) -> bytes:
    """A list of files that claims to be signed by an unknown key."""
    statement = {
        "_type": oms.STATEMENT_TYPE,
        "subject": [{"name": "payload", "digest": {"sha256": "0" * 64}}],
        "predicateType": oms.PREDICATE_TYPE,
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256"},
            "resources": resources,
        },
    }
    text = base64.b64encode(canonical_json(statement)).decode()
    return canonical_json(
        {
            "mediaType": dsse.BUNDLE_MEDIA_TYPE,
            "verificationMaterial": {"publicKey": {"hint": "0" * 64}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": text,
                "payloadType": dsse.IN_TOTO,
                "signatures": [{"keyid": "", "sig": "MEUC" + "A" * 92}],
            },
        }
    )


WRONG = {"nama": "a", "digist": "b", "algorthm": "c"}


def hints(report: VerifyReport) -> list[str]:
    """Refusals that suggest a field name; finding a suggestion takes long."""
    texts = [refusal.found for refusal in report.refusals]
    return [text for text in texts if "did you mean" in text or "known:" in text]


def test_wrong_fields_of_an_unknown_signer(host: Setting) -> None:
    """Alone, it is read; only the first problems may suggest names."""
    for path in (host.artifact / "attestations").iterdir():
        path.unlink()
    put(host, "oms", unknown_statement([WRONG] * 5000))
    report = by_key(host)
    assert not report.authentic
    assert {refusal.code for refusal in report.refusals} <= {"AOTC-G002", "AOTC-G004"}
    assert len(report.refusals) <= MAX_REFUSALS
    assert len(hints(report)) <= MAX_REPORTED
    assert loaded(host, resolve(key=host.folder / "release.pub")) in ("AOTC-G002", "AOTC-G004")


def test_wrong_fields_of_an_unknown_signer_besides_a_good_signature(host: Setting) -> None:
    """There is a trusted signature, so the unknown signer's list is not read at all."""
    put(host, "oms-x", unknown_statement([WRONG] * 5000))
    report = by_key(host)
    assert report.authentic
    assert [finding.code for finding in report.findings] == ["AOTC-G018"]
    assert loaded(host, resolve(key=host.folder / "release.pub")) == "native"


def test_long_names_of_an_unknown_signer(host: Setting) -> None:
    (host.artifact / "attestations" / SIGNATURE).unlink()
    put(host, "oms", unknown_statement([{f"nam{'e' * 2000}{number}": ""} for number in range(500)]))
    report = by_key(host)
    assert not report.authentic
    assert hints(report) == []


def test_a_long_list_of_an_unknown_signer_is_not_read(host: Setting) -> None:
    (host.artifact / "attestations" / "evidence.sigstore.json").unlink()
    put(host, "oms", unknown_statement([WRONG] * 120_000))
    assert [refusal.code for refusal in by_key(host).refusals] == ["AOTC-G002"]


def test_as_many_files_as_a_bundle_can_list(host: Setting) -> None:
    """Well-formed, by an unknown signer: missing files are reported up to a limit."""
    digests = {f"f{number}": "1" * 64 for number in range(20_000)}
    put(host, "oms", oms.sign(payload_digests(host.artifact) | digests, host.keys["stranger"]))
    report = by_key(host)
    assert not report.authentic
    assert report.refusals[0].code == "AOTC-G002"
    assert len(report.refusals) <= MAX_REFUSALS
