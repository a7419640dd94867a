"""The services of sigstore that sign for an identity: the public ones, or those of a company."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aotc.errors import AotcError
from aotc.escaping import printable
from aotc.signing.keyless.identity_token import Identity
from aotc.signing.keyless_verification import not_installed
from aotc.signing.keys import key_files

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

CONNECT_SECONDS: Final = 10.0
# A log may answer only once the entry is in its tree.
ANSWER_SECONDS: Final = 60.0
_MOST_CAUSES: Final = 4


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
            found=said(error),
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


def public_config() -> ClientTrustConfig:
    """The services of the public sigstore; raises I037 where they cannot be reached."""
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.production()
    # What an update of its roots may raise is that of three libraries.
    except Exception as error:
        raise AotcError(
            "AOTC-I037", "the public sigstore cannot be reached", found=said(error)
        ) from None


def _keeps_secrets(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def sign_payload(config: ClientTrustConfig, identity: Identity, payload: bytes) -> bytes:
    """A bundle over an in-toto statement, as the services make it; raises what `sigstore` does."""
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


def said(error: BaseException) -> str:
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
