"""Reading files of policies and root keys: strict YAML, with every key in normalized form."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from aotc.contract.codec.parsing import ParseError, Problem, decode
from aotc.contract.codec.strict_yaml import MAX_YAML_BYTES, strict_yaml
from aotc.contract.trust.anchors import split_certificates
from aotc.contract.trust.trust_policy import PolicyKey, RootKeys, TrustPolicy
from aotc.errors import AotcError
from aotc.records import record, replace
from aotc.signing.keys.p256 import p256_key, public_pem

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
        with path.open("rb") as file:
            return file.read(MAX_YAML_BYTES + 1)
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
    """A P-256 public key in the PEM form that OpenSSL writes; raises ValueError if it is not one.

    A key has several encodings (a compressed point, other line lengths), but only this one is
    compared.
    """
    expected = "is not one PEM public key on P-256"
    if pem.count("-----BEGIN ") != 1 or not pem.strip().startswith("-----BEGIN PUBLIC KEY-----"):
        raise ValueError(expected)
    key = p256_key(pem.strip() + "\n")
    if key is None:
        raise ValueError(expected)
    return public_pem(key)


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
    """An authority with only its certificate; OpenSSL may write text before the block."""
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
    return replace(authority, pem=certificate.public_bytes(Encoding.PEM).decode("ascii"))


def _find_duplicates(keys: list[tuple[str, str]], where: str, problems: list[Problem]) -> None:
    first: dict[str, str] = {}
    for pem, name in keys:
        other = first.setdefault(pem, name)
        if other is not name:
            problems.append(Problem(where, f"{other!r} and {name!r} are the same key"))


def _malformed(problems: Sequence[Problem], path: Path, data: bytes) -> AotcError:
    from aotc.contract.codec.yaml_positions import located, place_of

    first, *others = [
        AotcError(
            problem.code or "AOTC-G019",
            "the policy is malformed" if not problem.code else "the policy cannot be read",
            where=f"{path}: {problem.path or '(top)'}",
            found=problem.what,
            place=place_of(problem, str(path)),
        )
        for problem in located(problems, data)
    ]
    first.also = tuple(others)
    return first
