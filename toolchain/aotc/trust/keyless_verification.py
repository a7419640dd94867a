"""Verification of keyless signatures (sigstore): by an identity that an OIDC issuer confirmed.

The library `sigstore`, from the extra `sigstore`, verifies the short-lived certificate, its entry
in the transparency log and the time of the entry.  Nothing is downloaded: the trusted roots come
from a file, or are those that the library ships or has cached.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError, install_extra
from aotc.spec.codec import ParseError, Problem
from aotc.spec.trust_anchors import TrustedIdentity, TrustedKey
from aotc.trust.certificates import claimed_name, leaf_key
from aotc.trust.dsse import malformed

if TYPE_CHECKING:
    from sigstore.models import Bundle as SigstoreBundle
    from sigstore.models import TrustedRoot
    from sigstore.verify import Verifier
    from sigstore.verify.policy import Identity


def verify_identity(
    bundle: bytes, certificate: bytes, identities: Sequence[TrustedIdentity]
) -> tuple[TrustedKey, bytes]:
    """Verify a keyless bundle for one of `identities`; returns the certified key and the payload.

    `bundle` is JSON, and `certificate` is the bundle's (DER).  The origin of the key is that of the
    first identity that matches.

    Raises AOTC-G002 if the identity is not trusted, G004 if the log entry is malformed, G037 if the
    certificate, the log entry or the signature does not verify, G013 if the trusted roots cannot be
    read, and I019 if the extra is not installed.
    """
    try:
        from sigstore.models import Bundle
        from sigstore.verify import policy
    except ModuleNotFoundError as error:
        raise missing_sigstore(error) from None
    try:
        parsed = Bundle.from_json(bundle)
    except Exception as error:
        # The library's parser is stricter than ours, and raises many kinds of errors.
        raise _malformed(str(error)) from None
    for chosen in identities:
        try:
            expected = policy.Identity(identity=chosen.identity, issuer=chosen.issuer)
            expected.verify(parsed.signing_certificate)
            break
        except Exception:  # noqa: S112 - any error means that it is not this identity
            continue
    else:
        raise AotcError(
            "AOTC-G002",
            "the signature is by an identity that is not trusted",
            expected=", ".join(f"{item.identity} by {item.issuer}" for item in identities),
            found=claimed_name((certificate,)),
        )
    payload = _verified_payload(parsed, chosen, expected)
    key = TrustedKey(
        pem=leaf_key((certificate,)),
        origin=chosen.origin,
        certificate=f"{chosen.identity} by {chosen.issuer}",
    )
    return key, payload


def missing_sigstore(error: ModuleNotFoundError) -> AotcError:
    """AOTC-I019 for a missing package of the extra `sigstore`."""
    return AotcError(
        "AOTC-I019",
        f"keyless signatures need the package {error.name}",
        fix=install_extra("sigstore"),
    )


def _verified_payload(
    bundle: SigstoreBundle, identity: TrustedIdentity, expected: Identity
) -> bytes:
    from sigstore.errors import MetadataError

    verifier = _verifier(identity)
    try:
        _, payload = verifier.verify_dsse(bundle, expected)
    except MetadataError as error:
        raise _unreadable_roots(identity, error) from None
    except Exception as error:
        # For unsigned bundles the library also raises errors of the libraries that it uses.
        raise AotcError(
            "AOTC-G037",
            "the keyless signature does not verify",
            expected=f"{identity.identity} by {identity.issuer}, with an entry in the log",
            found=" ".join(str(error).split())[:300],
        ) from None
    return payload


def _verifier(identity: TrustedIdentity) -> Verifier:
    from sigstore.verify import Verifier

    # It warns on every offline use.
    logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)
    stated = identity.trusted_root
    try:
        if stated:
            return Verifier(trusted_root=_trusted_root(stated))
        return Verifier.production(offline=True)
    except Exception as error:
        raise _unreadable_roots(identity, error) from None


def _unreadable_roots(identity: TrustedIdentity, error: Exception) -> AotcError:
    stated = identity.trusted_root
    return AotcError(
        "AOTC-G013",
        "the trusted roots of sigstore cannot be read",
        where=identity.origin if _is_json_text(stated) else stated or identity.origin,
        found=" ".join(str(error).split())[:300],
    )


def _trusted_root(stated: str) -> TrustedRoot:
    from sigstore.models import TrustedRoot
    from sigstore_models.trustroot.v1 import TrustedRoot as Document

    if _is_json_text(stated):
        return TrustedRoot(Document.from_json(stated))
    return TrustedRoot.from_file(stated)


def _is_json_text(trusted_root: str) -> bool:
    """Whether it is a JSON document and not a path."""
    return trusted_root.lstrip().startswith("{")


def _malformed(found: str) -> AotcError:
    return malformed(ParseError([Problem("verificationMaterial", " ".join(found.split())[:300])]))
