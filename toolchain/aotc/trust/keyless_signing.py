"""Keyless signing (sigstore): identity tokens, services, and a short-lived certificate."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.base.registry import Deferred
from aotc.base.text import printable
from aotc.spec.codec import Json, ParseError
from aotc.spec.json import strict_json
from aotc.spec.trust_anchors import TrustedIdentity
from aotc.trust import dsse, key_files
from aotc.trust.bundles import verify_bundle
from aotc.trust.keyless_verification import missing_sigstore

if TYPE_CHECKING:
    from sigstore import models
    from sigstore.models import ClientTrustConfig
    from sigstore.oidc import IdentityToken
    from sigstore.sign import SigningContext
else:
    models = Deferred("sigstore.models")


# Identity tokens of OIDC issuers, for which sigstore issues short-lived certificates.
#
# A token is a secret while it is valid, so it is never shown, stored or written. The templates of
# identities are those of the public configuration of the certificate authority (Fulcio).


VARIABLE: Final = "SIGSTORE_ID_TOKEN"
MAX_TOKEN_BYTES: Final = 1 << 16
# Issuers of GitHub Actions, whose host name differs from that in identities, and of CircleCI.
_PUBLIC_ACTIONS: Final = "token.actions.githubusercontent.com"
_ACTIONS: Final = "token.actions."
_CIRCLE: Final = "oidc.circleci.com/"

CONNECT_SECONDS: Final = 10.0
# A log may answer only when the entry is in its tree.
ANSWER_SECONDS: Final = 60.0
_MAX_CAUSES: Final = 4


@record(kw_only=False)
class Identity:
    """A token, its issuer, and the possible names, of which a certificate for it holds one."""

    token: IdentityToken = field(repr=False)
    issuer: str
    names: tuple[str, ...]

    @property
    def tag(self) -> str:
        """16 hexadecimal digits, the same for every token of this identity."""
        text = f"{self.issuer}\n{self.token.identity}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def read_token(path: Path | None) -> Identity:
    """The identity of the token in a file, in `$SIGSTORE_ID_TOKEN`, or from the CI system.

    The first of these that exists is used.  Raises AOTC-I001 if the file cannot be read, I037 if
    there is no token or it is not valid now, and I019 if the extra is not installed.
    """
    try:
        from sigstore.oidc import IdentityError, IdentityToken
    except ModuleNotFoundError as error:
        raise missing_sigstore(error) from None
    raw, where = _token_text(path)
    try:
        token = IdentityToken(raw)
    except (IdentityError, LookupError, TypeError, ValueError, OverflowError) as error:
        # The cause says which part is wrong, and holds no part of the token.
        raise _unusable(where, str(error.__cause__ or error)) from None
    names = tuple(dict.fromkeys(_names(_claims(raw, where), token.issuer)))
    if not names:
        raise _unusable(where, "it has neither email nor sub")
    return Identity(token=token, issuer=token.federated_issuer, names=names)


def _token_text(path: Path | None) -> tuple[str, str]:
    """The text of the token, and its origin."""
    if path is not None:
        data, where = key_files.read(path), str(path)
    elif os.environ.get(VARIABLE):
        data, where = os.fsencode(os.environ[VARIABLE]), f"${VARIABLE}"
    else:
        data, where = _ci_token(), "this CI job"
    if len(data) > MAX_TOKEN_BYTES:
        raise _unusable(where, f"it has {len(data)} bytes")
    try:
        return data.decode("ascii").strip(), where
    except UnicodeDecodeError:
        raise _unusable(where, "it is not ASCII") from None


def _ci_token() -> bytes:
    from sigstore.oidc import IdentityError, detect_credential
    from urllib3.exceptions import HTTPError

    try:
        found = detect_credential()
    except (IdentityError, HTTPError, OSError, ValueError) as error:
        raise AotcError(
            "AOTC-I037",
            "the CI system does not give this job an identity token",
            where="this CI job",
            found=" ".join(str(error).split())[:300],
            fix="Allow the job to get one: on GitHub Actions, 'permissions: id-token: write'.",
        ) from None
    if found is None:
        raise AotcError(
            "AOTC-I037",
            "there is no identity token",
            expected=f"--identity-token, ${VARIABLE}, or a CI system that gives one",
        )
    return found.encode("utf-8", "replace")


def _claims(raw: str, where: str) -> Mapping[str, Json]:
    """The claims of a token (RFC 7519), not verified; the certificate authority verifies them."""
    try:
        middle = raw.split(".")[1]
        claims = strict_json(
            base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)), limit=MAX_TOKEN_BYTES
        )
    except (IndexError, binascii.Error, ParseError) as error:
        raise _unusable(where, str(error)) from None
    if not isinstance(claims, dict):
        raise _unusable(where, "its claims are not a mapping")
    return claims


def _names(claims: Mapping[str, Json], issuer: str) -> Iterator[str]:
    """The names that the authority may derive from the claims; the issuer decides which one."""
    for template, wanted in (
        (_actions_template(issuer), ("job_workflow_ref",)),
        ("https://{}", ("ci_config_ref_uri",)),
        ("https://buildkite.com/{}/{}", ("organization_slug", "pipeline_slug")),
        (
            "https://circleci.com/api/v2/projects/{}/pipeline-definitions/{}",
            (f"{_CIRCLE}project-id", f"{_CIRCLE}pipeline-definition-id"),
        ),
        ("{}", ("email",)),
        ("{}", ("sub",)),
    ):
        values = [text for name in wanted if isinstance(text := claims.get(name), str) and text]
        if len(values) == len(wanted):
            yield template.format(*values)


def _actions_template(issuer: str) -> str:
    """The URL template of an issuer's workflows: on the public host, or on an enterprise's."""
    try:
        host = urlsplit(issuer).hostname or ""
    except ValueError:
        host = ""
    own = host.removeprefix(_ACTIONS)
    public = host == _PUBLIC_ACTIONS or own == host or "{" in own or "}" in own
    return f"https://{'github.com' if public else own}/{{}}"


def _unusable(where: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I037",
        "the identity token is not usable",
        where=where,
        expected="an OIDC identity token for 'sigstore' that is valid now and has an identity",
        found=" ".join(found.split())[:300],
    )


# Keyless signing (sigstore): with a short-lived certificate, and an entry in a transparency log.
#
# The library `sigstore`, from the extra `sigstore`, calls the services; their result is used only
# if the verifier of this package accepts it for the identity of the token.


class KeylessSigner:
    """Signs for the identity of a token, each statement with a new key.

    `token_file` and `trust_config` are paths.  Without them, the token comes from the environment,
    and the services are the public ones.
    """

    def __init__(
        self, token_file: str | Path | None = None, trust_config: str | Path | None = None
    ) -> None:
        """Raises AOTC-I001, I019 or I037 if token or configuration is unusable."""
        self._token_file = None if token_file is None else Path(token_file)
        self._identity = read_token(self._token_file)
        self._config = None if trust_config is None else read_config(Path(trust_config))

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
                "AOTC-I037", "the sigstore services did not sign", found=error_text(error)
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

    def _services(self) -> models.ClientTrustConfig:
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
        raise AotcError("AOTC-I037", "the sigstore services signed another payload")


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
