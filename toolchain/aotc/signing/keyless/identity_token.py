"""Identity tokens: what an OIDC issuer says of whoever runs this, for a certificate of minutes.

A token is a secret while it is valid: none is ever shown, kept or written.  The templates of
identities are those of the certificate authority's public configuration (Fulcio).
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
from aotc.signing.keyless_verification import not_installed
from aotc.signing.keys import key_files

if TYPE_CHECKING:
    from sigstore.oidc import IdentityToken

VARIABLE: Final = "SIGSTORE_ID_TOKEN"
MAX_TOKEN_BYTES: Final = 1 << 16
# Hosts whose name is not that of their issuer.
_PUBLIC_ACTIONS: Final = "token.actions.githubusercontent.com"
_ACTIONS: Final = "token.actions."
_CIRCLE: Final = "oidc.circleci.com/"


@record(kw_only=False)
class Identity:
    """A token, its issuer, and the names that a certificate for it may hold: one of them."""

    token: IdentityToken = field(repr=False)
    issuer: str
    names: tuple[str, ...]

    @property
    def tag(self) -> str:
        """16 hex digits that are the same for every token of this identity."""
        said = f"{self.issuer}\n{self.token.identity}"
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]


def read_token(path: Path | None) -> Identity:
    """The token in a file, else in `$SIGSTORE_ID_TOKEN`, else what the CI gives to its jobs.

    Raises I001 where the file cannot be read, I037 where there is no token or it is not usable
    now, I019 where the extra is not installed.
    """
    try:
        from sigstore.oidc import IdentityError, IdentityToken
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    raw, where = _raw(path)
    try:
        token = IdentityToken(raw)
    except (IdentityError, LookupError, TypeError, ValueError, OverflowError) as error:
        # Its cause says which part, and holds nothing of the token.
        raise _unusable(where, str(error.__cause__ or error)) from None
    names = tuple(dict.fromkeys(_names(_claims(raw, where), token.issuer)))
    if not names:
        raise _unusable(where, "it names nobody: neither email nor sub")
    return Identity(token=token, issuer=token.federated_issuer, names=names)


def _raw(path: Path | None) -> tuple[str, str]:
    """The text of the token, and where it came from."""
    if path is not None:
        data, where = key_files.read(path), str(path)
    elif os.environ.get(VARIABLE):
        data, where = os.fsencode(os.environ[VARIABLE]), f"${VARIABLE}"
    else:
        data, where = _ambient(), "this CI job"
    if len(data) > MAX_TOKEN_BYTES:
        raise _unusable(where, f"it has {len(data)} bytes")
    try:
        return data.decode("ascii").strip(), where
    except UnicodeDecodeError:
        raise _unusable(where, "it is not ASCII") from None


def _ambient() -> bytes:
    from sigstore.oidc import IdentityError, detect_credential
    from urllib3.exceptions import HTTPError

    try:
        found = detect_credential()
    except (IdentityError, HTTPError, OSError, ValueError) as error:
        raise AotcError(
            "AOTC-I037",
            "the CI gives this job no identity token",
            where="this CI job",
            found=" ".join(str(error).split())[:300],
            fix="Let the job ask for one: on GitHub Actions, 'permissions: id-token: write'.",
        ) from None
    if found is None:
        raise AotcError(
            "AOTC-I037",
            "there is no identity token",
            expected=f"--identity-token, ${VARIABLE}, or a CI that gives one to its jobs",
        )
    return found.encode("utf-8", "replace")


def _claims(raw: str, where: str) -> Mapping[str, Json]:
    """What a token says (RFC 7519), which its issuer signed and the authority will verify."""
    try:
        middle = raw.split(".")[1]
        said = strict_json(
            base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)), limit=MAX_TOKEN_BYTES
        )
    except (IndexError, binascii.Error, ParseError) as error:
        raise _unusable(where, str(error)) from None
    if not isinstance(said, dict):
        raise _unusable(where, "its claims are not a mapping")
    return said


def _names(claims: Mapping[str, Json], issuer: str) -> Iterator[str]:
    """What the authority may make of the claims: which one, it decides by the issuer."""
    for template, wanted in (
        (_actions(issuer), ("job_workflow_ref",)),
        ("https://{}", ("ci_config_ref_uri",)),
        ("https://buildkite.com/{}/{}", ("organization_slug", "pipeline_slug")),
        (
            "https://circleci.com/api/v2/projects/{}/pipeline-definitions/{}",
            (f"{_CIRCLE}project-id", f"{_CIRCLE}pipeline-definition-id"),
        ),
        ("{}", ("email",)),
        ("{}", ("sub",)),
    ):
        said = [text for each in wanted if isinstance(text := claims.get(each), str) and text]
        if len(said) == len(wanted):
            yield template.format(*said)


def _actions(issuer: str) -> str:
    """Where workflows live whose issuer this is: the public host, or that of an enterprise."""
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
        expected="an OIDC identity token for 'sigstore', valid now, that names somebody",
        found=" ".join(found.split())[:300],
    )
