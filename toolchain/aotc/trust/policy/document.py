"""Reading files of policies and root keys, and whether what they revoke is known.

They are strict YAML; what is read has every key in normalized form.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from aotc.base.errors import AotcError, with_others
from aotc.base.files.reading import read_at_most
from aotc.base.records import record, replace
from aotc.base.text import printable
from aotc.spec.codec import ParseError, Problem, decode
from aotc.spec.payload import Finding
from aotc.spec.trust_anchors import (
    CERTIFICATE,
    PEM,
    key_id,
    split_certificates,
    split_pem,
    text_around,
)
from aotc.spec.trust_policy import PolicyKey, RootKeys, TrustPolicy
from aotc.spec.yaml import MAX_YAML_BYTES, located, place_of, strict_yaml
from aotc.trust.p256 import public_pem, verifying_key

T = TypeVar("T", TrustPolicy, RootKeys)

# The schema that every policy states, in YAML or JSON; no line of a PEM block has a colon.
_SCHEMA = re.compile(
    rb"""(?:^|[{,])(?:\xef\xbb\xbf|[ \t])*["']?schema["']?[ \t]*:[ \t]*["']?aotc\.trust/""",
    re.MULTILINE,
)


@record(kw_only=False)
class PolicyFile:
    """A policy and its file.  `data` are the bytes of the file, which root keys sign."""

    path: Path
    data: bytes
    policy: TrustPolicy

    @property
    def sha256(self) -> str:
        """The sha256 (hex) of the file."""
        return hashlib.sha256(self.data).hexdigest()


def is_policy(path: Path, data: bytes) -> bool:
    """Whether a trust file is a policy, by its name or its schema, and not a list of PEM keys."""
    return path.suffix.lower() in (".yaml", ".yml") or _SCHEMA.search(data) is not None


def read_bytes(path: Path, what: str) -> bytes:
    """The bytes of a small file; raises AOTC-I001, whose message names `what`."""
    try:
        return read_at_most(path, MAX_YAML_BYTES)
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"cannot read the {what}", where=str(path), found=str(error.strerror)
        ) from None


def parse_policy(data: bytes, path: Path) -> PolicyFile:
    """The policy in the bytes of a file; raises AOTC-G019 with every problem, and I046."""
    policy = _parse(data, TrustPolicy, path)
    problems: list[Problem] = []
    keys = tuple(
        _normalized_key(key, f"keys[{index}].pem", problems)
        for index, key in enumerate(policy.keys)
    )
    authorities = tuple(
        _normalized_certificate(authority, f"authorities[{index}].pem", problems)
        for index, authority in enumerate(policy.authorities)
    )
    _find_duplicates([(key.pem, key.id) for key in keys], "keys", problems)
    _find_duplicates([(item.pem, item.id) for item in authorities], "authorities", problems)
    if problems:
        raise _malformed(problems, path, data)
    return PolicyFile(path, data, replace(policy, keys=keys, authorities=authorities))


def read_policy(path: Path) -> PolicyFile:
    """The policy of a file; raises AOTC-I001, I046 and G019."""
    return parse_policy(read_bytes(path, "trust policy"), path)


def read_roots(path: Path) -> RootKeys:
    """The root keys of a file; raises AOTC-I001, I046 and G019."""
    data = read_bytes(path, "file of root keys")
    roots = _parse(data, RootKeys, path)
    problems: list[Problem] = []
    keys = []
    for index, pem in enumerate(roots.keys):
        try:
            keys.append(normalized_public_key(pem))
        except ValueError as error:
            problems.append(Problem(f"keys[{index}]", str(error)))
    _find_duplicates([(pem, str(index)) for index, pem in enumerate(keys)], "keys", problems)
    if problems:
        raise _malformed(problems, path, data)
    return replace(roots, keys=tuple(keys))


def normalized_public_key(pem: str) -> str:
    """A public key on P-256 or P-384 in the PEM form that OpenSSL writes.

    A key has several encodings (a compressed point, other line lengths), but only this one is
    compared.  Raises ValueError if it is not one such key, or if there is other text.
    """
    blocks = split_pem(pem)
    key = verifying_key(blocks[0]) if len(blocks) == 1 else None
    if key is None or pem.count("-----BEGIN ") != 1:
        raise ValueError("is not one PEM public key on P-256 or P-384")
    _refuse_text(text_around(pem, PEM, comments=False))
    return public_pem(key)


def _refuse_text(other: str) -> None:
    """Raise ValueError if there is text besides a key: nobody acts on it."""
    if other:
        what = "has text besides the key, which could say not to use it"
        raise ValueError(f"{what}: {printable(other, 80)}")


def _parse(data: bytes, record: type[T], path: Path) -> T:
    try:
        return decode(record, strict_yaml(data))
    except ParseError as error:
        raise _malformed(error.problems, path, data) from None


def _normalized_key(key: PolicyKey, where: str, problems: list[Problem]) -> PolicyKey:
    try:
        return replace(key, pem=normalized_public_key(key.pem))
    except ValueError as error:
        problems.append(Problem(where, str(error)))
        return key


def _normalized_certificate(authority: PolicyKey, where: str, problems: list[Problem]) -> PolicyKey:
    """An authority with its certificate in the form that OpenSSL writes."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    blocks = split_certificates(authority.pem)
    try:
        if len(blocks) != 1 or authority.pem.count("-----BEGIN ") != 1:
            raise ValueError
        certificate = x509.load_pem_x509_certificate(blocks[0].encode("ascii"))
    except ValueError:
        problems.append(Problem(where, "is not one PEM certificate"))
        return authority
    try:
        _refuse_text(text_around(authority.pem, CERTIFICATE, comments=False))
    except ValueError as error:
        problems.append(Problem(where, str(error)))
    return replace(authority, pem=certificate.public_bytes(Encoding.PEM).decode("ascii"))


def _find_duplicates(keys: list[tuple[str, str]], where: str, problems: list[Problem]) -> None:
    first: dict[str, str] = {}
    for pem, name in keys:
        other = first.setdefault(pem, name)
        if other is not name:
            problems.append(Problem(where, f"{other!r} and {name!r} are the same key"))


def _malformed(problems: Sequence[Problem], path: Path, data: bytes) -> AotcError:
    return with_others(
        AotcError(
            problem.code or "AOTC-G019",
            "the policy is malformed" if not problem.code else "the policy cannot be read",
            where=f"{path}: {problem.path or '(top)'}",
            found=problem.what,
            place=place_of(problem, str(path)),
        )
        for problem in located(problems, data)
    )


def unmatched_revocations(file: PolicyFile) -> tuple[Finding, ...]:
    """A finding for each revoked digest that is not the id of a key of the policy.

    If authorities or identity providers certify keys, which are not known before they sign, there
    is a finding only for a digest of another form of a known key.
    """
    policy = file.policy
    ids_of_signers = {signer.id for signer in policy.signers()}
    digests = [key for key in policy.revoked.keys if key not in ids_of_signers]
    if not digests:
        return ()
    ids, others = _key_digests(policy)
    certified = bool(policy.authorities or policy.identities)
    found = []
    for digest in digests:
        if digest in ids or (certified and digest not in others):
            continue
        what = f"{digest} is listed as revoked, but is not the id of a key that the policy knows"
        if digest in others:
            what += f"; it is a digest of another form of {others[digest]!r}, which stays valid"
        found.append(Finding(code="AOTC-G044", what=what, where=f"{file.path}: revoked.keys"))
    return tuple(found)


def _key_digests(policy: TrustPolicy) -> tuple[set[str], dict[str, str]]:
    """The ids of all keys, and the names of keys by digests of their other forms."""
    public = [(key.id, key.pem) for key in policy.keys]
    others: dict[str, str] = {}
    for authority in policy.authorities:
        public.append((authority.id, _public_of(authority.pem)))
        others.update((digest, authority.id) for digest in _digests(authority.pem))
    for name, pem in public:
        others.update((digest, name) for digest in _digests(pem))
    return {key_id(pem) for _, pem in public}, others


def _digests(pem: str) -> Iterator[str]:
    """Digests that tools compute: of the file with different line ends, and of the DER."""
    der = base64.b64decode("".join(pem.strip().splitlines()[1:-1]))
    forms: Iterable[bytes] = (
        pem.encode(), pem.strip().encode(), pem.replace("\n", "\r\n").encode(), der,
    )  # fmt: skip
    for data in forms:
        yield hashlib.sha256(data).hexdigest()


def _public_of(certificate: str) -> str:
    from cryptography import x509

    return public_pem(x509.load_pem_x509_certificate(certificate.encode("ascii")).public_key())
