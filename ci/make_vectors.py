"""Generate manifests/vectors: what a verifier must accept, and what it must refuse with which code.

Without `--write` say whether the files are current; `--folder DIR` means another folder.  The keys
are made from texts that stand here, so anybody has them: they vouch for nothing.
"""

from __future__ import annotations

import argparse
import base64
import copy
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from aotc.contract.versions import EVIDENCE_PREDICATE
from aotc.signing import dsse, key_files, oms
from aotc.signing.keys import PrivateKey, key_id

FOLDER = Path(__file__).resolve().parents[1] / "manifests" / "vectors"
# The order of P-256 (SEC 2, secp256r1).
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
APPROVAL = "urn:aotc:approval:v1"
Json = Any


def _key(text: str) -> PrivateKey:
    """A key that everybody can make: its scalar is the sha256 of a text."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big") % (ORDER - 1) + 1
    secret = ec.derive_private_key(number, ec.SECP256R1())
    pem = key_files.public_pem(secret.public_key())
    return PrivateKey(pem, key_id(pem), False, secret)


TRUSTED = _key("aotc test vectors: first trusted key, public to all")
SECOND = _key("aotc test vectors: second trusted key, public to all")
UNKNOWN = _key("aotc test vectors: a key that nobody trusts, public to all")

MODEL = b"These bytes stand for a model; they are hashed and never run.\n"
PROVIDER = "CPUExecutionProvider"


class Vectors:
    """Files by path, and an index of each folder."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.index: dict[str, list[dict[str, str]]] = {}

    def add(self, folder: str, name: str, kind: str, code: str, why: str, data: bytes) -> None:
        """One file, with the code that a verifier must give; none: it is accepted."""
        ending = "json" if kind == "manifest" else "sigstore.json"
        file = f"{name}.{ending}"
        self.files[f"{folder}/{file}"] = data
        row = {"file": file, "kind": kind, "code": code, "why": why}
        self.index.setdefault(folder, []).append(row)

    def written(self) -> dict[str, bytes]:
        """All files, the indexes too."""
        indexes = {f"{folder}/index.json": _text(rows) for folder, rows in self.index.items()}
        return {**self.files, **indexes}


def _text(value: Json) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _compact(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bundle(
    payload: bytes, key: PrivateKey = TRUSTED, *, hint: str | None = None, signature: bytes = b""
) -> dict[str, Json]:
    """A bundle as readable JSON-like data; `hint` and `signature` instead of the key's own."""
    signed = signature or key.sign(dsse.pae(dsse.IN_TOTO, payload))
    named = key.key_id if hint is None else hint
    return {
        "mediaType": dsse.BUNDLE_MEDIA_TYPE,
        "verificationMaterial": {
            "publicKey": {"hint": named} if named else {},
            "tlogEntries": [],
        },
        "dsseEnvelope": {
            "payload": _b64(payload),
            "payloadType": dsse.IN_TOTO,
            "signatures": [{"sig": _b64(signed), "keyid": ""}],
        },
    }


def _oms_statement() -> dict[str, Json]:
    digests = {"aotc.json": _sha256(b"a"), "model/model.onnx": _sha256(MODEL)}
    bundle = json.loads(oms.sign(digests, TRUSTED))
    statement: dict[str, Json] = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return statement


def _statement(predicate_type: str, predicate: Json) -> dict[str, Json]:
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "aotc.json", "digest": {"sha256": _sha256(b"a")}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def _changed(value: Json, change: Callable[[Json], object]) -> Json:
    copied = copy.deepcopy(value)
    change(copied)
    return copied


def _set(value: Json, *path: str | int, to: Json) -> None:
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = to


OMS = _compact(_oms_statement())
GOOD = _bundle(OMS)
SIGNATURE = base64.b64decode(GOOD["dsseEnvelope"]["signatures"][0]["sig"])
R, S = decode_dss_signature(SIGNATURE)


def _valid_bundles(out: Vectors) -> None:
    def add(name: str, kind: str, why: str, data: bytes) -> None:
        out.add("valid", name, kind, "", why, data)

    add(
        "oms",
        "oms",
        "a signature over every file, as aotc writes it",
        dsse.sign(json.loads(OMS), TRUSTED),
    )
    add("oms-second-key", "oms", "any trusted key will do", _text(_bundle(OMS, SECOND)))
    add(
        "no-hint",
        "oms",
        "a bundle may name no key; each trusted one is tried",
        _text(_bundle(OMS, hint="")),
    )
    add(
        "keyid-is-hint",
        "oms",
        "the envelope may name the same key again",
        _text(_changed(GOOD, lambda b: _set(_first(b), "keyid", to=TRUSTED.key_id))),
    )
    other_s = encode_dss_signature(R, ORDER - S)
    add(
        "other-s",
        "oms",
        "ECDSA: s and n - s are both right",
        _text(_bundle(OMS, signature=other_s)),
    )
    add(
        "spaces-in-statement",
        "oms",
        "what is signed are bytes, not a form of JSON",
        _text(_bundle(_text(json.loads(OMS)))),
    )
    evidence = _compact(_statement(EVIDENCE_PREDICATE, {"seconds": 1.5}))
    add(
        "evidence",
        "attestation",
        "a statement about an artifact's aotc.json",
        _text(_bundle(evidence)),
    )
    strange = _compact(
        _statement("https://example.com/unknown/v9", {"anything": [None, True, "ä"]})
    )
    add(
        "unknown-predicate",
        "attestation",
        "a type that the reader does not know is no defect",
        _text(_bundle(strange)),
    )


def _first(bundle: Json) -> Json:
    return bundle["dsseEnvelope"]["signatures"][0]


def _bad_text(out: Vectors) -> None:
    """Bytes that are not one unambiguous JSON document."""
    text = _text(GOOD)
    head = text.rstrip()[:-1].rstrip()
    for name, why, data in (
        ("empty", "no bytes", b""),
        ("cut", "the end is missing", text[: len(text) // 2]),
        (
            "not-utf8",
            "a byte that UTF-8 does not have",
            text.replace(b"sigstore", b"sigst\xffre", 1),
        ),
        ("byte-order-mark", "bytes before the JSON", b"\xef\xbb\xbf" + text),
        ("two-documents", "bytes behind the JSON", text + text),
        (
            "duplicate-key",
            "two envelopes: readers may differ in which counts",
            head + b',\n "dsseEnvelope": {}\n}\n',
        ),
        ("nan", "NaN is not JSON", text.replace(b'"tlogEntries": []', b'"tlogEntries": [NaN]')),
        (
            "huge-integer",
            "beyond 2^53 - 1 readers differ",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": [9007199254740993]'),
        ),
        (
            "infinite",
            "a number that overflows",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": [1e999]'),
        ),
        (
            "deep",
            "nested deeper than 64",
            text.replace(b'"tlogEntries": []', b'"tlogEntries": ' + b"[" * 70 + b"]" * 70),
        ),
        ("list", "a list, not a mapping", b"[]\n"),
    ):
        out.add("invalid", name, "oms", "AOTC-G004", why, data)


def _bad_shape(out: Vectors) -> None:
    """JSON that is no bundle of ours."""
    envelope = "dsseEnvelope"
    sig = _b64(SIGNATURE)
    certificate = {"rawBytes": _b64(b"certificate")}
    changes: tuple[tuple[str, str, Callable[[Json], object]], ...] = (
        (
            "media-type",
            "another version of bundles",
            lambda b: _set(
                b, "mediaType", to="application/vnd.dev.sigstore.bundle+json;version=0.1"
            ),
        ),
        (
            "payload-type",
            "another type of payload",
            lambda b: _set(b, envelope, "payloadType", to="application/json"),
        ),
        (
            "two-signatures",
            "a bundle's envelope has exactly one",
            lambda b: b[envelope]["signatures"].append(dict(_first(b))),
        ),
        ("no-signatures", "a list of none", lambda b: _set(b, envelope, "signatures", to=[])),
        ("no-envelope", "nothing is signed", lambda b: b.pop(envelope)),
        ("no-claim", "no word of who signed", lambda b: b["verificationMaterial"].pop("publicKey")),
        (
            "key-and-certificate",
            "two words of who signed",
            lambda b: _set(b, "verificationMaterial", "certificate", to=certificate),
        ),
        ("algorithm", "a bundle chooses no algorithm", lambda b: _set(_first(b), "alg", to="none")),
        (
            "keyid-is-not-hint",
            "two names of keys in one bundle",
            lambda b: _set(_first(b), "keyid", to=SECOND.key_id),
        ),
        (
            "hint-is-a-number",
            "a name that is no text",
            lambda b: _set(b, "verificationMaterial", "publicKey", "hint", to=1),
        ),
        (
            "payload-is-a-mapping",
            "a payload that is not base64 text",
            lambda b: _set(b, envelope, "payload", to=json.loads(OMS)),
        ),
        (
            "base64-spare-bits",
            "not canonical: bits that count for nothing are set",
            lambda b: _set(b, envelope, "payload", to=_spare_bits(OMS)),
        ),
        (
            "base64-no-padding",
            "not canonical: the padding is missing",
            lambda b: _set(
                b, envelope, "payload", to=_b64(OMS + b" " * (1 + -len(OMS) % 3)).rstrip("=")
            ),
        ),
        (
            "base64-new-line",
            "not canonical: white space",
            lambda b: _set(_first(b), "sig", to=sig + "\n"),
        ),
        (
            "base64-url",
            "another alphabet",
            lambda b: _set(
                _first(b), "sig", to=base64.urlsafe_b64encode(b"\xfb\xff" + SIGNATURE).decode()
            ),
        ),
    )
    for name, why, change in changes:
        out.add("invalid", name, "oms", "AOTC-G004", why, _text(_changed(GOOD, change)))


def _spare_bits(data: bytes) -> str:
    """Base64 of `data` and white space, whose last digit has a bit too many."""
    data += b" " * ((1 - len(data)) % 3)
    text = _b64(data)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return text[:-3] + digits[digits.index(text[-3]) + 1] + "=="


def _bad_signatures(out: Vectors) -> None:
    """Well-formed bundles that nobody, or another one, signed."""
    zero = encode_dss_signature(0, 0)
    long_form = b"\x30\x81" + SIGNATURE[1:]
    flipped = bytearray(SIGNATURE)
    flipped[-1] ^= 1
    raw = R.to_bytes(32, "big") + S.to_bytes(32, "big")
    json_type = TRUSTED.sign(dsse.pae("application/json", OMS))
    signatures = (
        ("r-s-zero", "r = s = 0", zero),
        ("r-s-order", "r = s = n, the order of the curve", encode_dss_signature(ORDER, ORDER)),
        ("s-plus-order", "s + n: out of range", encode_dss_signature(R, S + ORDER)),
        ("trailing-der", "a byte behind the DER", SIGNATURE + b"\0"),
        ("long-form-der", "a length in the long form: BER, not DER", long_form),
        ("raw", "r and s side by side, not DER", raw),
        ("flipped-bit", "the last bit of s", bytes(flipped)),
        ("no-pae", "the payload was signed without its type and lengths", TRUSTED.sign(OMS)),
        ("other-type-signed", "signed as another type of payload", json_type),
    )
    for name, why, signature in signatures:
        data = _text(_bundle(OMS, signature=signature))
        out.add("invalid", name, "oms", "AOTC-G003", why, data)
    changed = OMS.replace(_sha256(MODEL).encode(), _sha256(b"b").encode())
    for name, code, why, bundle in (
        (
            "other-payload",
            "G003",
            "the signature of another payload",
            _bundle(changed, signature=SIGNATURE),
        ),
        (
            "hint-of-another",
            "G003",
            "names a trusted key; another trusted key signed",
            _bundle(OMS, SECOND, hint=TRUSTED.key_id),
        ),
        (
            "hint-of-nobody",
            "G003",
            "names an unknown key; a trusted key signed",
            _bundle(OMS, hint="0" * 64),
        ),
        (
            "stolen-hint",
            "G003",
            "names a trusted key; an unknown key signed",
            _bundle(OMS, UNKNOWN, hint=TRUSTED.key_id),
        ),
        ("other-key", "G002", "by a key that nobody trusts", _bundle(OMS, UNKNOWN)),
        (
            "other-key-no-hint",
            "G002",
            "by a key that nobody trusts, and names none",
            _bundle(OMS, UNKNOWN, hint=""),
        ),
    ):
        out.add("invalid", name, "oms", f"AOTC-{code}", why, _text(bundle))


def _bad_statements(out: Vectors) -> None:
    """Statements that a trusted key did sign, and that say nothing usable."""
    listed = ("predicate", "resources")
    evidence = _statement(EVIDENCE_PREDICATE, {})
    good = json.loads(OMS)

    def add(name: str, kind: str, why: str, payload: bytes) -> None:
        out.add("invalid-payload", name, kind, "AOTC-G004", why, _text(_bundle(payload)))

    changes: tuple[tuple[str, str, Callable[[Json], object]], ...] = (
        (
            "parent-path",
            "a file outside of the payload",
            lambda s: _set(s, *listed, 0, "name", to="../aotc.json"),
        ),
        (
            "absolute-path",
            "a file outside of the payload",
            lambda s: _set(s, *listed, 0, "name", to="/aotc.json"),
        ),
        (
            "backslash-path",
            "a separator on some systems",
            lambda s: _set(s, *listed, 0, "name", to="a\\aotc.json"),
        ),
        (
            "listed-twice",
            "one file with two digests",
            lambda s: _set(s, *listed, 1, "name", to="aotc.json"),
        ),
        ("no-files", "a signature over nothing", lambda s: _set(s, *listed, to=[])),
        (
            "weak-digest",
            "another digest than sha256",
            lambda s: _set(s, *listed, 0, "algorithm", to="md5"),
        ),
        (
            "upper-case-digest",
            "one digest has one spelling",
            lambda s: _set(
                s, *listed, 0, "digest", to=s["predicate"]["resources"][0]["digest"].upper()
            ),
        ),
        (
            "other-subject",
            "the subject is not the digest of the list",
            lambda s: _set(s, "subject", 0, "digest", "sha256", to=_sha256(b"")),
        ),
        (
            "statement-v01",
            "another version of statements",
            lambda s: _set(s, "_type", to="https://in-toto.io/Statement/v0.1"),
        ),
    )
    for name, why, change in changes:
        add(name, "oms", why, _compact(_changed(good, change)))
    add(
        "replayed-kind",
        "oms",
        "another statement by the same key is no signature of files",
        _compact(evidence),
    )
    duplicate = OMS[:-1] + b',"predicate":{}}'
    add("duplicate-key-inside", "oms", "ambiguous, though signed", duplicate)
    add(
        "no-subject",
        "attestation",
        "about nothing",
        _compact(_changed(evidence, lambda s: _set(s, "subject", to=[]))),
    )
    add(
        "subject-twice",
        "attestation",
        "one name with two digests",
        _compact(_changed(evidence, lambda s: s["subject"].append(dict(s["subject"][0])))),
    )


def _package() -> bytes:
    """ORT's manifest.json of a package with one variant."""
    variant = {
        "variant_directory": "model/portable",
        "ep": PROVIDER,
        "executor_info": {
            "ort": {
                "model_file": "model.onnx",
                "session_options": {"session.graph_optimization_level": "enable_all"},
            }
        },
    }
    return _text(
        {
            "schema_version": "1.0",
            "package_name": "vector",
            "layout": "portable",
            "components": {"model": {"variants": {"portable": variant}}},
        }
    )


def _manifest() -> dict[str, Json]:
    """aotc.json of that package: the least that is one."""
    model = "model/portable/model.onnx"
    files = [
        {
            "path": "manifest.json",
            "size": len(_package()),
            "sha256": _sha256(_package()),
            "role": "package",
        },
        {"path": model, "size": len(MODEL), "sha256": _sha256(MODEL), "role": "model"},
    ]
    return {
        "schema": "aotc.manifest/1.2",
        "name": "vector",
        "source": {
            "sha256": _sha256(MODEL),
            "size": len(MODEL),
            "ir_version": 9,
            "opsets": {"ai.onnx": 19},
            "nodes": 1,
            "nodes_total": 1,
            "op_types": {"Gemm": 1},
            "initializers": 0,
            "initializer_bytes": 0,
        },
        "profile": {},
        "profile_sha256": _sha256(b"{}"),
        "target": "host",
        "target_sha256": _sha256(b"{}"),
        "toolchain": {"aotc": "0.1.0", "python": "3.11", "onnx": "1", "onnxruntime": "1.31.1"},
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
        "variants": [
            {
                "name": "portable",
                "component": "model",
                "providers": [PROVIDER],
                "model": model,
                "files": [model],
                "session": {"optimization": "all"},
                "placement": {"how": "observed", "nodes": [], "share": {}},
                "memory": {"weights_bytes": 0},
                "parity": {"status": "passed"},
                "requirements": {
                    "os": "linux",
                    "architecture": "x86_64",
                    "onnxruntime_min": "1.31.0",
                    "onnxruntime_below": "1.32",
                    "providers": [PROVIDER],
                },
            }
        ],
        "files": files,
    }


def _manifests(out: Vectors) -> None:
    """aotc.json, as it stands beside the other files of `payload`, with all of them signed."""
    out.files["payload/manifest.json"] = _package()
    out.files["payload/model/portable/model.onnx"] = MODEL
    good = _manifest()

    def newer(manifest: Json) -> None:
        manifest.update(schema="aotc.manifest/1.9", colour="red")

    out.add("valid", "manifest", "manifest", "", "the least that is a manifest", _text(good))
    out.add(
        "valid",
        "manifest-newer-minor",
        "manifest",
        "AOTC-G017",
        "a newer minor version: unknown fields are passed over, and that is a finding",
        _text(_changed(good, newer)),
    )
    for name, code, why, change in _BAD_MANIFESTS:
        data = _text(_changed(good, change))
        out.add("invalid-payload", name, "manifest", f"AOTC-{code}", why, data)
    text = _text(good)
    size = f'"size": {len(MODEL)}'.encode()
    for name, why, data in (
        ("manifest-nan", "NaN is not JSON", text.replace(size, b'"size": NaN', 1)),
        (
            "manifest-huge-integer",
            "beyond 2^53 - 1",
            text.replace(size, b'"size": 9007199254740993', 1),
        ),
        ("manifest-duplicate-key", "ambiguous", b'{"name": "other",' + text[1:]),
        ("manifest-cut", "the end is missing", text[:-3]),
    ):
        out.add("invalid-payload", name, "manifest", "AOTC-G009", why, data)


_BAD_MANIFESTS: tuple[tuple[str, str, str, Callable[[Json], object]], ...] = (
    (
        "manifest-unknown-feature",
        "G011",
        "a reader must understand it, and this one does not",
        lambda m: m.update(required_features=["shape-domain", "from-the-future"]),
    ),
    (
        "manifest-newer-minor-unknown-feature",
        "G011",
        "a newer minor version does not excuse it",
        lambda m: m.update(schema="aotc.manifest/1.9", required_features=["from-the-future"]),
    ),
    (
        "manifest-other-major",
        "G010",
        "another major version",
        lambda m: m.update(schema="aotc.manifest/2.0"),
    ),
    (
        "manifest-other-schema",
        "G009",
        "no manifest at all",
        lambda m: m.update(schema="aotc.profile/1"),
    ),
    ("manifest-unknown-field", "G009", "unknown in this version", lambda m: m.update(colour="red")),
    (
        "manifest-negative-size",
        "G009",
        "a size below 0",
        lambda m: _set(m, "files", 1, "size", to=-1),
    ),
    (
        "manifest-size-true",
        "G009",
        "true is no number",
        lambda m: _set(m, "files", 1, "size", to=True),
    ),
    (
        "manifest-parent-path",
        "G009",
        "a file outside of the payload",
        lambda m: _set(m, "files", 1, "path", to="model/../../model.onnx"),
    ),
    (
        "manifest-absolute-path",
        "G009",
        "a file outside of the payload",
        lambda m: _set(m, "files", 1, "path", to="/model/portable/model.onnx"),
    ),
    (
        "manifest-control-character",
        "G009",
        "a path with a NUL",
        lambda m: _set(m, "files", 1, "path", to="model/portable/model.onnx\0"),
    ),
    (
        "manifest-model-outside",
        "G009",
        "a variant's model outside of the payload",
        lambda m: _set(m, "variants", 0, "model", to="../model.onnx"),
    ),
    ("manifest-not-sorted", "G009", "files have one order", lambda m: m["files"].reverse()),
    (
        "manifest-file-twice",
        "G009",
        "a file is listed twice",
        lambda m: m["files"].append(dict(m["files"][1])),
    ),
    ("manifest-no-variants", "G009", "nothing that could be run", lambda m: m.update(variants=[])),
    (
        "manifest-short-digest",
        "G009",
        "a digest of 63 digits",
        lambda m: _set(m, "files", 1, "sha256", to=m["files"][1]["sha256"][1:]),
    ),
    (
        "manifest-other-digest",
        "G014",
        "another digest than the signature's",
        lambda m: _set(m, "files", 1, "sha256", to=_sha256(b"")),
    ),
    (
        "manifest-more-optimization",
        "G014",
        "manifest.json would run it otherwise",
        lambda m: _set(m, "variants", 0, "session", "optimization", to="basic"),
    ),
)


def vectors() -> dict[str, bytes]:
    """All files by path."""
    out = Vectors()
    _valid_bundles(out)
    _bad_text(out)
    _bad_shape(out)
    _bad_signatures(out)
    _bad_statements(out)
    _manifests(out)
    out.files["trusted.pub"] = (TRUSTED.public_pem + SECOND.public_pem).encode()
    return out.written()


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` write, the files; 1 where they are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    asked = parser.parse_args(arguments)
    wanted = vectors()
    there = {
        path.relative_to(asked.folder).as_posix()
        for path in asked.folder.rglob("*")
        if path.is_file()
    }
    stale = sorted(
        name
        for name in wanted.keys() | there
        if name not in wanted
        or name not in there
        or (asked.folder / name).read_bytes() != wanted[name]
    )
    for name in stale:
        if not asked.write:
            print(f"not current: {asked.folder / name}")
        elif name in wanted:
            (asked.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (asked.folder / name).write_bytes(wanted[name])
        else:
            (asked.folder / name).unlink()
    return 1 if stale and not asked.write else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
