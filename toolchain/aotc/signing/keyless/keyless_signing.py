"""Keyless signing (sigstore): with a short-lived certificate, and an entry in a transparency log.

The library `sigstore`, from the extra `sigstore`, calls the services; their result is used only if
the verifier of this package accepts it for the identity of the token.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.trust.anchors import TrustedIdentity
from aotc.errors import AotcError
from aotc.signing import dsse
from aotc.signing.bundle_verification import verify_bundle
from aotc.signing.keyless.identity_token import Identity, read_token
from aotc.signing.keyless.sigstore_services import (
    error_text,
    public_config,
    read_config,
    sign_payload,
)

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig


class KeylessSigner:
    """Signs for the identity of a token, each statement with a new key.

    `token_file` and `trust_config` are paths.  Without them, the token comes from the environment,
    and the services are the public ones.
    """

    def __init__(self, token_file: Path | None = None, trust_config: Path | None = None) -> None:
        """Raises AOTC-I001, I019 or I037 if token or configuration is unusable."""
        self._token_file = token_file
        self._identity = read_token(token_file)
        self._config = None if trust_config is None else read_config(trust_config)

    def tag(self) -> str:
        """16 hexadecimal digits that identify the signer."""
        return self._identity.tag

    def issuer(self) -> str:
        """The URL of the OIDC issuer, as certificates name it."""
        return self._identity.issuer

    def seal(self, payload: bytes) -> bytes:
        """A bundle with an in-toto statement, signed by the services and verified here.

        Raises AOTC-I037 if a service cannot be reached in time or refuses, or if its result does
        not verify for the identity of the token.
        """
        identity = self._current_identity()
        config = self._services()
        try:
            data = sign_payload(config, identity, payload)
        except AotcError:
            raise
        # The library raises any kind of error for a malformed answer of a service.
        except Exception as error:
            raise AotcError(
                "AOTC-I037", "the services of sigstore did not sign", found=error_text(error)
            ) from None
        _check(data, payload, self.anchors())
        return data

    def anchors(self) -> tuple[TrustedIdentity, ...]:
        """The names that the certificate may hold, for the roots of the services.

        Raises AOTC-I037 if the public services cannot be reached for their roots.
        """
        roots = self._services().trusted_root._inner.to_json()
        return tuple(
            TrustedIdentity(
                identity=name,
                issuer=self._identity.issuer,
                origin="identity token",
                trusted_root=roots,
            )
            for name in self._identity.names
        )

    def _services(self) -> ClientTrustConfig:
        """The services, of which the public ones are fetched once."""
        if self._config is None:
            self._config = public_config()
        return self._config

    def _current_identity(self) -> Identity:
        """The identity, with a new token if the first one has expired meanwhile."""
        if self._identity.token.in_validity_period():
            return self._identity
        renewed = read_token(self._token_file)
        if renewed.tag != self._identity.tag:
            raise AotcError("AOTC-I037", "the new identity token is for another identity")
        self._identity = renewed
        return renewed


def _check(data: bytes, payload: bytes, anchors: tuple[TrustedIdentity, ...]) -> None:
    """Raise AOTC-I037 unless the bundle verifies for this payload and one of the identities."""
    try:
        verified = verify_bundle(dsse.parse(data), anchors)
    except AotcError as error:
        raise AotcError(
            "AOTC-I037",
            "the result of the sigstore services does not verify for the identity token",
            expected=" or ".join(f"{who.identity} by {who.issuer}" for who in anchors),
            found=error.line(),
            also=(error,),
        ) from None
    if verified.payload != payload:
        raise AotcError("AOTC-I037", "the services of sigstore signed another payload")
