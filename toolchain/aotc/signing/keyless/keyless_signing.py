"""Signing without a kept key (sigstore keyless): a certificate of minutes, an entry in a log.

The library `sigstore` asks the services, from the extra `sigstore`; what they answer is taken only
where the verifier of this package accepts it for the identity of the token.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.trust.anchors import TrustedIdentity
from aotc.errors import AotcError
from aotc.signing import dsse
from aotc.signing.bundle_verification import verify_bundle
from aotc.signing.keyless.identity_token import Identity, read_token
from aotc.signing.keyless.sigstore_services import public_config, read_config, said, sign_payload

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig


class KeylessSigner:
    """Whoever the identity token names; each statement is signed with a key of its own.

    `token_file` and `trust_config` are paths; without them the token is that of the environment
    and the services are the public ones.
    """

    def __init__(self, token_file: Path | None = None, trust_config: Path | None = None) -> None:
        """Raises I001, I019 and I037; nothing is asked of the services yet."""
        self._token_file = token_file
        self._identity = read_token(token_file)
        self._config = None if trust_config is None else read_config(trust_config)

    def tag(self) -> str:
        """16 hex digits that tell this identity from others."""
        return self._identity.tag

    def issuer(self) -> str:
        """The OIDC issuer, as certificates name it."""
        return self._identity.issuer

    def seal(self, payload: bytes) -> bytes:
        """A bundle over an in-toto statement, made by the services and verified here.

        Raises I037 where a service cannot be reached within its time or refuses, or where its
        answer does not verify for the identity of the token.
        """
        identity = self._current()
        config = self._config or public_config()
        try:
            data = sign_payload(config, identity, payload)
        except AotcError:
            raise
        # Services are others', and the library raises whatever a malformed answer of one causes.
        except Exception as error:
            raise AotcError(
                "AOTC-I037", "the services of sigstore did not sign", found=said(error)
            ) from None
        _check(data, payload, identity, config)
        return data

    def _current(self) -> Identity:
        """The identity, with another token where the first has expired in the meantime."""
        if self._identity.token.in_validity_period():
            return self._identity
        again = read_token(self._token_file)
        if again.tag != self._identity.tag:
            raise AotcError("AOTC-I037", "the identity token names another one than before")
        self._identity = again
        return again


def _check(data: bytes, payload: bytes, identity: Identity, config: ClientTrustConfig) -> None:
    """Raise I037 unless the bundle is one that verifiers take, of this payload and identity."""
    roots = config.trusted_root._inner.to_json()
    anchors = [
        TrustedIdentity(
            identity=name, issuer=identity.issuer, origin="identity token", trusted_root=roots
        )
        for name in identity.names
    ]
    try:
        verified = verify_bundle(dsse.parse(data), anchors)
    except AotcError as error:
        raise AotcError(
            "AOTC-I037",
            "what the services of sigstore signed does not verify for the identity token",
            expected=f"{' or '.join(identity.names)} by {identity.issuer}",
            found=error.line(),
            also=(error,),
        ) from None
    if verified.payload != payload:
        raise AotcError("AOTC-I037", "the services of sigstore signed something else")
