"""Bundles, statements and manifests that lie or are ambiguous, in an artifact that was built.

Each attack damages a copy; verify reports its code, and load refuses before any session is created.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacked_artifact import Attacked, built_artifact, forbid_sessions
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from aotc import load
from aotc.trust import dsse
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

NONE, UNKNOWN, WRONG, BUNDLE = "AOTC-G001", "AOTC-G002", "AOTC-G003", "AOTC-G004"
CHANGED, MISSING, UNLISTED, MANIFEST = "AOTC-G005", "AOTC-G006", "AOTC-G007", "AOTC-G009"
LIMITS = "AOTC-G012"
# SEC 2, section 2.4.2: the order of the group of P-256.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SURROGATE = "\ud800"
Attack = Callable[[Attacked], object]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attacked:
    copy = built_artifact().copy(tmp_path)
    forbid_sessions(monkeypatch)
    return copy


def signature(target: Attacked) -> bytes:
    return base64.b64decode(target.envelope["dsseEnvelope"]["signatures"][0]["sig"])


def resigned(change: Callable[[bytes], bytes]) -> Attack:
    """Another signature in place of the good one."""

    def attack(target: Attacked) -> None:
        text = base64.b64encode(change(signature(target))).decode()
        target.edit(lambda b: b["dsseEnvelope"]["signatures"][0].update(sig=text))

    return attack


def bundle(change: Callable[[Any], object]) -> Attack:
    """Another bundle around the same signature."""
    return lambda target: target.edit(change)


def stated(change: Callable[[Any], object]) -> Attack:
    """Another statement, signed by the trusted key."""
    return lambda target: target.state(change)


def listed(**changes: Any) -> Attack:
    """The statement's first file has other fields."""
    return stated(lambda s: s["predicate"]["resources"][0].update(changes))


def _text_of(target: Attacked, place: str) -> str:
    if place == "bundle":
        return target.bundle.read_text()
    if place == "statement":
        return json.dumps(target.statement)
    return (target.payload / "aotc.json").read_text()


def first_field(place: str, text: str) -> Attack:
    """Put `text` as the first field of the JSON at `place`, and sign what must be signed."""

    def attack(target: Attacked) -> None:
        made = ("{" + text + "," + _text_of(target, place)[1:]).encode()
        if place == "bundle":
            target.bundle.write_bytes(made)
        elif place == "statement":
            target.sign_bytes(made)
        else:
            target.sign_manifest(made)

    return attack


def _other_key(target: Attacked) -> bytes:
    """A signature over the same bytes by a key that nobody trusts."""
    key = load_private(generate(target.path.with_name("evil.pem"))[0])
    payload = base64.b64decode(target.envelope["dsseEnvelope"]["payload"])
    return key.sign(dsse.pae(dsse.IN_TOTO, payload))


def good_and_bad(*order: str) -> Attack:
    """A list of signatures of which one is good."""

    def attack(target: Attacked) -> None:
        made = {"good": signature(target), "bad": _other_key(target)}
        entries = [{"sig": base64.b64encode(made[name]).decode()} for name in order]
        target.edit(lambda b: b["dsseEnvelope"].update(signatures=entries))

    return attack


def _relabelled_payload(target: Attacked) -> None:
    """Sign it correctly, as a payload of another type."""
    target.sign_bytes(json.dumps(target.statement).encode(), "application/json")


def _another_bundle_as_oms(target: Attacked) -> None:
    target.bundle.with_name("provenance.sigstore.json").replace(target.bundle)


def _of_the_other_artifact(target: Attacked) -> None:
    target.bundle.write_bytes((target.other / "attestations/oms.sigstore.json").read_bytes())


def _by_another_key(target: Attacked) -> None:
    text = base64.b64encode(_other_key(target)).decode()
    target.edit(lambda b: b["dsseEnvelope"]["signatures"][0].update(sig=text))
    target.edit(lambda b: b["verificationMaterial"].update(publicKey={"hint": "0" * 64}))


SIGNATURES: dict[str, tuple[Attack, tuple[str, ...]]] = {
    "absent": (lambda t: t.bundle.unlink(), (NONE,)),
    "folder absent": (
        lambda t: [p.unlink() for p in t.bundle.parent.iterdir()] and t.bundle.parent.rmdir(),
        (NONE,),
    ),
    "empty file": (lambda t: t.bundle.write_bytes(b""), (BUNDLE,)),
    "empty mapping": (lambda t: t.bundle.write_bytes(b"{}"), (BUNDLE,)),
    "empty signature": (resigned(lambda good: b""), (WRONG,)),
    "r and s of zero": (resigned(lambda good: encode_dss_signature(0, 0)), (WRONG,)),
    "trailing DER": (resigned(lambda good: good + b"\x05\x00"), (WRONG,)),
    "truncated": (resigned(lambda good: good[:-1]), (WRONG,)),
    "truncated file": (lambda t: t.bundle.write_bytes(t.bundle.read_bytes()[:-1]), (BUNDLE,)),
    "two documents": (lambda t: t.bundle.write_bytes(t.bundle.read_bytes() * 2), (BUNDLE,)),
    "by another key": (_by_another_key, (UNKNOWN,)),
    "good, bad": (good_and_bad("good", "bad"), (BUNDLE,)),
    "bad, good": (good_and_bad("bad", "good"), (BUNDLE,)),
    "good, good": (good_and_bad("good", "good"), (BUNDLE,)),
    "no signature": (good_and_bad(), (BUNDLE,)),
    "another payloadType": (
        bundle(lambda b: b["dsseEnvelope"].update(payloadType="application/json")),
        (BUNDLE,),
    ),
    "another payloadType, signed": (_relabelled_payload, (BUNDLE,)),
    "another mediaType": (bundle(lambda b: b.update(mediaType="application/json")), (BUNDLE,)),
    "another predicateType, signed": (
        stated(lambda s: s.update(predicateType="https://slsa.dev/provenance/v1")),
        (BUNDLE,),
    ),
    "another statement type, signed": (
        stated(lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")),
        (BUNDLE,),
    ),
    "provenance as signature": (_another_bundle_as_oms, (BUNDLE,)),
    "of another artifact": (_of_the_other_artifact, (CHANGED, MISSING, UNLISTED)),
}

# Texts that are not digests; each statement is signed by the trusted key.
DIGESTS: dict[str, tuple[Attack, tuple[str, ...]]] = {
    "upper case": (
        stated(lambda s: [r.update(digest=r["digest"].upper()) for r in _resources(s)]),
        (BUNDLE,),
    ),
    "short": (stated(lambda s: _resources(s)[0].update(digest="0" * 63)), (BUNDLE,)),
    "prefix": (
        stated(lambda s: _resources(s)[0].update(digest=_resources(s)[0]["digest"][:16])),
        (BUNDLE,),
    ),
    "long": (stated(lambda s: _resources(s)[0].update(digest="0" * 65)), (BUNDLE,)),
    "empty": (listed(digest=""), (BUNDLE,)),
    "no hex": (listed(digest="g" * 64), (BUNDLE,)),
    "line end": (listed(digest="0" * 64 + "\n"), (BUNDLE,)),
    "other digits": (listed(digest="\u0660" * 64), (BUNDLE,)),
    "a number": (listed(digest=0), (BUNDLE,)),
    "sha1": (listed(algorithm="sha1", digest="0" * 40), (BUNDLE,)),
    "sha512": (listed(algorithm="sha512", digest="0" * 128), (BUNDLE,)),
    "sha256 called md5": (listed(algorithm="md5"), (BUNDLE,)),
    "SHA256": (listed(algorithm="SHA256"), (BUNDLE,)),
    "another hash type": (
        stated(lambda s: s["predicate"]["serialization"].update(hash_type="sha1")),
        (BUNDLE,),
    ),
    "another method": (
        stated(lambda s: s["predicate"]["serialization"].update(method="shards")),
        (BUNDLE,),
    ),
    "subject of others": (
        stated(lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
        (BUNDLE,),
    ),
    "subject in upper case": (
        stated(
            lambda s: s["subject"][0]["digest"].update(
                sha256=s["subject"][0]["digest"]["sha256"].upper()
            )
        ),
        (BUNDLE,),
    ),
    "two algorithms": (
        stated(lambda s: s["subject"][0]["digest"].update(sha512="0" * 128)),
        (BUNDLE,),
    ),
    "two subjects": (stated(lambda s: s["subject"].append(s["subject"][0])), (BUNDLE,)),
    "a file twice": (stated(lambda s: _resources(s).append(_resources(s)[0])), (BUNDLE,)),
    "no files": (stated(lambda s: _resources(s).clear()), (BUNDLE,)),
    "a path out of it": (listed(name="../aotc.json"), (BUNDLE,)),
    "an absolute path": (listed(name="/etc/passwd"), (BUNDLE,)),
    "NUL in a path": (listed(name="aotc.json\0.txt"), (BUNDLE,)),
    "ignored paths": (
        lambda t: (
            t.state(lambda s: s["predicate"]["serialization"].update(ignore_paths=["evil.bin"])),
            (t.payload / "evil.bin").write_bytes(b"x"),
        ),
        (UNLISTED,),
    ),
}


def _resources(statement: Any) -> Any:
    return statement["predicate"]["resources"]


# Fields that appear twice: with the same value, or with the signed one and another.
TWICE = {"bundle": '"mediaType":"x"', "statement": '"_type":"x"', "manifest": '"name":"evil"'}
CODES = {"bundle": BUNDLE, "statement": BUNDLE, "manifest": MANIFEST}
VALUES = {
    "NaN": '"zz":NaN',
    "infinity": '"zz":-Infinity',
    "1e999": '"zz":1e999',
    "huge integer": '"zz":' + "9" * 5000,
    "deep list": '"zz":' + "[" * 65 + "]" * 65,
    "very deep list": '"zz":' + "[" * 200_000 + "]" * 200_000,
    "very deep mapping": '"zz":' + '{"a":' * 100_000 + "1" + "}" * 100_000,
    "lone surrogate": '"zz":"\\ud800"',
    "lone surrogate as a key": '"\\udfff":1',
    "control character": '"zz":"\n"',
    "comment": '/* */"zz":1',
    "single quotes": "'zz':1",
    "unknown field": '"zz":1',
}


@pytest.mark.parametrize("attack", SIGNATURES)
def test_signature(attack: str, target: Attacked) -> None:
    make, codes = SIGNATURES[attack]
    make(target)
    target.refused(*codes)


@pytest.mark.parametrize("attack", DIGESTS)
def test_digest(attack: str, target: Attacked) -> None:
    make, codes = DIGESTS[attack]
    make(target)
    target.refused(*codes)


@pytest.mark.parametrize("place", CODES)
def test_a_key_twice(place: str, target: Attacked) -> None:
    first_field(place, TWICE[place])(target)
    target.refused(CODES[place])


@pytest.mark.parametrize("place", CODES)
@pytest.mark.parametrize("value", VALUES)
def test_json(value: str, place: str, target: Attacked) -> None:
    first_field(place, VALUES[value])(target)
    if place == "statement" and value == "unknown field":
        # in-toto's rule for a statement: unknown fields are ignored.
        assert target.verified() == []
    else:
        target.refused(CODES[place])


def _name_in_manifest(target: Attacked) -> None:
    target.sign_manifest(json.dumps({**target.manifest, "name": SURROGATE}).encode())


def _text_in_manifest(target: Attacked) -> None:
    manifest = target.manifest
    manifest["profile"]["description"] = SURROGATE
    target.sign_manifest(json.dumps(manifest).encode())


def _finding_in_manifest(target: Attacked) -> None:
    finding = {"code": "AOTC-S008", "what": SURROGATE}
    target.sign_manifest(json.dumps({**target.manifest, "findings": [finding]}).encode())


SURROGATES: dict[str, tuple[Attack, tuple[str, ...]]] = {
    "hint": (
        bundle(lambda b: b["verificationMaterial"].update(publicKey={"hint": SURROGATE})),
        (BUNDLE,),
    ),
    "sig": (bundle(lambda b: b["dsseEnvelope"]["signatures"][0].update(sig=SURROGATE)), (BUNDLE,)),
    "payloadType": (bundle(lambda b: b["dsseEnvelope"].update(payloadType=SURROGATE)), (BUNDLE,)),
    "name of a file": (listed(name=SURROGATE), (BUNDLE,)),
    "digest of a file": (listed(digest=SURROGATE), (BUNDLE,)),
    "name of the artifact": (_name_in_manifest, (MANIFEST,)),
    "text of the profile": (_text_in_manifest, (MANIFEST,)),
    "text of a finding": (_finding_in_manifest, (MANIFEST,)),
}


@pytest.mark.parametrize("place", SURROGATES)
def test_a_lone_surrogate_in_a_known_field(place: str, target: Attacked) -> None:
    make, codes = SURROGATES[place]
    make(target)
    target.refused(*codes)


@pytest.mark.parametrize("place", CODES)
@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe", b"\xc0\x80"])
def test_json_in_another_encoding(place: str, mark: bytes, target: Attacked) -> None:
    text = mark + _text_of(target, place).encode()
    if place == "bundle":
        target.bundle.write_bytes(text)
    elif place == "statement":
        target.sign_bytes(text)
    else:
        target.sign_manifest(text)
    target.refused(CODES[place])


@pytest.mark.parametrize("name", ["attestations/oms.sigstore.json", "payload/aotc.json"])
def test_huge_json_is_not_read(name: str, target: Attacked) -> None:
    """A sparse file: making it costs nothing, and so must refusing it."""
    with (target.path / name).open("r+b") as file:
        file.truncate(1 << 40)
    assert LIMITS in target.verified()
    assert target.loaded() == LIMITS


def test_a_signature_under_another_name_counts(
    target: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signed type says what a bundle is; renaming it changes nothing."""
    before = verify(target.path, key=target.public)
    target.bundle.rename(target.bundle.with_name("release.sigstore.json"))
    after = verify(target.path, key=target.public)
    assert after.authentic
    assert (after.artifact_id, after.signers) == (before.artifact_id, before.signers)
    monkeypatch.undo()
    with load(target.path, key=target.public, store=target.path.with_name("store")) as model:
        assert model.report.artifact_id == before.artifact_id


def test_a_high_s_is_accepted(target: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tools write it; nothing may depend on which of the two S values it has."""
    before = verify(target.path, key=target.public)
    r, s = decode_dss_signature(signature(target))
    resigned(lambda good: encode_dss_signature(r, ORDER - s))(target)
    after = verify(target.path, key=target.public)
    assert after.authentic
    assert (after.artifact_id, after.signers) == (before.artifact_id, before.signers)
    monkeypatch.undo()
    store = target.path.with_name("store")
    with load(target.path, key=target.public, store=store, warm_up=False) as model:
        assert model.report.artifact_id == before.artifact_id


def test_the_helpers_sign_what_is_accepted(target: Attacked) -> None:
    """Without an attack, what they write is authentic: only the attacks cause the refusals."""
    target.state(lambda statement: None)
    assert target.verified() == []
    target.sign_bytes(json.dumps(target.statement, indent=1).encode())
    assert target.verified() == []
    target.sign_files()
    assert target.verified() == []
    target.sign_manifest(json.dumps(target.manifest, indent=1).encode())
    assert target.verified() == []
