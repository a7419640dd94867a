"""Policies and root keys as files: strict YAML into records, every key in one spelling."""

from __future__ import annotations

import hashlib
import re
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

# What every policy says of itself, in YAML or JSON; no line of a PEM block has a colon.
_SCHEMA = re.compile(
    rb"""(?:^|[{,])(?:\xef\xbb\xbf|[ \t])*["']?schema["']?[ \t]*:[ \t]*["']?aotc\.trust/""",
    re.MULTILINE,
)


@record(kw_only=False)
class PolicyFile:
    """A policy as one file holds it.  `data` is what was parsed, and what roots sign."""

    path: Path
    data: bytes
    policy: TrustPolicy

    @property
    def sha256(self) -> str:
        """sha256 (hex) of the file's bytes."""
        return hashlib.sha256(self.data).hexdigest()


def is_policy(path: Path, data: bytes) -> bool:
    """Whether a trust file is a policy, and not a list of PEM keys: by its name or its schema.

    What is neither by these is read as a list of keys, which holds nothing else.
    """
    return path.suffix.lower() in (".yaml", ".yml") or _SCHEMA.search(data) is not None


def read_bytes(path: Path, what: str) -> bytes:
    """A small file, read once; raises I001."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_YAML_BYTES + 1)
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"cannot read the {what}", where=str(path), found=str(error.strerror)
        ) from None


def parse_policy(data: bytes, path: Path) -> PolicyFile:
    """A policy from the bytes of its file; raises G019 with every problem, and I046."""
    policy = _parse(data, TrustPolicy, path)
    problems: list[Problem] = []
    keys = tuple(
        _one_spelling(each, f"keys[{index}].pem", problems)
        for index, each in enumerate(policy.keys)
    )
    authorities = tuple(
        _one_certificate(each, f"authorities[{index}].pem", problems)
        for index, each in enumerate(policy.authorities)
    )
    _find_doubles([(each.pem, each.id) for each in keys], "keys", problems)
    _find_doubles([(each.pem, each.id) for each in authorities], "authorities", problems)
    if problems:
        raise _malformed(problems, path)
    return PolicyFile(path, data, replace(policy, keys=keys, authorities=authorities))


def read_policy(path: Path) -> PolicyFile:
    """A policy by its path; raises I001, I046, G019."""
    return parse_policy(read_bytes(path, "trust policy"), path)


def read_roots(path: Path) -> RootKeys:
    """The root keys of a host; raises I001, I046, G019."""
    roots = _parse(read_bytes(path, "file of root keys"), RootKeys, path)
    problems: list[Problem] = []
    keys = []
    for index, pem in enumerate(roots.keys):
        try:
            keys.append(public_key(pem))
        except ValueError as error:
            problems.append(Problem(f"keys[{index}]", str(error)))
    _find_doubles([(pem, str(index)) for index, pem in enumerate(keys)], "keys", problems)
    if problems:
        raise _malformed(problems, path)
    return replace(roots, keys=tuple(keys))


def public_key(pem: str) -> str:
    """A P-256 public key in the one PEM that OpenSSL writes; raises ValueError, saying why.

    One key has several encodings (a compressed point, line lengths): only this one is compared.
    """
    wanted = "is not one PEM public key on P-256"
    if pem.count("-----BEGIN ") != 1 or not pem.strip().startswith("-----BEGIN PUBLIC KEY-----"):
        raise ValueError(wanted)
    key = p256_key(pem.strip() + "\n")
    if key is None:
        raise ValueError(wanted)
    return public_pem(key)


def _parse(data: bytes, record: type[T], path: Path) -> T:
    try:
        return decode(record, strict_yaml(data))
    except ParseError as error:
        raise _malformed(error.problems, path) from None


def _one_spelling(key: PolicyKey, where: str, problems: list[Problem]) -> PolicyKey:
    try:
        return replace(key, pem=public_key(key.pem))
    except ValueError as error:
        problems.append(Problem(where, str(error)))
        return key


def _one_certificate(authority: PolicyKey, where: str, problems: list[Problem]) -> PolicyKey:
    """An authority with its certificate alone: OpenSSL may write text before the block."""
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


def _find_doubles(keys: list[tuple[str, str]], where: str, problems: list[Problem]) -> None:
    first: dict[str, str] = {}
    for pem, name in keys:
        other = first.setdefault(pem, name)
        if other is not name:
            problems.append(Problem(where, f"{other!r} and {name!r} are the same key"))


def _malformed(problems: list[Problem] | tuple[Problem, ...], path: Path) -> AotcError:
    first, *others = [
        AotcError(
            problem.code or "AOTC-G019",
            "the policy is malformed" if not problem.code else "the policy cannot be read",
            where=f"{path}: {problem.path or '(top)'}",
            found=problem.what,
        )
        for problem in problems
    ]
    first.also = tuple(others)
    return first
