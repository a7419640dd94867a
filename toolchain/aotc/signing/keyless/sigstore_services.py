"""The sigstore services that sign for an identity: public or private ones."""

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
from aotc.signing.keyless_verification import missing_sigstore
from aotc.signing.keys import key_files

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.sign import SigningContext

CONNECT_SECONDS: Final = 10.0
# A log may answer only when the entry is in its tree.
ANSWER_SECONDS: Final = 60.0
_MAX_CAUSES: Final = 4


def read_config(path: Path) -> ClientTrustConfig:
    """The services and trusted roots of a private sigstore, from a ClientTrustConfig (JSON).

    Raises AOTC-I001 if the file cannot be read, I019 if the extra is not installed, and I037 if the
    file is not such a configuration, or the certificate authority has no https: address.
    """
    try:
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig
    except ModuleNotFoundError as error:
        raise missing_sigstore(error) from None
    data = key_files.read(path)
    try:
        config = ClientTrustConfig.from_json(data.decode("utf-8"))
        # The library reads these at their first use only.
        service = config.signing_config.get_fulcio().url
        config.signing_config.get_tlogs()
        _ = config.trusted_root
    except (Error, ValueError) as error:
        raise AotcError(
            "AOTC-I037",
            "the file is not a sigstore trust configuration for signing",
            where=str(path),
            expected="a ClientTrustConfig v0.1 in JSON, with services that are valid now",
            found=error_text(error),
        ) from None
    if not _is_confidential(service):
        raise AotcError(
            "AOTC-I037",
            "the identity token would be sent to the certificate authority unencrypted",
            where=str(path),
            expected="an https: address",
            found=service,
        )
    return config


def public_config() -> ClientTrustConfig:
    """The services of the public sigstore; raises AOTC-I037 if they cannot be reached."""
    from sigstore.models import ClientTrustConfig

    try:
        return ClientTrustConfig.production()
    # Updating the roots may raise errors of three libraries.
    except Exception as error:
        raise AotcError(
            "AOTC-I037", "the public sigstore cannot be reached", found=error_text(error)
        ) from None


def _is_confidential(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def sign_payload(config: ClientTrustConfig, identity: Identity, payload: bytes) -> bytes:
    """A bundle with an in-toto statement, signed by the services; raises what `sigstore` does."""
    from sigstore.dsse import Statement

    statement = Statement(payload)
    with _context(config) as context, context.signer(identity.token) as signer:
        return signer.sign_dsse(statement).to_json().encode("utf-8")


@contextlib.contextmanager
def _context(config: ClientTrustConfig) -> Iterator[SigningContext]:
    """A signing context in which every request to a service has a time limit."""
    from requests import PreparedRequest, Response
    from requests.adapters import HTTPAdapter
    from sigstore.sign import SigningContext

    class TimeLimitAdapter(HTTPAdapter):
        def send(self, request: PreparedRequest, *args: object, **options: object) -> Response:
            # The library sets no time limit, and could wait forever.
            options["timeout"] = options.get("timeout") or (CONNECT_SECONDS, ANSWER_SECONDS)
            return super().send(request, *args, **options)  # type: ignore[arg-type]

    services = config.signing_config
    authority, log = services.get_fulcio(), services.get_tlogs()[0]
    with authority.session as first, log._session as second:  # type: ignore[attr-defined]
        for session in (first, second):
            for scheme in ("https://", "http://"):
                session.mount(scheme, TimeLimitAdapter())
        yield SigningContext(
            fulcio=authority,
            rekor=log,
            trusted_root=config.trusted_root,
            tsa_clients=services.get_tsas(),
        )


def error_text(error: BaseException) -> str:
    """An error in one line, with its causes and the answer of the service."""
    return ": ".join(dict.fromkeys(_error_parts(error)))[:500]


def _error_parts(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        yield _single_line(str(cause)) or type(cause).__name__
        response = getattr(cause, "response", None)
        if response is not None:
            yield _single_line(response.text)[:200]
        cause = cause.__cause__


def _single_line(text: str) -> str:
    return printable(" ".join(text.split()))
