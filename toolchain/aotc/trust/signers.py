"""Signers: keys in files, programs that hold a key, and who they are to those who verify.

A program signs with a key outside this process, and its result is verified.  It gets the bytes to
sign on standard input, and writes the signature to standard output.  It runs without a shell and
without a terminal, with a time limit and a limit of its output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

from aotc.base.errors import AotcError, with_others
from aotc.base.records import record
from aotc.base.text import printable
from aotc.spec.codec import ParseError, decode
from aotc.spec.json import strict_json
from aotc.spec.payload import Finding
from aotc.spec.trust_anchors import (
    CERTIFICATE,
    Anchor,
    TrustedKey,
    key_id,
    split_certificates,
    text_around,
)
from aotc.spec.trust_policy import Sealer, SignedBy, Signer, SignerFile
from aotc.spec.yaml import located, place_of, readable_text, strict_yaml
from aotc.trust import dsse, key_files
from aotc.trust.bundles import claimed_signer
from aotc.trust.development_key import development_key
from aotc.trust.key_loading import load_private, read_public
from aotc.trust.p256 import is_signed, p256_key

# A DER signature on P-256 has at most 72 bytes.
MAX_ANSWER_BYTES = 4096
_KEPT_LINES = 5
_FIX_MALFORMED = "Correct the field that is named; docs/guides/keys.md shows a signer file."
_RAW_BYTES = 64


@record(kw_only=False)
class CommandSigner:
    """A key with which the command of a signer file signs; only its public half is known here."""

    public_pem: str
    key_id: str
    chain: tuple[str, ...]
    file: SignerFile
    path: Path
    development: bool = False
    findings: tuple[Finding, ...] = ()

    def sign(self, message: bytes) -> bytes:
        """The command's signature of `message`, as DER and verified; raises AOTC-I033."""
        signature = self._run_command(message)
        if self.file.format == "raw":
            signature = self._from_raw(signature)
        public = p256_key(self.public_pem)
        if public is None or not is_signed(public, signature, message):
            form = "DER" if self.file.format == "der" else "r and s of 32 bytes each"
            raise self._error(
                "the output of the signer command is not a signature by its public key",
                expected=f"an ECDSA signature over SHA-256 by key {self.key_id}, {form}",
                found=f"{len(signature)} bytes",
            )
        return signature

    def _run_command(self, message: bytes) -> bytes:
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
            raise self._error("the signer command cannot be started", found=found) from None
        run = _CommandRun(process)
        try:
            status = run.wait(message, self.file.timeout_seconds)
        finally:
            run.end()
        messages = _last_lines(bytes(run.messages))
        if status is None:
            limit = f"{self.file.timeout_seconds:g} s"
            raise self._error("the signer command took too long", expected=limit, found=messages)
        if run.overflowed:
            limit = f"at most {MAX_ANSWER_BYTES} bytes"
            raise self._error(
                "the signer command wrote too much output", expected=limit, found=messages
            )
        if status != 0:
            raise self._error(
                "the signer command failed", expected="exit status 0", found=f"{status}: {messages}"
            )
        return bytes(run.output)

    def _from_raw(self, signature: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        if len(signature) != _RAW_BYTES:
            raise self._error(
                "the output of the signer command is not a raw signature",
                expected=f"{_RAW_BYTES} bytes",
                found=f"{len(signature)} bytes",
            )
        half = _RAW_BYTES // 2
        return encode_dss_signature(
            int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
        )

    def _error(self, what: str, *, expected: str = "", found: str = "") -> AotcError:
        return AotcError(
            "AOTC-I033", what, where=str(self.path), expected=expected, found=found or "nothing"
        )


def load_command(path: Path, *, allow_expired: bool = False) -> Signer:
    """The signer that a YAML or JSON file describes.

    Raises AOTC-I001 if a file cannot be read, I023 if it is malformed or a key or certificate is
    not usable, I046 if it is of a newer aotc, and G037 if a certificate cannot be read or, without
    `allow_expired`, is not valid now.
    """
    data = key_files.read(path)
    try:
        readable_text(data)
        parsed = strict_json(data) if path.suffix == ".json" else strict_yaml(data)
        file = decode(SignerFile, parsed)
    except ParseError as error:
        raise with_others(
            AotcError(
                problem.code or "AOTC-I023",
                f"the signer file is {'for a newer aotc' if problem.code else 'malformed'}",
                where=str(path),
                found=str(problem),
                fix="" if problem.code else _FIX_MALFORMED,
                place=None if path.suffix == ".json" else place_of(problem, str(path)),
            )
            for problem in located(error.problems, data)
        ) from None
    public = read_public(*_read_pem(file.public_key, "PUBLIC KEY", path), code="AOTC-I023")
    if len(public) != 1:
        raise AotcError(
            "AOTC-I023",
            "the signer file names several public keys",
            where=str(path),
            expected="one",
            found=str(len(public)),
            fix="Keep only the one with which the command signs.",
        )
    pem = public[0].pem
    if p256_key(pem) is None:
        raise AotcError(
            "AOTC-I023",
            "the public key of the signer file is not on P-256",
            where=str(path),
            fix="Sign with a key on P-256, which every verifier takes.",
        )
    chain, findings = _chain(file, pem, path, allow_expired=allow_expired)
    return CommandSigner(pem, key_id(pem), chain, file, path, findings=findings)


def _chain(
    file: SignerFile, public_pem: str, path: Path, *, allow_expired: bool
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    if not file.certificates:
        return (), ()
    from aotc.trust.certificates import check_chain_of_key

    text, origin = _read_pem(file.certificates, "CERTIFICATE", path)
    chain = split_certificates(text)
    if not chain:
        raise AotcError(
            "AOTC-I023",
            "the file has no PEM certificate",
            where=origin,
            fix="Put the key's certificate into it, or leave 'certificates' out.",
        )
    if other := text_around(text, CERTIFICATE):
        raise AotcError(
            "AOTC-I023",
            "the file has text besides certificates, which could say not to use them",
            where=origin,
            found=printable(other, 80),
            fix="Remove the text, if the certificates may be used.",
        )
    return chain, check_chain_of_key(chain, public_pem, origin, allow_expired=allow_expired)


def _read_pem(stated: str, label: str, path: Path) -> tuple[str, str]:
    """The PEM text of a field that holds it or its path, and the origin of the text."""
    if f"-----BEGIN {label}-----" in stated:
        return stated, str(path)
    place = path.resolve().parent / stated
    return key_files.read(place).decode("utf-8", "replace"), str(place)


class _CommandRun:
    """One run of a program, with a thread for each pipe, so that no pipe blocks another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.output = bytearray()
        self.messages = bytearray()
        self.overflowed = False

    def wait(self, message: bytes, seconds: float) -> int | None:
        """The exit status, or None if the program did not end in time."""
        process = self.process
        threads = [
            threading.Thread(target=self._write, args=(process.stdin, message), daemon=True),
            threading.Thread(target=self._read_output, args=(process.stdout,), daemon=True),
            threading.Thread(target=self._read_messages, args=(process.stderr,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        # A child process that it left may keep the pipes open; its output is not waited for.
        for thread in threads:
            thread.join(1)
        return status

    def end(self) -> None:
        """Kill the program and the processes that it started, if they still run."""
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

    def _read_output(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError), pipe:
            while block := os.read(pipe.fileno(), MAX_ANSWER_BYTES):
                self.output += block
                if len(self.output) > MAX_ANSWER_BYTES:
                    self.overflowed = True
                    self.process.kill()
                    return

    def _read_messages(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError), pipe:
            while block := os.read(pipe.fileno(), MAX_ANSWER_BYTES):
                self.messages = (self.messages + block)[-MAX_ANSWER_BYTES:]


def _last_lines(messages: bytes) -> str:
    lines = messages.decode("utf-8", "replace").strip().splitlines()[-_KEPT_LINES:]
    shown = " | ".join(line.strip() for line in lines)
    return printable(shown)


def load_signer(key: str | Path | Signer | None, *, allow_expired: bool = False) -> Signer:
    """The signer of a PEM file or a signer file, or for None the development key.

    A signer is returned as it is.  With `allow_expired` a certificate outside its validity period
    is a finding of the signer, and else refused: AOTC-G037.  Raises AOTC-I001, I023, I034, I046 or
    G037 if it cannot be loaded, and I026 if the development key cannot be made.
    """
    if key is None:
        return development_key()
    if not isinstance(key, str | Path):
        return key
    if is_signer_file(key):
        return load_command(Path(key), allow_expired=allow_expired)
    return load_private(Path(key), allow_expired=allow_expired)


def is_signer_file(path: str | Path) -> bool:
    """Whether a path has a suffix of signer files: .yaml, .yml or .json."""
    return Path(path).suffix in (".yaml", ".yml", ".json")


# Who a signer is to those who verify: a key, or an identity that sigstore's services confirm.


def own_key(signer: Signer | Sealer, origin: str = "signer") -> TrustedKey | None:
    """The public key of a signer; None for a keyless signer."""
    if isinstance(signer, Sealer):
        return None
    return TrustedKey(pem=signer.public_pem, origin=origin, development=signer.development)


def own_anchors(signer: Signer | Sealer, origin: str) -> tuple[Anchor, ...]:
    """What must be trusted for the signatures of a signer to count, and nothing else.

    Raises AOTC-I037 if the public services of sigstore cannot be reached for their roots.
    """
    if isinstance(signer, Sealer):
        return signer.anchors()
    key = own_key(signer, origin)
    return () if key is None else (key,)


def signed_by(bundle: bytes, signer: Signer | Sealer) -> SignedBy:
    """Who made a bundle that `signer` has just signed."""
    parsed, identity = dsse.parse(bundle), ""
    if isinstance(signer, Sealer):
        from aotc.trust.certificates import leaf_name

        identity = f"{leaf_name(parsed.certificates)} by {signer.issuer()}"
    return SignedBy(
        key_id=claimed_signer(parsed),
        identity=identity,
        development_key=not isinstance(signer, Sealer) and signer.development,
    )


def findings_of(signer: Signer | Sealer) -> tuple[Finding, ...]:
    """What the user should know about how the signer's key is kept."""
    return () if isinstance(signer, Sealer) else signer.findings
