"""A small registry of the tests, in memory and on loopback, which has the referrers API.

No registry with that API can be had where the tests run.  It keeps to the distribution
specification 1.1 as far as clients here ask for it, and does wrong what a test tells it to.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from registries import PASSWORD, USER, write_certificates

INDEX = "application/vnd.oci.image.index.v1+json"
BASIC = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
NAME = r"/v2/(?P<name>[a-z0-9/._-]+)"


@dataclass
class Fault:
    """What is done wrong to requests that `of` is found in: a pattern of `GET /v2/…?…`.

    It is done `times` times, after `after` requests that are served well; -1 is always.  A `status`
    answers in place of the registry, with `headers` and `body`; without one, `headers` are changed
    in its own answer (None removes one), and `change` makes another body of its own, whose length
    is told as it was.  `cut_after` bytes of the body the connection is closed; of an upload, after
    so many bytes that were taken.  `then` is called before the answer, such as to move a tag.
    """

    of: str
    times: int = -1
    after: int = 0
    status: int | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes = b""
    change: Callable[[bytes], bytes] | None = None
    cut_after: int | None = None
    then: Callable[[], object] | None = None


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


@dataclass
class Repo:
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Type and bytes by digest."""
    tags: dict[str, str] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)


class ReferrersRegistry:
    """The state of a registry, and what it is told to do."""

    def __init__(self) -> None:
        self.host = ""
        self.ca: Path | None = None
        self.repositories: dict[str, Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.uploads: dict[str, bytearray] = {}
        self.faults: list[Fault] = []
        self.asked: list[Asked] = []
        self.connections = 0
        self.lock = threading.RLock()
        # What a registry may have, or not.
        self.referrers_api = True
        self.ranges = True
        self.mounts = True
        self.resumes = True
        """Whether an upload that was cut goes on from where it was."""
        self.page = 1000
        """How many referrers are in one answer."""
        self.auth = ""
        """`basic`, `bearer`, or neither."""
        self.realm = ""
        """Where tokens are given; empty: here, at `/token`."""
        self.tokens: dict[str, set[str]] = {}
        """Scopes by token."""

    def repo(self, name: str) -> Repo:
        """A repository, which is made when first asked for."""
        with self.lock:
            return self.repositories.setdefault(name, Repo())

    def requests(self, pattern: str = "") -> list[str]:
        """What was asked, as `METHOD /path?query`, where the pattern is found in it."""
        return [str(asked) for asked in self.asked if re.search(pattern, str(asked))]

    def fault(self, asked: str, *, cuts_upload: bool) -> Fault | None:
        """The first fault that is due."""
        with self.lock:
            for fault in self.faults:
                is_upload = fault.cut_after is not None and asked.startswith(("PUT", "PATCH"))
                if is_upload != cuts_upload or not fault.times or not re.search(fault.of, asked):
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                return fault
        return None


@contextmanager
def referrers_registry(tls: Path | None = None) -> Iterator[ReferrersRegistry]:
    """Run one; with `tls`, a folder, it has a certificate of the CA in `tls/ca.pem`."""
    registry = ReferrersRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        tls.mkdir(parents=True, exist_ok=True)
        write_certificates(tls)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "server.pem", tls / "server.key")
        server.context = context
        registry.ca = tls / "ca.pem"
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            super().finish_request(request, client_address)
            return
        # Here, as this is the thread of the connection.
        with self.context.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no news."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.code, self.headers = status, code, dict(headers or {})


class _Handler(BaseHTTPRequestHandler):
    registry: ReferrersRegistry
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, ssl.SSLError):
            self.close_connection = True

    def setup(self) -> None:
        super().setup()
        with self.registry.lock:
            self.registry.connections += 1

    def finish(self) -> None:
        # Of a client that has left, each of the two fails to close.
        for file in (self.wfile, self.rfile):
            with suppress(OSError):
                file.close()

    def do(self) -> None:
        registry, asked = self.registry, f"{self.command} {self.path}"
        with registry.lock:
            registry.asked.append(Asked(self.command, self.path, dict(self.headers)))
        body = self.received(registry.fault(asked, cuts_upload=True))
        if body is None:
            return
        fault = registry.fault(asked, cuts_upload=False)
        if fault is not None and fault.then is not None:
            fault.then()
        if fault is not None and fault.status is not None:
            headers = {name: value for name, value in fault.headers.items() if value is not None}
            self.answer(fault.status, headers, fault.body, fault)
            return
        try:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.allowed(parts.path, query)
            status, headers, content = self.served(parts.path, query, body)
        except _Refused as refused:
            text = {"errors": [{"code": refused.code, "message": refused.code.lower()}]}
            status, content = refused.status, json.dumps(text).encode()
            headers = {"Content-Type": "application/json", **refused.headers}
        if fault is not None and fault.change is not None:
            headers["Content-Length"] = str(len(content))
            content = fault.change(content)
        for name, value in (fault.headers if fault is not None else {}).items():
            headers.pop(name, None)
            if value is not None:
                headers[name] = value
            elif name == "Content-Length":
                headers[name] = ""
        self.answer(status, headers, content, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = do

    def received(self, fault: Fault | None) -> bytes | None:
        """The body of a request; None where the connection was cut, and an upload has its part."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        length = int(self.headers.get("Content-Length") or 0)
        if fault is None:
            return self.rfile.read(length)
        taken = self.rfile.read(min(length, fault.cut_after or 0))
        found = re.search(r"/blobs/uploads/([^/?]+)", self.path)
        if found and self.registry.resumes and found[1] in self.registry.uploads:
            self.registry.uploads[found[1]] += taken
        elif found:
            self.registry.uploads.pop(found[1], None)
        self.close_connection = True
        return None

    def answer(
        self, status: int, headers: Mapping[str, str], content: bytes, fault: Fault | None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        elif not headers["Content-Length"]:
            self.close_connection = True
        self.end_headers()
        cut = fault.cut_after if fault is not None else None
        if self.command != "HEAD":
            self.wfile.write(content if cut is None else content[:cut])
        if cut is not None or int(headers.get("Content-Length") or len(content)) != len(content):
            self.close_connection = True
        self.wfile.flush()

    # Who may do what.

    def allowed(self, path: str, query: Mapping[str, str]) -> None:
        registry, stated = self.registry, self.headers.get("Authorization", "")
        if path == "/token" or not registry.auth:
            return
        if registry.auth == "basic":
            if stated != BASIC:
                raise _Refused(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="tests"'})
            return
        scopes = set()
        if found := re.match(NAME + r"/(manifests|blobs|referrers|tags)/", path):
            what = "pull" if self.command in ("GET", "HEAD") else "pull,push"
            scopes.add(f"repository:{found['name']}:{what}")
        if "from" in query:
            scopes.add(f"repository:{query['from']}:pull")
        if scopes <= registry.tokens.get(stated.removeprefix("Bearer "), set()) and stated:
            return
        realm = registry.realm or f"{self.scheme}://{registry.host}/token"
        challenge = f'Bearer realm="{realm}",service="tests",scope="{" ".join(sorted(scopes))}"'
        raise _Refused(401, "UNAUTHORIZED", {"WWW-Authenticate": challenge})

    @property
    def scheme(self) -> str:
        return "http" if self.registry.ca is None else "https"

    def token(self, query: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """A token for who gives the password, or the refresh token `refresh-me`."""
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if self.headers.get("Authorization") != BASIC and form.get("refresh_token") != "refresh-me":
            raise _Refused(401, "UNAUTHORIZED")
        given = secrets.token_hex(8)
        self.registry.tokens[given] = set((query.get("scope") or form.get("scope", "")).split())
        return 200, {"Content-Type": "application/json"}, json.dumps({"token": given}).encode()

    # What a registry serves.

    def served(
        self, path: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if path == "/token":
            return self.token(query, body)
        if path in ("/v2", "/v2/"):
            return 200, {}, b"{}"
        with self.registry.lock:
            for pattern, serve in (
                (r"/manifests/(?P<reference>[^/]+)", self.manifest),
                (r"/blobs/uploads/(?P<upload>[^/]*)", self.upload),
                (r"/blobs/(?P<digest>[^/]+)", self.blob),
                (r"/referrers/(?P<digest>[^/]+)", self.referrers),
                (r"/tags/list()", self.tags),
            ):
                if found := re.fullmatch(NAME + pattern, path):
                    return serve(found["name"], found[2], query, body)
        raise _Refused(404, "NOT_FOUND")

    def manifest(
        self, name: str, reference: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        repo = self.registry.repo(name)
        if self.command == "PUT":
            digest = digest_of(body)
            if reference.startswith("sha256:") and reference != digest:
                raise _Refused(400, "DIGEST_INVALID")
            document = json.loads(body)
            named = [
                *document.get("layers", ()),
                *([document["config"]] if "config" in document else ()),
            ]
            if any(item["digest"] not in repo.blobs for item in named):
                raise _Refused(400, "MANIFEST_BLOB_UNKNOWN")
            repo.manifests[digest] = (self.headers.get("Content-Type", ""), body)
            if not reference.startswith("sha256:"):
                repo.tags[reference] = digest
            headers = {
                "Location": f"/v2/{name}/manifests/{digest}",
                "Docker-Content-Digest": digest,
            }
            if self.registry.referrers_api and "subject" in document:
                headers["OCI-Subject"] = document["subject"]["digest"]
            return 201, headers, b""
        digest = repo.tags.get(reference, reference)
        if digest not in repo.manifests:
            raise _Refused(404, "MANIFEST_UNKNOWN")
        if self.command == "DELETE":
            del repo.manifests[digest]
            return 202, {}, b""
        media_type, content = repo.manifests[digest]
        return 200, {"Content-Type": media_type, "Docker-Content-Digest": digest}, content

    def blob(
        self, name: str, digest: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if digest not in self.registry.repo(name).blobs:
            raise _Refused(404, "BLOB_UNKNOWN")
        content = self.registry.blobs[digest]
        headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": digest}
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not self.registry.ranges or found is None:
            return 200, headers, content
        first, last = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
        if first > last:
            raise _Refused(416, "RANGE_INVALID", {"Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, headers, content[first : last + 1]

    def upload(
        self, name: str, upload: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        registry, repo = self.registry, self.registry.repo(name)
        if self.command == "POST":
            source = registry.repositories.get(query.get("from", ""))
            if registry.mounts and source is not None and query.get("mount") in source.blobs:
                repo.blobs.add(query["mount"])
                return 201, {"Location": f"/v2/{name}/blobs/{query['mount']}"}, b""
            upload = secrets.token_hex(8)
            registry.uploads[upload] = bytearray()
        if upload not in registry.uploads:
            raise _Refused(404, "BLOB_UPLOAD_UNKNOWN")
        content = registry.uploads[upload]
        location = f"/v2/{name}/blobs/uploads/{upload}?{urlencode({'at': len(content)})}"
        if self.command in ("PATCH", "PUT") and body:
            found = re.match(r"(\d+)-", self.headers.get("Content-Range", ""))
            if found and int(found[1]) != len(content):
                headers = {"Location": location, "Range": f"0-{max(len(content) - 1, 0)}"}
                raise _Refused(416, "RANGE_INVALID", headers)
            content += body
        if self.command == "PUT":
            del registry.uploads[upload]
            if digest_of(content) != query.get("digest"):
                raise _Refused(400, "DIGEST_INVALID")
            registry.blobs[query["digest"]] = bytes(content)
            repo.blobs.add(query["digest"])
            return 201, {"Location": f"/v2/{name}/blobs/{query['digest']}"}, b""
        status = 204 if self.command == "GET" else 202
        headers = {"Location": location, "Range": f"0-{max(len(content) - 1, 0)}"}
        return status, headers, b""

    def referrers(
        self, name: str, digest: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if not self.registry.referrers_api:
            raise _Refused(404, "NOT_FOUND")
        found = []
        for own, (media_type, content) in self.registry.repo(name).manifests.items():
            document = json.loads(content)
            if (document.get("subject") or {}).get("digest") == digest:
                row = {"mediaType": media_type, "digest": own, "size": len(content)}
                kind = document.get("artifactType") or document.get("config", {}).get("mediaType")
                if document.get("annotations"):
                    row["annotations"] = document["annotations"]
                found.append({**row, "artifactType": kind})
        headers = {"Content-Type": INDEX}
        if wanted := query.get("artifactType"):
            found = [row for row in found if row["artifactType"] == wanted]
            headers["OCI-Filters-Applied"] = "artifactType"
        first = int(query.get("from_row", 0))
        if first + self.registry.page < len(found):
            more = urlencode({**query, "from_row": first + self.registry.page})
            headers["Link"] = f'</v2/{name}/referrers/{digest}?{more}>; rel="next"'
        rows = found[first : first + self.registry.page]
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}
        return 200, headers, json.dumps(index).encode()

    def tags(
        self, name: str, _: str, query: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        tags = {"name": name, "tags": sorted(self.registry.repo(name).tags)}
        return 200, {"Content-Type": "application/json"}, json.dumps(tags).encode()


def digest_of(content: bytes | bytearray) -> str:
    """`sha256:…`"""
    return "sha256:" + hashlib.sha256(content).hexdigest()
