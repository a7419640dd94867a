"""Requests to a registry: who may be asked how, what is tried again, and errors as reasons.

oras brings the library of HTTP and what it does for logins (`credentials.py`).  Its own requests
follow redirects with less care, hold blobs in memory and try everything again for minutes.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InvalidHeader,
    LocationParseError,
    NewConnectionError,
    ProxyError,
    SSLError,
)

from aotc.base.errors import AotcError
from aotc.base.files.failures import translated_errors
from aotc.base.files.reading import read_at_most
from aotc.base.interruptions import stop_if_interrupted
from aotc.registry.credentials import Credentials
from aotc.registry.descriptors import MAX_MANIFEST, read_document

PLAIN_HTTP_VARIABLE: Final = "AOTC_OCI_PLAIN_HTTP"
CA_VARIABLE: Final = "AOTC_OCI_CA"

ATTEMPTS: Final = 6
"""How often something is tried that fails for now."""
PROGRESS: Final = 1 << 20
"""A transfer that is cut after less than this, in bytes, is not making progress."""
# To connect, or to send a block; and between two pieces of an answer; in seconds.
_TIMEOUT: Final = (30.0, 60.0)
_LONGEST_PAUSE: Final = 60.0
_FIRST_PAUSE: Final = 0.5
_PASSING: Final = frozenset((408, 429, 500, 502, 503, 504))
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_MAX_REDIRECTS: Final = 5
_BLOCK: Final = 256 << 10
# A server that sends fewer bytes in so many seconds of waiting for it is not waited for.
_SLOWEST: Final = 60 << 10
_PATIENCE: Final = 60.0
_MAX_CERTIFICATES: Final = 4 << 20
_UNREACHED: Final = (NewConnectionError, ConnectTimeoutError, ProxyError)
_INVALID: Final = (
    *(InvalidHeader, LocationParseError, UnicodeError),
    *(requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema),
    requests.exceptions.InvalidHeader,
)
# Of what else stands in a host, urllib3 and requests may make another host than was checked.
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9._:-]+")
# Docker's own registry answers under another name than it is called.
_DOCKER_HUB: Final = ("docker.io", "registry-1.docker.io", "https://index.docker.io/v1/")
_USE_PLAIN_HTTP: Final = (
    "If the host speaks plain HTTP: --plain-http, or AOTC_OCI_PLAIN_HTTP={host}. Otherwise name "
    "the CA of the registry: --ca FILE, or AOTC_OCI_CA."
)
_USE_TLS: Final = (
    "Read the registry's message. If it speaks TLS, which loopback and hosts of plain HTTP are not "
    "asked for, name its CA: --ca FILE, or AOTC_OCI_CA."
)


class Part:
    """A part of a file as the body of a request; read anew each time that it is sent."""

    def __init__(
        self,
        opened: Callable[[], BinaryIO],
        offset: int,
        length: int,
        told: Callable[[int], None],
    ) -> None:
        self._opened, self._offset, self._length, self._told = opened, offset, length, told

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[bytes]:
        at, end = 0, self._offset + self._length
        with translated_errors(), self._opened() as file:
            if file.seekable():
                at = file.seek(self._offset)
            while at < end:
                stop_if_interrupted()
                skipped = at < self._offset
                block = file.read(min(_BLOCK, (self._offset if skipped else end) - at))
                if not block:
                    # The connection is closed with the error, so that nothing half is taken.
                    raise AotcError(
                        "AOTC-I205",
                        "A file became shorter while it was sent",
                        expected=f"{end} bytes",
                        found=f"{at} bytes",
                        fix="Leave the artifact's files alone while they are pushed.",
                    )
                at += len(block)
                if not skipped:
                    self._told(len(block))
                    yield block


class Body:
    """The bytes of an answer as they come, undecoded."""

    def __init__(self, response: requests.Response) -> None:
        self._raw = response.raw
        self._count, self._waited = 0, 0.0

    def read(self, most: int) -> bytes:
        """What has come, at most `most` bytes; empty at the end.

        Raises TimeoutError where next to nothing comes, and what the network does.
        """
        stop_if_interrupted()
        before = time.monotonic()
        block: bytes = self._raw.read1(min(most, _BLOCK), decode_content=False)
        self._waited += time.monotonic() - before
        self._count += len(block)
        if block and self._waited >= _PATIENCE:
            if self._count < _SLOWEST:
                raise TimeoutError(f"{self._count} bytes in {self._waited:.0f} seconds")
            self._count, self._waited = 0, 0.0
        return block


class Cut(Exception):
    """A request that failed for now: `reason` is what to raise when it is not tried again."""

    def __init__(self, reason: AotcError, pause: float | None = None) -> None:
        self.reason, self.pause = reason, pause
        super().__init__(reason.line())


class Connection:
    """Requests to one registry, and to where it sends for content; from several threads at once."""

    def __init__(self, registry: str, *, plain_http: bool, ca: Path | None) -> None:
        """Raises AOTC-I208 where the certificates of `ca` cannot be read."""
        hub = registry == _DOCKER_HUB[0]
        self.registry = registry
        ca = ca or (Path(stated) if (stated := os.environ.get(CA_VARIABLE)) else None)
        self._plain_hosts = _stated_hosts() | ({registry} if plain_http else set())
        self._encrypts_loopback = ca is not None
        verify = _trusted(ca)
        self._session = _Session(verify, proxies=not is_loopback(registry))
        self.scheme = "http" if self._speaks_plain_http(registry) else "https"
        self.base = f"{self.scheme}://{_DOCKER_HUB[1] if hub else registry}"
        self._credentials = Credentials(
            _DOCKER_HUB[2] if hub else registry, self._session, verify, self.checked_address
        )

    def ask(
        self,
        method: str,
        url: str,
        access: str,
        *,
        expected: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | Part | None = None,
        stream: bool = False,
    ) -> requests.Response:
        """The answer to a request, after logins and redirects; with its body unless `stream`.

        `access` names what may be done with a token: requests with equal ones share theirs.  Raises
        the refusal of a status that is not `expected`; without any, all but 401 and 403 are
        returned.  A `Part` is sent once: what fails for now raises `Cut`.
        """
        response = self._followed(method, url, access, dict(headers or {}), body, stream)
        if response.status_code in (expected or (response.status_code,)):
            if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
                response.close()
                raise AotcError(
                    "AOTC-I207",
                    "The registry's answer is encoded, which was not asked for",
                    where=shown(url),
                    expected="no Content-Encoding",
                    found=response.headers["Content-Encoding"],
                )
            return response
        raise self.refusal(response, method, url)

    def checked_address(self, base: str, location: str) -> str:
        """Where a redirect from `base` leads, or content is to be sent; raises AOTC-I203."""
        try:
            target = urljoin(base, location)
            problem = self._problem(urlsplit(base), urlsplit(target))
        except ValueError:
            target, problem = location, "no valid address"
        if problem:
            raise AotcError(
                "AOTC-I203",
                f"{self.registry} sends to {problem}",
                where=shown(base),
                found=shown(target),
            )
        return target

    def _problem(self, old: SplitResult, new: SplitResult) -> str:
        """What keeps a request from going on elsewhere; empty: nothing."""
        if new.scheme not in ("http", "https") or not new.hostname:
            return "no address of HTTP"
        if new.username is not None:
            return "an address with a login"
        if not _HOST_NAME.fullmatch(new.hostname):
            return "no valid address"
        if _origin(new) == _origin(old):
            return ""
        if old.scheme == "https" and new.scheme == "http":
            return "plain HTTP, from HTTPS"
        if new.scheme == "http" and not self._speaks_plain_http(new.netloc):
            return "plain HTTP on another host"
        if _is_internal(new.hostname) and not _is_internal(str(old.hostname)):
            return "a host of this machine or its link"
        return ""

    def refusal(self, response: requests.Response, method: str, url: str) -> AotcError:
        """The reason that a status is; the answer is closed."""
        status = response.status_code
        with contextlib.suppress(Cut, AotcError):
            if not response.headers.get("Content-Encoding"):
                self._session.read_whole(response)
        response.close()
        code, what = "AOTC-I202", f"{self.registry} refuses a request ({method})"
        expected = fix = ""
        if status in (401, 403):
            step = "reading" if method in ("GET", "HEAD") else "writing"
            code, what = "AOTC-I199", f"{self.registry} does not allow {step}"
            expected = self._credentials.described()
        elif status == 404:
            code, what = "AOTC-I201", f"{self.registry} does not have it"
        elif status == 400 and url.startswith("http:"):
            fix = _USE_TLS
        return AotcError(
            code, what, where=shown(url), expected=expected, found=_told(response), fix=fix
        )

    def _followed(
        self,
        method: str,
        url: str,
        access: str,
        headers: dict[str, str],
        body: bytes | Part | None,
        stream: bool,
    ) -> requests.Response:
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._authorized(method, url, access, headers, body, stream)
            location = response.headers.get("Location")
            same_method = response.status_code in (307, 308) or method in ("GET", "HEAD")
            if response.status_code not in _REDIRECTS or not location or not same_method:
                return response
            response.close()
            url = self.checked_address(url, location)
        raise AotcError(
            "AOTC-I203",
            f"{self.registry} redirects too often",
            where=shown(url),
            expected=f"at most {_MAX_REDIRECTS} redirects",
        )

    def _authorized(
        self,
        method: str,
        url: str,
        access: str,
        headers: dict[str, str],
        body: bytes | Part | None,
        stream: bool,
    ) -> requests.Response:
        own = _origin(urlsplit(url)) == _origin(urlsplit(self.base))
        # A token may have ended: once more with another one.
        for is_last in (False, False, True):
            login = self._credentials.header(access) if own else None
            response = self._session.request(
                method,
                url,
                headers={**headers, "Authorization": login} if login else headers,
                data=body,
                stream=stream,
                verify=self._session.verify,
            )
            if response.status_code == 403 or (
                response.status_code == 401 and (is_last or not own)
            ):
                raise self.refusal(response, method, url)
            if response.status_code != 401:
                return response
            challenge = response.headers.get("WWW-Authenticate", "")
            if not self._credentials.log_in(challenge, access, self.base, used=login):
                raise self.refusal(response, method, url)
            response.close()
        raise AssertionError("the last attempt returns or raises")

    def _speaks_plain_http(self, host: str) -> bool:
        if host in self._plain_hosts:
            return True
        return is_loopback(host) and not self._encrypts_loopback


class _Session(requests.Session):
    """What requests and oras ask through: no redirects, cookies, passwords of ~/.netrc or haste."""

    def __init__(self, verify: str | bool, *, proxies: bool) -> None:
        super().__init__()
        self.verify = verify
        self.trust_env = proxies
        self.headers.update({"Accept-Encoding": "identity", "User-Agent": "aotc"})
        # Else those of ~/.netrc replace ours.
        self.auth = _as_it_is
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._answered = False
        adapter = HTTPAdapter(pool_maxsize=16)
        self.mount("https://", adapter)
        self.mount("http://", adapter)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Redirects are followed by `Connection`, or not at all."""
        return None

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and again what fails for now; the body is read unless it is a stream."""
        stream = options.pop("stream", False)
        options["timeout"] = options.get("timeout") or _TIMEOUT
        for attempt in range(ATTEMPTS):
            try:
                return self._sent_once(request, stream, options)
            except Cut as cut:
                if isinstance(request.body, Part):
                    raise
                if attempt + 1 == ATTEMPTS:
                    raise cut.reason from None
                pause(attempt, cut.pause)
        raise AssertionError("the last attempt returns or raises")

    def _sent_once(
        self, request: requests.PreparedRequest, stream: bool, options: dict[str, Any]
    ) -> requests.Response:
        url = str(request.url)
        with errors_as_reasons(url, reached=self._answered):
            response = super().send(request, stream=True, **options)
        self._answered = True
        passes = response.status_code in _PASSING
        if passes or not stream:
            self.read_whole(response)
        if not passes:
            return response
        found = AotcError(
            "AOTC-I202",
            f"{urlsplit(url).netloc} cannot answer now",
            where=shown(url),
            found=_told(response),
        )
        asked = _retry_after(response)
        if asked is not None and asked > _LONGEST_PAUSE:
            raise found
        raise Cut(found, asked)

    def read_whole(self, response: requests.Response) -> None:
        """Read an answer's body of at most 4 MiB; raises AOTC-I206 for more, and `Cut`."""
        if response._content is not False:
            return
        body, parts, size = Body(response), [], 0
        try:
            with errors_as_reasons(str(response.url)):
                while block := body.read(_BLOCK):
                    parts.append(block)
                    size += len(block)
                    if size > MAX_MANIFEST:
                        raise AotcError(
                            "AOTC-I206",
                            "The registry's answer is too large",
                            where=shown(str(response.url)),
                            expected=f"at most {MAX_MANIFEST} bytes",
                            found="more",
                        )
        except BaseException:
            response.close()
            raise
        # What `requests` itself returns as `content`.
        response._content = b"".join(parts)


@contextlib.contextmanager
def errors_as_reasons(url: str, *, reached: bool = True) -> Iterator[None]:
    """Raise what the network does as AotcErrors; what may pass, as `Cut`.

    A host that was never `reached` is not waited for.
    """
    try:
        yield
    except (requests.RequestException, HTTPError, HTTPException, OSError, ValueError) as error:
        causes = tuple(_causes(error))
        text = str(causes[-1]) or type(error).__name__
        where, host = shown(url), urlsplit(url).netloc
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            reason = AotcError(
                "AOTC-I198", f"The certificate of {host} is not trusted", where=where, found=text
            )
            raise reason from None
        if any(isinstance(cause, SSLError) for cause in causes) and not reached:
            reason = AotcError(
                "AOTC-I198",
                f"No encrypted connection to {host}",
                where=where,
                found=text,
                fix=_USE_PLAIN_HTTP.format(host=host),
            )
            raise reason from None
        if any(isinstance(cause, _INVALID) for cause in causes) or (
            isinstance(error, ValueError) and not isinstance(error, requests.RequestException)
        ):
            reason = AotcError("AOTC-I207", "No valid address or answer", where=where, found=text)
            raise reason from None
        if any(isinstance(cause, _UNREACHED) for cause in causes):
            reason = AotcError("AOTC-I197", f"{host} cannot be reached", where=where, found=text)
            raise (Cut(reason) if reached else reason) from None
        reason = AotcError("AOTC-I204", f"The connection to {host} ended", where=where, found=text)
        raise Cut(reason) from None


def pause(attempt: int, asked: float | None = None) -> None:
    """Wait before the next attempt: as long as the registry `asked`, else ever longer."""
    seconds = _FIRST_PAUSE * 2**attempt if asked is None else asked
    end = time.monotonic() + min(seconds, _LONGEST_PAUSE)
    while (left := end - time.monotonic()) > 0:
        stop_if_interrupted()
        time.sleep(min(left, 0.2))


def shown(url: str) -> str:
    """An address without what may be a password in it: signed addresses have theirs at the end."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url[:100]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_loopback(host: str) -> bool:
    """Whether `HOST[:PORT]` is this machine."""
    name = str(urlsplit(f"//{host}").hostname or "").rstrip(".")
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _is_internal(host: str) -> bool:
    """Whether a host is this machine or on its link, where a name or an address says so itself."""
    host = host.rstrip(".")
    if host.rpartition(".")[2] == "localhost":
        return True
    try:
        # 127.1 and 0x7f000001 are addresses to the system.
        address = ip_address(host if ":" in host else socket.inet_aton(host))
    except (OSError, ValueError):
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _stated_hosts() -> set[str]:
    stated = os.environ.get(PLAIN_HTTP_VARIABLE, "").lower()
    return {host.strip() for host in stated.split(",")} - {""}


def _trusted(ca: Path | None) -> str | bool:
    """The file or folder of certificates to trust: the stated one, the system's, or certifi's."""
    if ca is not None:
        try:
            # A comment may be in any encoding.
            content = read_at_most(ca, _MAX_CERTIFICATES).decode("ascii", "ignore")
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content)
        except (OSError, ValueError) as error:
            found = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise AotcError(
                "AOTC-I208", "The certificates to trust cannot be read", where=str(ca), found=found
            ) from None
        return str(ca)
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return paths.cafile
    if paths.capath and any(Path(paths.capath).glob("*.0")):
        return paths.capath
    return True


def _retry_after(response: requests.Response) -> float | None:
    """How many seconds a registry asks to wait; None where it does not say."""
    stated = response.headers.get("Retry-After", "")
    if stated.isascii() and stated.isdigit():
        return float(stated[:9])
    try:
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _told(response: requests.Response) -> str:
    """What an answer says of an error: its status, and the registry's own words."""
    text = f"{response.status_code} {response.reason or ''}".strip()
    if (wait := response.headers.get("Retry-After")) and response.status_code in _PASSING:
        text += f", to be tried again after {wait[:40]}"
    if (location := response.headers.get("Location")) and response.status_code in _REDIRECTS:
        text += f", to {location.partition('?')[0][:200]}"
    content = response._content
    if not content:
        return text
    try:
        errors = read_document(content, "")["errors"]
        words = [
            f"{error.get('code', '')} {error.get('message', '')}".strip()
            for error in (errors if isinstance(errors, list) else ())
            if isinstance(error, dict)
        ]
    except (AotcError, KeyError):
        words = [content[:200].decode("utf-8", "replace").strip()]
    return f"{text}: {'; '.join(words)[:400]}" if any(words) else text


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it stands for, as the libraries wrap one in another."""
    seen: set[int] = set()
    current: object = error
    while isinstance(current, BaseException) and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner: object = getattr(current, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((arg for arg in current.args if isinstance(arg, BaseException)), None)
        current = inner if inner is not None else (current.__cause__ or current.__context__)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
