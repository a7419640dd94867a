"""Identity tokens of OIDC issuers, for which sigstore issues short-lived certificates.

A token is a secret while it is valid, so it is never shown, stored or written.  The templates of
identities are those of the public configuration of the certificate authority (Fulcio).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aotc.contract.codec.parsing import Json, ParseError
from aotc.contract.codec.strict_json import strict_json
from aotc.errors import AotcError
from aotc.records import field, record
from aotc.signing.keyless_verification import missing_sigstore
from aotc.signing.keys import key_files

if TYPE_CHECKING:
    from sigstore.oidc import IdentityToken

VARIABLE: Final = "SIGSTORE_ID_TOKEN"
MAX_TOKEN_BYTES: Final = 1 << 16
# Issuers of GitHub Actions, whose host name differs from that in identities, and of CircleCI.
_PUBLIC_ACTIONS: Final = "token.actions.githubusercontent.com"
_ACTIONS: Final = "token.actions."
_CIRCLE: Final = "oidc.circleci.com/"


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
