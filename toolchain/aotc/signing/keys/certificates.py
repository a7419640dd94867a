"""Certificates of signing keys: from the leaf to a trusted CA, each step checked (RFC 5280, 6.1).

Stricter than a general validator: the leaf must be for signing code, what is critical must be
understood, and there are no name constraints or policies.  Nothing is fetched; revocation is the
trust policy's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.trust.anchors import (
    TrustedAuthority,
    TrustedKey,
    der_of_pem,
    key_id,
    split_certificates,
)
from aotc.errors import AotcError
from aotc.escaping import printable
from aotc.records import record
from aotc.signing.keys import key_files, p256

if TYPE_CHECKING:
    from cryptography import x509

# On a path from a leaf to a CA; a bundle holds no more either.
MAX_CERTIFICATES = 8
_MAX_PATHS = 16
# A bundle may hold certificates that all seem to have issued each other.
_MAX_CHECKS = 32
_MAX_STEPS = 256

_BASIC_CONSTRAINTS = "2.5.29.19"
_KEY_USAGE = "2.5.29.15"
_EXTENDED_KEY_USAGE = "2.5.29.37"
_ALTERNATIVE_NAME = "2.5.29.17"
_UNDERSTOOD = {_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE, _ALTERNATIVE_NAME}
# Name constraints and three of policies: they narrow a path, so one that has them is refused.
_NARROWING = {"2.5.29.30", "2.5.29.33", "2.5.29.36", "2.5.29.54"}
_CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
_ANY_USAGE = "2.5.29.37.0"
_CA_CURVES = {"secp256r1", "secp384r1", "secp521r1"}
_HASHES = {"sha256", "sha384", "sha512"}
_LEAST_RSA_BITS = 2048


@record(kw_only=False)
class _Anchor:
    certificate: x509.Certificate
    origin: str


def verify_chain(
    chain: Sequence[bytes],
    authorities: Iterable[TrustedAuthority],
    at: datetime | None = None,
) -> TrustedKey:
    """The leaf's key: its origin is that of the authority, its certificate names who it is.

    `chain` holds DER certificates, the leaf first and others in any order; `at` is the moment at
    which all of them must be valid, now by default.
    Raises G038 where no path leads to an authority, G037 for what is wrong on the path.
    """
    moment = at or datetime.now(UTC)
    leaf, *others = [_load(der) for der in chain]
    anchors = [_anchor(each) for each in authorities]
    refusal: AotcError | None = None
    search = _Search(others, anchors)
    for path, origin in islice(search.paths([leaf]), _MAX_PATHS):
        problems = [*_leaf_problems(leaf), *_path_problems(path, moment)]
        if not problems:
            return TrustedKey(
                pem=_public_pem(leaf),
                origin=origin,
                certificate=claimed_name(chain),
                subject=name_of(leaf),
                issuers=tuple(key_id(_public_pem(each)) for each in path[1:]),
            )
        refusal = refusal or _invalid(problems, name_of(leaf))
    raise refusal or AotcError(
        "AOTC-G038",
        "the certificate is by no trusted CA",
        expected=", ".join(_name(each.certificate.subject) for each in anchors) or "a CA",
        found=f"{name_of(leaf)}, issued by {_name(leaf.issuer)}",
    )


def leaf_key(chain: Sequence[bytes]) -> str:
    """The public key (SPKI PEM) that the first certificate claims; raises G037.  UNVERIFIED."""
    return _public_pem(_load(chain[0]))


def claimed_name(chain: Sequence[bytes]) -> str:
    """Subject and issuer of the first certificate, UNVERIFIED; raises G037."""
    leaf = _load(chain[0])
    return f"{name_of(leaf)}, issued by {_name(leaf.issuer)}"


def leaf_name(chain: Sequence[bytes]) -> str:
    """Whom the first certificate names, UNVERIFIED; raises G037."""
    return name_of(_load(chain[0]))


def load_authorities(path: Path) -> tuple[TrustedAuthority, ...]:
    """Every CA certificate in a PEM file; raises I001, and G013 where one is no CA."""
    text = key_files.read(path).decode("utf-8", "replace")
    found = tuple(
        TrustedAuthority(pem=block, origin=str(path)) for block in split_certificates(text)
    )
    if not found or text.count("-----BEGIN CERTIFICATE-----") != len(found):
        raise AotcError("AOTC-G013", "the file is not a list of CA certificates", where=str(path))
    for each in found:
        _anchor(each)
    return found


def check_belongs(chain: Sequence[str], public_pem: str, where: str) -> None:
    """That the first of these PEM certificates is of this key; raises I023, G037."""
    if len(chain) > MAX_CERTIFICATES:
        raise AotcError(
            "AOTC-I023",
            "the file holds too many certificates",
            where=where,
            expected=f"at most {MAX_CERTIFICATES}",
            found=str(len(chain)),
        )
    loaded = [_load(_der(block)) for block in chain]
    if _public_pem(loaded[0]) != public_pem:
        raise AotcError(
            "AOTC-I023",
            "the first certificate is not of this key",
            where=where,
            found=name_of(loaded[0]),
        )


def name_of(certificate: x509.Certificate) -> str:
    """Its subject; where that is empty, its alternative names."""
    from cryptography import x509

    if certificate.subject.rdns:
        return _name(certificate.subject)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "a certificate without a name"
    return _shown(", ".join(str(getattr(each, "value", each)) for each in names))


class _Search:
    """Paths to authorities, within a budget of signatures checked and of steps."""

    def __init__(self, others: Sequence[x509.Certificate], anchors: Sequence[_Anchor]) -> None:
        self._others = others
        self._anchors = anchors
        self._known: dict[tuple[x509.Certificate, x509.Certificate], bool] = {}
        self._steps = 0

    def paths(self, path: list[x509.Certificate]) -> Iterator[tuple[list[x509.Certificate], str]]:
        """Every chain of names and signatures from `path` to an anchor, and the anchor's origin.

        Raises G037 where the certificates would take too long to search.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _endless()
        last = path[-1]
        for anchor in self._anchors:
            if anchor.certificate == last:
                yield path, anchor.origin
            elif self._issued(last, anchor.certificate):
                yield [*path, anchor.certificate], anchor.origin
        if len(path) < MAX_CERTIFICATES:
            for each in self._others:
                if each not in path and self._issued(last, each):
                    yield from self.paths([*path, each])

    def _issued(self, child: x509.Certificate, parent: x509.Certificate) -> bool:
        if child.issuer != parent.subject:
            return False
        pair = (child, parent)
        if pair not in self._known:
            if len(self._known) >= _MAX_CHECKS:
                raise _endless()
            self._known[pair] = _issued(child, parent)
        return self._known[pair]


def _endless() -> AotcError:
    return AotcError(
        "AOTC-G037",
        "the bundle's certificates would take too long to search",
        expected=f"at most {_MAX_CHECKS} signatures and {_MAX_STEPS} steps",
    )


def _issued(child: x509.Certificate, parent: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        child.verify_directly_issued_by(parent)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _leaf_problems(leaf: x509.Certificate) -> Iterator[str]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    public = leaf.public_key()
    if leaf.version is not x509.Version.v3:
        yield "it is not of version 3"
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(
        public.curve, ec.SECP256R1
    ):
        yield "its key is not on P-256"
    found = {each.oid.dotted_string: each.value for each in leaf.extensions}
    basic = found.get(_BASIC_CONSTRAINTS)
    if isinstance(basic, x509.BasicConstraints) and basic.ca:
        yield "it is a CA, which signs certificates and nothing else"
    usage = found.get(_KEY_USAGE)
    if not isinstance(usage, x509.KeyUsage) or not usage.digital_signature:
        yield "its key usage has no digitalSignature"
    elif usage.key_cert_sign:
        yield "its key usage has keyCertSign"
    extended = found.get(_EXTENDED_KEY_USAGE)
    stated = (
        [each.dotted_string for each in extended]
        if isinstance(extended, x509.ExtendedKeyUsage)
        else []
    )
    if _CODE_SIGNING not in stated:
        listed = ", ".join(stated) or "no extended key usage"
        yield f"it is not for code signing ({listed})"


def _path_problems(path: Sequence[x509.Certificate], moment: datetime) -> Iterator[str]:
    below = 0
    for depth, each in enumerate(path):
        who = "" if depth == 0 else f"{name_of(each)}: "
        for problem in _common_problems(each, moment):
            yield who + problem
        if depth > 0:
            for problem in _authority_problems(each, below):
                yield who + problem
            below += each.subject != each.issuer
    for child, parent in pairwise(path):
        if problem := _weakness(child, parent):
            yield f"{name_of(parent)}: {problem}"


def _common_problems(certificate: x509.Certificate, moment: datetime) -> Iterator[str]:
    if moment < certificate.not_valid_before_utc:
        yield f"it is not valid before {certificate.not_valid_before_utc.isoformat()}"
    if moment > certificate.not_valid_after_utc:
        yield f"it expired at {certificate.not_valid_after_utc.isoformat()}"
    for each in certificate.extensions:
        oid = each.oid.dotted_string
        if oid in _NARROWING:
            yield f"it has constraints that are not supported ({oid})"
        elif each.critical and oid not in _UNDERSTOOD:
            yield f"it has an unknown critical extension ({oid})"


def _authority_problems(certificate: x509.Certificate, below: int) -> Iterator[str]:
    """Why this certificate may not issue others; `below` counts the CAs under it."""
    from cryptography import x509

    found = {each.oid.dotted_string: each.value for each in certificate.extensions}
    basic = found.get(_BASIC_CONSTRAINTS)
    if not isinstance(basic, x509.BasicConstraints) or not basic.ca:
        yield "it is no CA"
    elif basic.path_length is not None and below > basic.path_length:
        yield f"it allows {basic.path_length} CAs below it, and there are {below}"
    usage = found.get(_KEY_USAGE)
    if not isinstance(usage, x509.KeyUsage) or not usage.key_cert_sign:
        yield "its key usage has no keyCertSign"
    extended = found.get(_EXTENDED_KEY_USAGE)
    if isinstance(extended, x509.ExtendedKeyUsage):
        stated = {each.dotted_string for each in extended}
        if not stated & {_CODE_SIGNING, _ANY_USAGE}:
            yield "it may not issue certificates for code signing"


def _weakness(child: x509.Certificate, parent: x509.Certificate) -> str:
    """What is too weak in the signature of `parent` on `child`, or nothing."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    public = parent.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < _LEAST_RSA_BITS:
            return f"its RSA key has {public.key_size} bits"
    elif not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name not in _CA_CURVES:
        return "its key is neither RSA nor on P-256, P-384 or P-521"
    try:
        digest = child.signature_hash_algorithm
    except UnsupportedAlgorithm:
        digest = None
    if digest is None or digest.name not in _HASHES:
        return f"it signed with {digest.name if digest else 'an unknown digest'}"
    return ""


def _anchor(authority: TrustedAuthority) -> _Anchor:
    """The certificate to trust; raises G013 where it is none, or no CA's."""
    from cryptography import x509

    try:
        certificate = _load(der_of_pem(authority.pem))
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        if basic.value.ca:
            return _Anchor(certificate, authority.origin)
    except (AotcError, ValueError, x509.ExtensionNotFound):
        pass
    raise AotcError(
        "AOTC-G013",
        "a trusted certificate is unusable",
        where=authority.origin,
        expected="a PEM certificate of a CA",
    )


def _load(der: bytes) -> x509.Certificate:
    """A certificate all of whose parts that are used later can be read; raises G037."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    # These parts are decoded at their first use, and not when the certificate is.
    used = ("version", "subject", "issuer", "not_valid_before_utc", "not_valid_after_utc")
    try:
        made = x509.load_der_x509_certificate(der)
        for name in (*used, "extensions"):
            getattr(made, name)
        made.public_key()
    except (
        TypeError,
        ValueError,
        UnsupportedAlgorithm,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise AotcError(
            "AOTC-G037", "the certificate cannot be read", found=_shown(str(error))
        ) from None
    # Bits of the last byte may be declared unused, and nothing signs that.
    if not der.endswith(b"\x00" + made.signature):
        raise AotcError("AOTC-G037", "the certificate cannot be read", found="unused bits")
    return made


def _der(block: str) -> bytes:
    try:
        return der_of_pem(block)
    except ValueError:
        raise AotcError("AOTC-G037", "the certificate cannot be read") from None


def _public_pem(certificate: x509.Certificate) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return p256.public_pem(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):
        raise AotcError("AOTC-G037", "the certificate's key cannot be read") from None


def _invalid(problems: Sequence[str], name: str) -> AotcError:
    first, *rest = (
        AotcError("AOTC-G037", "the certificate may not sign this", found=f"{name}: {each}")
        for each in problems
    )
    first.also = tuple(rest)
    return first


def _name(name: x509.Name) -> str:
    return _shown(name.rfc4514_string())


def _shown(text: str) -> str:
    """A name as it may be shown: it was written by whoever asked for the certificate."""
    return printable(text, 200)
