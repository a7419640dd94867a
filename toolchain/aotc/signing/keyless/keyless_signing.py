"""Signing without a kept key (sigstore keyless): a certificate of minutes, an entry in a log.

The library `sigstore` asks the services, from the extra `sigstore`; what they answer is taken only
where the verifier of this package accepts it for the identity of the token.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aotc.contract.trust.anchors import TrustedIdentity
from aotc.errors import AotcError
from aotc.escaping import printable
from aotc.signing import dsse
from aotc.signing.keyless.identities import not_installed
from aotc.signing.keyless.identity_token import Identity, read_token
from aotc.signing.keys import key_files

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

CONNECT_SECONDS: Final = 10.0
# A log may answer only once the entry is in its tree.
ANSWER_SECONDS: Final = 60.0
_MOST_CAUSES: Final = 4


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
        config = self._config or _public()
        try:
            data = _signed(config, identity, payload)
        except AotcError:
            raise
        # Services are others', and the library raises whatever a malformed answer of one causes.
        except Exception as error:
            raise AotcError(
                "AOTC-I037", "the services of sigstore did not sign", found=_said(error)
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


def read_config(path: Path) -> ClientTrustConfig:
    """The services of a private sigstore and whom it trusts, from a ClientTrustConfig (JSON).

    Raises I001, I019 and I037.
    """
    try:
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    data = key_files.read(path)
    try:
        config = ClientTrustConfig.from_json(data.decode("utf-8"))
        # Both are read at their first use only.
        service = config.signing_config.get_fulcio().url
        config.signing_config.get_tlogs()
        _ = config.trusted_root
    except (Error, ValueError) as error:
        raise AotcError(
            "AOTC-I037",
            "the file is no trust configuration of a sigstore that signs",
            where=str(path),
            expected="a ClientTrustConfig v0.1 in JSON, with services that are valid now",
            found=_said(error),
        ) from None
    if not _keeps_secrets(service):
        raise AotcError(
            "AOTC-I037",
            "the certificate authority would get the identity token in the clear",
            where=str(path),
            expected="an https: address",
            found=service,
        )
    return config


def _public() -> ClientTrustConfig:
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.production()
    # What an update of its roots may raise is that of three libraries.
    except Exception as error:
        raise AotcError(
            "AOTC-I037", "the public sigstore cannot be reached", found=_said(error)
        ) from None


def _keeps_secrets(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _signed(config: ClientTrustConfig, identity: Identity, payload: bytes) -> bytes:
    from sigstore.dsse import Statement

    statement = Statement(payload)
    with _context(config) as context, context.signer(identity.token) as signer:
        return signer.sign_dsse(statement).to_json().encode("utf-8")


@contextlib.contextmanager
def _context(config: ClientTrustConfig) -> Iterator[SigningContext]:
    """The services, none of which may keep a caller waiting."""
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from sigstore.sign import SigningContext

    class Impatient(HTTPAdapter):
        def send(self, request: PreparedRequest, *args: object, **words: object) -> Response:
            # The library states none, and would wait for ever.
            words["timeout"] = words.get("timeout") or (CONNECT_SECONDS, ANSWER_SECONDS)
            return super().send(request, *args, **words)  # type: ignore[arg-type]

    services = config.signing_config
    authority, log = services.get_fulcio(), services.get_tlogs()[0]
    with authority.session as asked, log._session as told:  # type: ignore[attr-defined]
        for session in (asked, told):
            for scheme in ("https://", "http://"):
                session.mount(scheme, Impatient())
        yield SigningContext(
            fulcio=authority,
            rekor=log,
            trusted_root=config.trusted_root,
            tsa_clients=services.get_tsas(),
        )


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
        verified = dsse.verify(dsse.parse(data), anchors)
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


def _said(error: BaseException) -> str:
    """An error with its causes and what a service answered, in one line."""
    return ": ".join(dict.fromkeys(_parts(error)))[:500]


def _parts(error: BaseException) -> Iterator[str]:
    each: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if each is None:
            return
        yield _line(str(each)) or type(each).__name__
        response = getattr(each, "response", None)
        if response is not None:
            yield _line(response.text)[:200]
        each = each.__cause__


def _line(text: str) -> str:
    return printable(" ".join(text.split()))
