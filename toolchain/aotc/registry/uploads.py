"""Uploads of blobs: mounted from another repository, or sent, and resumed where one was cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final
from urllib.parse import quote, urlsplit

import requests

from aotc.base.errors import AotcError
from aotc.registry.connection import ATTEMPTS, PROGRESS, Connection, Cut, Part, pause

# What is smaller is sent in one request fewer.
_SMALL: Final = 4 << 20
# Pieces for where a proxy takes no larger ones.
_PIECE: Final = 16 << 20
_RANGE: Final = re.compile(r"(?:bytes[ =])?0-(\d{1,18})")


def upload(
    connection: Connection,
    base: str,
    digest: str,
    size: int,
    opened: Callable[[], BinaryIO],
    *,
    mount_from: Sequence[str],
    told: Callable[[int], None] | None,
) -> int | None:
    """Send a blob, and return how many bytes were sent, those of failed attempts among them.

    None where the registry has it from one of the repositories `mount_from`.
    What fails for now is tried again from where the registry has it, or from the start where it
    does not tell.  Raises AOTC-I204 or AOTC-I202 when it fails again and again without progress.
    """
    sending = _Upload(connection, base, digest, size, opened, told or (lambda count: None))
    if any(sending.is_mounted(source) for source in mount_from):
        return None
    failures, best = 0, 0
    while True:
        try:
            if not sending.is_complete:
                sending.go_on()
            return sending.sent
        except Cut as cut:
            if sending.at >= best + PROGRESS:
                failures, best = 0, sending.at
            failures += 1
            if failures == ATTEMPTS:
                raise cut.reason from None
            pause(failures - 1, cut.pause)
            sending.ask_where()


class _Upload:
    """One blob on its way."""

    def __init__(
        self,
        connection: Connection,
        base: str,
        digest: str,
        size: int,
        opened: Callable[[], BinaryIO],
        told: Callable[[int], None],
    ) -> None:
        self._connection, self._base, self._digest, self._size = connection, base, digest, size
        self._opened, self._told = opened, told
        self._url: str | None = None
        self._piece, self._least = size, _PIECE
        self.at = 0
        """How many bytes the registry has."""
        self.sent = 0
        self.is_complete = False
        self._resumed = False

    def is_mounted(self, source: str) -> bool:
        """Whether the registry takes the blob from another of its repositories."""
        url = f"{self._base}/blobs/uploads/?mount={self._digest}&from={quote(source, safe='')}"
        try:
            response = self._connection.ask("POST", url, f"mount {source}", body=b"")
        except AotcError as error:
            # Who may not read there sends the bytes.
            if error.code == "AOTC-I199":
                return False
            raise
        if response.status_code == 202:
            # It begins an upload instead.
            self._began(url, response)
        return response.status_code == 201

    def go_on(self) -> None:
        """Send what is left; raises `Cut` where it may be tried again."""
        if self._url is None:
            start = f"{self._base}/blobs/uploads/"
            response = self._connection.ask("POST", start, "push", expected=(202,), body=b"")
            self._began(start, response)
        if self.at == 0 and self._size <= min(_SMALL, self._piece):
            self._finish(self._part(self._size) if self._size else b"")
            return
        while self.at < self._size:
            length = min(self._piece, self._size - self.at)
            headers = {"Content-Type": "application/octet-stream"}
            if length < self._size:
                headers["Content-Range"] = f"{self.at}-{self.at + length - 1}"
            self._ask("PATCH", self._location(), (200, 201, 202, 204), headers, self._part(length))
            self.at += length
        self._finish(b"")

    def ask_where(self) -> None:
        """Learn how many bytes the registry has of an upload that was cut."""
        if self._url is None:
            return
        response = self._connection.ask("GET", self._url, "push")
        found = _RANGE.fullmatch(response.headers.get("Range", ""))
        if response.status_code not in (200, 202, 204) or found is None:
            self._url = None
            # Of a blob that is complete the answer may have been lost.
            there = self._connection.ask("HEAD", f"{self._base}/blobs/{self._digest}", "pull")
            self.is_complete = there.status_code == 200
            return
        # A registry that has nothing says 0-0, as one that has a byte.
        end = int(found[1]) + 1
        self.at = 0 if end == 1 else min(end, self._size)
        self._resumed = self.at > 0
        self._moved(self._url, response)

    def _part(self, length: int) -> Part:
        return Part(self._opened, self.at, length, self._count)

    def _count(self, count: int) -> None:
        self.sent += count
        self._told(count)

    def _finish(self, body: Part | bytes) -> None:
        url = self._location()
        url += f"{'&' if urlsplit(url).query else '?'}digest={quote(self._digest, safe='')}"
        headers = {"Content-Type": "application/octet-stream"}
        response = self._ask("PUT", url, (200, 201, 204), headers, body)
        told = response.headers.get("Docker-Content-Digest", self._digest)
        if told != self._digest:
            raise AotcError(
                "AOTC-I205",
                "The registry stored other bytes than were sent",
                where=f"{self._base}/blobs/{self._digest}",
                expected=self._digest,
                found=told,
            )

    def _ask(
        self,
        method: str,
        url: str,
        expected: tuple[int, ...],
        headers: dict[str, str],
        body: Part | bytes,
    ) -> requests.Response:
        response = self._connection.ask(method, url, "push", headers=headers, body=body)
        if response.status_code in expected:
            if method == "PATCH":
                self._moved(url, response)
            return response
        refusal = self._connection.refusal(response, method, url)
        status = response.status_code
        if status == 413 and self._piece > self._least:
            self._piece = self._least
            self._url = None
            raise Cut(refusal, 0.0)
        if status in (404, 416) or (status == 400 and self._resumed):
            # The registry has lost the upload, or has other bytes of it: from the start.
            if status != 416:
                self._url = None
            raise Cut(refusal)
        raise refusal

    def _began(self, url: str, response: requests.Response) -> None:
        self.at = 0
        self._url, self._resumed = None, False
        self._moved(url, response)
        least = response.headers.get("OCI-Chunk-Min-Length", "")
        if least.isascii() and least.isdigit():
            self._least = max(_PIECE, int(least[:18]))

    def _moved(self, url: str, response: requests.Response) -> None:
        location = response.headers.get("Location")
        if location:
            self._url = self._connection.checked_address(url, location)
        elif self._url is None:
            raise AotcError(
                "AOTC-I207",
                "The registry does not say where to send a blob",
                where=url,
                expected="a header Location",
                found=str(response.status_code),
            )

    def _location(self) -> str:
        assert self._url is not None
        return self._url
