"""Certificates of signing keys, validated from the leaf to a trusted CA (RFC 5280, section 6.1).

This is stricter than a general validator: the leaf must be for code signing, critical extensions
must be known, and name constraints and policies are refused.  Nothing is downloaded; keys are
revoked by the trust policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError, with_others
from aotc.base.records import record
from aotc.base.text import printable
from aotc.spec.payload import Finding
from aotc.spec.trust_anchors import (
    TrustedAuthority,
    TrustedKey,
    der_of_pem,
    key_id,
)
from aotc.trust import p256

if TYPE_CHECKING:
    from cryptography import x509


# The maximum of a path from a leaf to a CA, and of a bundle.
MAX_CERTIFICATES = 8
_MAX_PATHS = 16
# In a bundle, all certificates may claim to have issued each other.
_MAX_CHECKS = 32
_MAX_STEPS = 256

_BASIC_CONSTRAINTS = "2.5.29.19"
_KEY_USAGE = "2.5.29.15"
_EXTENDED_KEY_USAGE = "2.5.29.37"
_ALTERNATIVE_NAME = "2.5.29.17"
_UNDERSTOOD = {_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE, _ALTERNATIVE_NAME}
# Name constraints and three policy extensions, which restrict a path; they are refused.
_NARROWING = {"2.5.29.30", "2.5.29.33", "2.5.29.36", "2.5.29.54"}
_CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
_ANY_USAGE = "2.5.29.37.0"
_CA_CURVES = {"secp256r1", "secp384r1", "secp521r1"}
_HASHES = {"sha256", "sha384", "sha512"}
_MIN_RSA_BITS = 2048
_FIX_OUTSIDE = (
    "Renew the certificate, or set the clock of this host if it is wrong. --allow-expired signs "
    "all the same; who trusts the certificate's authority refuses such a signature."
)


@record(kw_only=False)
class _Anchor:
    certificate: x509.Certificate
    origin: str


def verify_chain(
    chain: Sequence[bytes],
    authorities: Iterable[TrustedAuthority],
    at: datetime | None = None,
) -> TrustedKey:
    """Validate a certificate; returns its key, with the origin of the authority and its name.

    `chain` holds DER certificates, the leaf first and others in any order.  All certificates on the
    path must be valid at the time `at`, by default now.
    Raises AOTC-G038 if no path leads to an authority, and G037 if a certificate on the path is
    invalid.
    """
    moment = at or datetime.now(UTC)
    leaf, *others = [_load(der) for der in chain]
    anchors = [_anchor(authority) for authority in authorities]
    refusal: AotcError | None = None
    search = _Search(others, anchors)
    for path, origin in islice(search.paths([leaf]), _MAX_PATHS):
        problems = [*_leaf_problems(leaf), *_path_problems(path, moment)]
        if not problems:
            return TrustedKey(
                pem=_public_pem(leaf),
                origin=origin,
                certificate=claimed_name(chain),
                subject=certificate_name(leaf),
                issuers=tuple(key_id(_public_pem(issuer)) for issuer in path[1:]),
            )
        refusal = refusal or with_others(
            AotcError(
                "AOTC-G037",
                "the certificate is not valid for this signature",
                found=f"{certificate_name(leaf)}: {problem}",
            )
            for problem in problems
        )
    raise refusal or AotcError(
        "AOTC-G038",
        "the certificate is not from a trusted CA",
        expected=", ".join(_name_text(anchor.certificate.subject) for anchor in anchors) or "a CA",
        found=f"{certificate_name(leaf)}, issued by {_name_text(leaf.issuer)}",
    )


def leaf_key(chain: Sequence[bytes]) -> str:
    """The public key (SPKI PEM) of the first certificate, UNVERIFIED; raises AOTC-G037."""
    return _public_pem(_load(chain[0]))


def claimed_name(chain: Sequence[bytes]) -> str:
    """The subject and issuer of the first certificate, UNVERIFIED; raises AOTC-G037."""
    leaf = _load(chain[0])
    return f"{certificate_name(leaf)}, issued by {_name_text(leaf.issuer)}"


def leaf_name(chain: Sequence[bytes]) -> str:
    """The subject of the first certificate, UNVERIFIED; raises AOTC-G037."""
    return certificate_name(_load(chain[0]))


def check_chain_of_key(
    chain: Sequence[str], public_pem: str, where: str, *, allow_expired: bool = False
) -> tuple[Finding, ...]:
    """Check the PEM certificates of a signing key, of which the first must be for the key.

    Raises AOTC-I023, and G037 for one that cannot be read or is outside its validity period; with
    `allow_expired` the latter is returned as a finding.
    """
    if len(chain) > MAX_CERTIFICATES:
        raise AotcError(
            "AOTC-I023",
            "the file has too many certificates",
            where=where,
            expected=f"at most {MAX_CERTIFICATES}",
            found=str(len(chain)),
        )
    loaded = [_load(_der(block)) for block in chain]
    if _public_pem(loaded[0]) != public_pem:
        raise AotcError(
            "AOTC-I023",
            "the first certificate is not for this key",
            where=where,
            found=certificate_name(loaded[0]),
        )
    now = datetime.now(UTC)
    outside = [
        f"{certificate_name(certificate)}: {problem}"
        for certificate in loaded
        for problem in _period_problems(certificate, now)
    ]
    what = "a certificate of the signing key is not valid now"
    if outside and not allow_expired:
        raise with_others(
            AotcError("AOTC-G037", what, where=where, found=found, fix=_FIX_OUTSIDE)
            for found in outside
        )
    return tuple(
        Finding(code="AOTC-G037", what=f"{what}: {found}", where=where) for found in outside
    )


def certificate_name(certificate: x509.Certificate) -> str:
    """The subject of a certificate, or its alternative names if it has none."""
    from cryptography import x509

    if certificate.subject.rdns:
        return _name_text(certificate.subject)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return "a certificate without a name"
    return _printable(", ".join(str(getattr(name, "value", name)) for name in names))


class _Search:
    """The search for paths to authorities, with limits of checked signatures and steps."""

    def __init__(self, others: Sequence[x509.Certificate], anchors: Sequence[_Anchor]) -> None:
        self._others = others
        self._anchors = anchors
        self._known: dict[tuple[x509.Certificate, x509.Certificate], bool] = {}
        self._steps = 0

    def paths(self, path: list[x509.Certificate]) -> Iterator[tuple[list[x509.Certificate], str]]:
        """Every chain of issuers from the end of `path` to an anchor, with the anchor's origin.

        Raises AOTC-G037 if the search would take too long.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise _search_too_long()
        last = path[-1]
        for anchor in self._anchors:
            if anchor.certificate == last:
                yield path, anchor.origin
            elif self._issued(last, anchor.certificate):
                yield [*path, anchor.certificate], anchor.origin
        if len(path) < MAX_CERTIFICATES:
            for issuer in self._others:
                if issuer not in path and self._issued(last, issuer):
                    yield from self.paths([*path, issuer])

    def _issued(self, child: x509.Certificate, parent: x509.Certificate) -> bool:
        if child.issuer != parent.subject:
            return False
        pair = (child, parent)
        if pair not in self._known:
            if len(self._known) >= _MAX_CHECKS:
                raise _search_too_long()
            self._known[pair] = _issued(child, parent)
        return self._known[pair]


def _search_too_long() -> AotcError:
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

    if leaf.version is not x509.Version.v3:
        yield "it is not of version 3"
    if not p256.is_verifying(leaf.public_key()):
        yield "its key is not on P-256 or P-384"
    found = _extensions(leaf)
    basic = found.get(_BASIC_CONSTRAINTS)
    if isinstance(basic, x509.BasicConstraints) and basic.ca:
        yield "it is a CA, which may only sign certificates"
    usage = found.get(_KEY_USAGE)
    if not isinstance(usage, x509.KeyUsage) or not usage.digital_signature:
        yield "its key usage does not have digitalSignature"
    elif usage.key_cert_sign:
        yield "its key usage has keyCertSign"
    extended = found.get(_EXTENDED_KEY_USAGE)
    purposes = extended if isinstance(extended, x509.ExtendedKeyUsage) else ()
    stated = [purpose.dotted_string for purpose in purposes]
    if _CODE_SIGNING not in stated:
        listed = ", ".join(stated) or "no extended key usage"
        yield f"it is not for code signing ({listed})"


def _path_problems(path: Sequence[x509.Certificate], moment: datetime) -> Iterator[str]:
    below = 0
    for depth, certificate in enumerate(path):
        prefix = "" if depth == 0 else f"{certificate_name(certificate)}: "
        for problem in _common_problems(certificate, moment):
            yield prefix + problem
        if depth > 0:
            for problem in _authority_problems(certificate, below):
                yield prefix + problem
            below += certificate.subject != certificate.issuer
    for child, parent in pairwise(path):
        if problem := _weakness(child, parent):
            yield f"{certificate_name(parent)}: {problem}"


def _period_problems(certificate: x509.Certificate, moment: datetime) -> Iterator[str]:
    if moment < certificate.not_valid_before_utc:
        yield f"it is not valid before {certificate.not_valid_before_utc.isoformat()}"
    if moment > certificate.not_valid_after_utc:
        yield f"it expired at {certificate.not_valid_after_utc.isoformat()}"


def _common_problems(certificate: x509.Certificate, moment: datetime) -> Iterator[str]:
    yield from _period_problems(certificate, moment)
    for extension in certificate.extensions:
        oid = extension.oid.dotted_string
        if oid in _NARROWING:
            yield f"it has constraints that are not supported ({oid})"
        elif extension.critical and oid not in _UNDERSTOOD:
            yield f"it has an unknown critical extension ({oid})"


def _authority_problems(certificate: x509.Certificate, below: int) -> Iterator[str]:
    """Why a certificate must not issue others; `below` is the number of CAs below it."""
    from cryptography import x509

    found = _extensions(certificate)
    basic = found.get(_BASIC_CONSTRAINTS)
    if not isinstance(basic, x509.BasicConstraints) or not basic.ca:
        yield "it is not a CA"
    elif basic.path_length is not None and below > basic.path_length:
        yield f"it allows {basic.path_length} CAs below it, and there are {below}"
    usage = found.get(_KEY_USAGE)
    if not isinstance(usage, x509.KeyUsage) or not usage.key_cert_sign:
        yield "its key usage does not have keyCertSign"
    extended = found.get(_EXTENDED_KEY_USAGE)
    if isinstance(extended, x509.ExtendedKeyUsage):
        stated = {usage_.dotted_string for usage_ in extended}
        if not stated & {_CODE_SIGNING, _ANY_USAGE}:
            yield "it may not issue certificates for code signing"


def _extensions(certificate: x509.Certificate) -> dict[str, x509.ExtensionType]:
    return {extension.oid.dotted_string: extension.value for extension in certificate.extensions}


def _weakness(child: x509.Certificate, parent: x509.Certificate) -> str:
    """Why the signature of `parent` on `child` is too weak; empty if it is not."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    public = parent.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < _MIN_RSA_BITS:
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
    """The certificate of an authority; raises AOTC-G013 if it is not one of a CA."""
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
    """Read a certificate, with all parts that are used later; raises AOTC-G037."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    # The library decodes these parts at their first use only.
    used = ("version", "subject", "issuer", "not_valid_before_utc", "not_valid_after_utc")
    try:
        certificate = x509.load_der_x509_certificate(der)
        for name in (*used, "extensions"):
            getattr(certificate, name)
        certificate.public_key()
    except (
        TypeError,
        ValueError,
        UnsupportedAlgorithm,
        x509.InvalidVersion,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise AotcError(
            "AOTC-G037", "the certificate cannot be read", found=_printable(str(error))
        ) from None
    # Bits of the last byte may be declared unused, which no signature covers.
    if not der.endswith(b"\x00" + certificate.signature):
        raise AotcError("AOTC-G037", "the certificate cannot be read", found="unused bits")
    return certificate


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


def _name_text(name: x509.Name) -> str:
    return _printable(name.rfc4514_string())


def _printable(text: str) -> str:
    """A text of a certificate, which anyone may have written, as printable text."""
    return printable(text, 200)
