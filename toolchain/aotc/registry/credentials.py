"""Logins as docker keeps them: its configuration, credential helpers, and tokens for them.

oras finds a login in the configuration, knows when a helper is to be asked, and asks for tokens.
Ours is which configuration it is (oras knows the one in the home folder alone), to which address a
login may be sent, one token for each kind of access, identity tokens, and that nothing fails in
silence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import oras.auth.token
import oras.auth.utils
import requests

from aotc.base.errors import AotcError
from aotc.base.files.reading import read_at_most
from aotc.registry.descriptors import read_document
from aotc.spec.codec import Json, ParseError
from aotc.spec.json import strict_json

_CONFIG_VARIABLE: Final = "DOCKER_CONFIG"
_CONTENT_VARIABLE: Final = "DOCKER_AUTH_CONFIG"
_MAX_CONFIG: Final = 1 << 20
_MAX_CHALLENGE: Final = 4096
_HELPER: Final = re.compile(r"[A-Za-z0-9._-]*")
# The user name under which helpers give an identity token.
_TOKEN_USER: Final = "<token>"  # noqa: S105 - no password


class Credentials:
    """The login of one registry, read when the registry first asks for one."""

    def __init__(
        self,
        registry: str,
        session: requests.Session,
        verify: str | bool,
        checked_address: Callable[[str, str], str],
    ) -> None:
        self._registry = registry
        self._session, self._verify = session, verify
        self._checked_address = checked_address
        self._lock = threading.Lock()
        self._headers: dict[str, str] = {}
        self._login: _DockerLogin | None = None

    def header(self, access: str) -> str | None:
        """The header `Authorization` for an access; None where none was asked for yet."""
        return self._headers.get(access)

    def described(self) -> str:
        """What there is to log in with, for people; says nothing of it."""
        if self._login is None:
            return ""
        has_one = self._login.basic or self._login.identity_token or self._login.registry_token
        return f"a login that may; docker's configuration has {'one' if has_one else 'none'}"

    def log_in(self, challenge: str, access: str, base: str, used: str | None) -> bool:
        """Answer a challenge (`WWW-Authenticate`); False where there is nothing else to try.

        `used` is the header that was refused.  Raises AOTC-I200 where docker's configuration cannot
        be used, and AOTC-I203 where tokens are given at an address that no login is sent to.
        """
        with self._lock:
            if self._headers.get(access) != used:
                # Another thread has logged in meanwhile.
                return True
            if self._login is None:
                self._login = _DockerLogin(self._registry, self._session, self._verify)
            # oras takes the square of the length to read what is none.
            challenge = challenge[:_MAX_CHALLENGE]
            scheme = challenge.partition(" ")[0].lower()
            if scheme == "basic":
                header = f"Basic {self._login.basic}" if self._login.basic else None
                if header == used:
                    return False
            elif scheme == "bearer":
                header = self._bearer(self._login, challenge, base)
            else:
                header = None
            if header is None:
                return False
            self._headers[access] = header
            return True

    def _bearer(self, login: _DockerLogin, challenge: str, base: str) -> str | None:
        asked = oras.auth.utils.parse_auth_header(challenge)
        if not asked.realm:
            return None
        asked.realm = self._checked_address(base, asked.realm)
        if login.registry_token:
            return f"Bearer {login.registry_token}"
        try:
            token = login.asked_token(asked)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise AotcError(
                "AOTC-I207",
                f"{urlsplit(asked.realm).netloc} gives no token that can be read",
                where=asked.realm,
                found=str(error),
            ) from None
        return f"Bearer {token}" if isinstance(token, str) and token.isprintable() else None


class _DockerLogin(oras.auth.token.TokenAuth):  # type: ignore[misc]
    """What docker's configuration has for a registry."""

    def __init__(self, registry: str, session: requests.Session, verify: str | bool) -> None:
        super().__init__()
        self.session, self._tls_verify = session, verify
        self._auth_config, where = _docker_configuration()
        # docker finds a login under the names of other days, too.
        auths: dict[str, Any] = self._auth_config["auths"]
        for name in (registry, f"https://{registry}", f"http://{registry}"):
            for key in (name, f"{name}/", f"{name}/v1/", f"{name}/v2/"):
                if registry not in auths and key in auths:
                    auths[registry] = auths[key]
        entry = auths.get(registry) or {}
        self.identity_token: str = entry.get("identitytoken", "")
        self.registry_token: str = entry.get("registrytoken", "")
        if not entry.get("auth") and entry.get("username") and entry.get("password"):
            auths[registry] = {
                "auth": oras.auth.utils.get_basic_auth(entry["username"], entry["password"])
            }
        # Under no other name: `load_configs` also tries 127.0.0.1 for each `localhost` in it.
        self._load_auth(registry)
        user, _, secret = self._plain_login(where).partition(":")
        if user == _TOKEN_USER:
            self.identity_token = secret
        if self.identity_token:
            # No password: what asks for one is refused.
            self.__dict__.pop("_basic_auth", None)

    @property
    def basic(self) -> str:
        """The login as the header `Authorization: Basic` has it; empty where there is none."""
        return str(getattr(self, "_basic_auth", "") or "")

    def asked_token(self, asked: oras.auth.utils.authHeader) -> object:
        """A token for what is asked, of the login or of nobody."""
        if self.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": self.identity_token,
                "service": asked.service or "",
                "scope": asked.scope or "",
                "client_id": "aotc",
            }
            answer = self._session_post(str(asked.realm), form)
            return answer.get("access_token") or answer.get("token")
        if self.basic:
            return self.request_token(asked)
        return self.request_anonymous_token(asked)

    def _session_post(self, realm: str, form: dict[str, str]) -> dict[str, Json]:
        response = self.session.post(realm, data=form, verify=self._tls_verify)
        return read_document(response.content, realm) if response.status_code == 200 else {}

    def _get_auth_from_creds_store(self, suffix: str, hostname: str) -> str | None:
        """The login that a helper has; oras takes one that fails for one that has none."""
        program = f"docker-credential-{suffix}"
        try:
            done = subprocess.run(
                [program, "get"], input=hostname.encode(), capture_output=True, check=False
            )
        except OSError as error:
            raise _unreadable(program, error.strerror or str(error)) from None
        if done.returncode:
            told = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
            if "credentials not found" in told:
                return None
            raise _unreadable(program, told[:200] or f"exit status {done.returncode}")
        try:
            found = json.loads(done.stdout)
            basic: str = oras.auth.utils.get_basic_auth(found["Username"], found["Secret"])
        except (ValueError, LookupError, TypeError) as error:
            raise _unreadable(program, f"an answer that is no login: {error}") from None
        return basic

    def _plain_login(self, where: str) -> str:
        try:
            return b64decode(self.basic, validate=True).decode()
        except (NotBase64, UnicodeDecodeError):
            raise _unreadable(where, "a login that is not base64 of USER:PASSWORD") from None


def _docker_configuration() -> tuple[dict[str, Any], str]:
    """docker's configuration, and where it stands; a variable's logins come before a file's."""
    folder = os.environ.get(_CONFIG_VARIABLE) or os.path.expanduser("~/.docker")  # noqa: PTH111
    where = str(Path(folder) / "config.json")
    try:
        # Without a home folder the name stays, and there is no such file.
        content = read_at_most(where, _MAX_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        content = b"{}"
    except OSError as error:
        raise _unreadable(where, error.strerror or str(error)) from None
    found = _checked(content, where)
    if stated := os.environ.get(_CONTENT_VARIABLE):
        content = stated.encode("utf-8", "surrogateescape")
        found["auths"] = {**found["auths"], **_checked(content, _CONTENT_VARIABLE)["auths"]}
        where = f"{_CONTENT_VARIABLE} or {where}"
    return found, where


def _checked(content: bytes, where: str) -> dict[str, Any]:
    """What oras reads of the configuration, of the types that it takes them to be."""
    try:
        document = strict_json(content, limit=_MAX_CONFIG)
    except ParseError as error:
        raise _unreadable(where, str(error)) from None
    if not isinstance(document, dict):
        raise _unreadable(where, "no JSON object")
    auths, helpers = document.get("auths") or {}, document.get("credHelpers") or {}
    store = document.get("credsStore") or ""
    if not isinstance(auths, dict) or not all(isinstance(row, dict) for row in auths.values()):
        raise _unreadable(where, "'auths' is no object of objects")
    texts = ("auth", "username", "password", "identitytoken", "registrytoken")
    if not all(isinstance(row.get(name, ""), str) for row in auths.values() for name in texts):
        raise _unreadable(where, "'auths' has a login that is no text")
    if not isinstance(helpers, dict) or not all(isinstance(row, str) for row in helpers.values()):
        raise _unreadable(where, "'credHelpers' is no object of texts")
    if not isinstance(store, str) or not all(map(_HELPER.fullmatch, (store, *helpers.values()))):
        raise _unreadable(where, "a credential helper is named as no program is")
    return {"auths": auths, "credHelpers": helpers, "credsStore": store}


def _unreadable(where: str, found: str) -> AotcError:
    return AotcError("AOTC-I200", "docker's credentials cannot be read", where=where, found=found)
