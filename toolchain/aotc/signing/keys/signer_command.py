"""Keys outside of this process: a program signs, and what it answers is verified before use.

The program gets the bytes to sign on standard input and writes the signature to standard output.
No shell is involved; it has a time limit and a limit of output, and no terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

from aotc.contract.codec.parsing import ParseError, decode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.codec.strict_yaml import strict_yaml
from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import key_id, split_certificates
from aotc.contract.trust.signer import Signer, SignerFile
from aotc.errors import AotcError
from aotc.escaping import printable
from aotc.records import record
from aotc.signing.keys import key_files
from aotc.signing.keys.key_loading import read_public
from aotc.signing.keys.p256 import is_signed, p256_key

# A DER signature on P-256 has at most 72 bytes.
MAX_ANSWER_BYTES = 4096
_KEPT_LINES = 5
_RAW_BYTES = 64


@record(kw_only=False)
class CommandSigner:
    """A key that `file.command` signs with; only its public half is known here."""

    public_pem: str
    key_id: str
    chain: tuple[str, ...]
    file: SignerFile
    path: Path
    development: bool = False
    findings: tuple[Finding, ...] = ()

    def sign(self, message: bytes) -> bytes:
        """A DER signature that verifies with the public key; raises I033."""
        signature = self._answer(message)
        if self.file.format == "raw":
            signature = self._from_raw(signature)
        public = p256_key(self.public_pem)
        if public is None or not is_signed(public, signature, message):
            raise self._failed(
                "what the signer command answered is no signature by its public key",
                expected=f"an ECDSA signature over SHA-256 by key {self.key_id}, {self._shape()}",
                found=f"{len(signature)} bytes",
            )
        return signature

    def _answer(self, message: bytes) -> bytes:
        folder = self.path.resolve().parent
        program = self.file.command[0]
        if os.sep in program or (os.altsep or os.sep) in program:
            program = str(folder / program)
        try:
            process = subprocess.Popen(
                [program, *self.file.command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            found = getattr(error, "strerror", None) or str(error)
            raise self._failed("the signer command cannot be started", found=found) from None
        conversation = _Conversation(process)
        try:
            status = conversation.run(message, self.file.timeout_seconds)
        finally:
            conversation.end()
        said = _last_lines(bytes(conversation.said))
        if status is None:
            limit = f"{self.file.timeout_seconds:g} s"
            raise self._failed("the signer command took too long", expected=limit, found=said)
        if conversation.overflowed:
            limit = f"at most {MAX_ANSWER_BYTES} bytes"
            raise self._failed("the signer command answered too much", expected=limit, found=said)
        if status != 0:
            raise self._failed(
                "the signer command failed", expected="exit status 0", found=f"{status}: {said}"
            )
        return bytes(conversation.answer)

    def _from_raw(self, signature: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        if len(signature) != _RAW_BYTES:
            raise self._failed(
                "the signer command answered something else than a raw signature",
                expected=f"{_RAW_BYTES} bytes",
                found=f"{len(signature)} bytes",
            )
        half = _RAW_BYTES // 2
        return encode_dss_signature(
            int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
        )

    def _shape(self) -> str:
        return "DER" if self.file.format == "der" else "r and s of 32 bytes each"

    def _failed(self, what: str, *, expected: str = "", found: str = "") -> AotcError:
        return AotcError(
            "AOTC-I033", what, where=str(self.path), expected=expected, found=found or "nothing"
        )


def load_command(path: Path) -> Signer:
    """The signer that a YAML or JSON file describes; raises I001, I023, I046, G037."""
    data = key_files.read(path)
    try:
        parsed = strict_json(data) if path.suffix == ".json" else strict_yaml(data)
        file = decode(SignerFile, parsed)
    except ParseError as error:
        first, *rest = (
            AotcError(
                each.code or "AOTC-I023",
                "the signer file is malformed" if not each.code else "the signer file is newer",
                where=str(path),
                found=str(each),
                fix=""
                if each.code
                else "Correct the field that is named; docs/guides/keys.md shows a signer file.",
            )
            for each in error.problems
        )
        first.also = tuple(rest)
        raise first from None
    public = read_public(*_text(file.public_key, "PUBLIC KEY", path), code="AOTC-I023")
    if len(public) != 1:
        raise AotcError(
            "AOTC-I023",
            "the signer file names several public keys",
            where=str(path),
            expected="one",
            found=str(len(public)),
            fix="Leave only the one that the command signs with.",
        )
    pem = public[0].pem
    return CommandSigner(pem, key_id(pem), _chain(file, pem, path), file, path)


def _chain(file: SignerFile, public_pem: str, path: Path) -> tuple[str, ...]:
    if not file.certificates:
        return ()
    from aotc.signing.keys.certificates import check_belongs

    text, origin = _text(file.certificates, "CERTIFICATE", path)
    chain = split_certificates(text)
    if not chain:
        raise AotcError(
            "AOTC-I023",
            "the file holds no PEM certificate",
            where=origin,
            fix="Put the key's certificate into it, or leave 'certificates' out.",
        )
    check_belongs(chain, public_pem, origin)
    return chain


def _text(stated: str, label: str, path: Path) -> tuple[str, str]:
    """PEM text and its origin, of a field that holds the text or a path to it."""
    if f"-----BEGIN {label}-----" in stated:
        return stated, str(path)
    place = path.resolve().parent / stated
    return key_files.read(place).decode("utf-8", "replace"), str(place)


class _Conversation:
    """One run of a program: written to and read from at once, so that no pipe blocks another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.answer = bytearray()
        self.said = bytearray()
        self.overflowed = False

    def run(self, message: bytes, seconds: float) -> int | None:
        """The exit status, or None where the time is up."""
        process = self.process
        threads = [
            threading.Thread(target=self._write, args=(process.stdin, message), daemon=True),
            threading.Thread(target=self._read_answer, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_said, args=(process.stderr,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        # A child that it left behind may hold the pipes open; what it says is not waited for.
        for thread in threads:
            thread.join(1)
        return status

    def end(self) -> None:
        """End the program and what it started, where they still run."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()

    def _write(self, pipe: IO[bytes], message: bytes) -> None:
        # A program may refuse before it has read everything.
        with contextlib.suppress(OSError), pipe:
            pipe.write(message)

    def _read_answer(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError), pipe:
            while block := os.read(pipe.fileno(), MAX_ANSWER_BYTES):
                self.answer += block
                if len(self.answer) > MAX_ANSWER_BYTES:
                    self.overflowed = True
                    self.process.kill()
                    return

    def _read_said(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError), pipe:
            while block := os.read(pipe.fileno(), MAX_ANSWER_BYTES):
                self.said = (self.said + block)[-MAX_ANSWER_BYTES:]


def _last_lines(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()[-_KEPT_LINES:]
    shown = " | ".join(line.strip() for line in lines)
    return printable(shown)
