"""Who signs: what every signer offers, and the file that describes one outside of the process."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, runtime_checkable

from aotc.contract.codec.parsing import Bounds, Problem
from aotc.contract.finding import Finding
from aotc.records import record


class Signer(Protocol):
    """A P-256 key that signs, wherever its secret is kept."""

    @property
    def public_pem(self) -> str:
        """The public half (SPKI, PEM)."""

    @property
    def key_id(self) -> str:
        """sha256 (hex) of `public_pem`."""

    @property
    def development(self) -> bool:
        """Whether it is this user's development key."""

    @property
    def chain(self) -> tuple[str, ...]:
        """Certificates (PEM) of the key, its own first; empty for a bare key."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What its user should know of how the key is kept."""

    def sign(self, message: bytes) -> bytes:
        """A DER-encoded ECDSA signature over the SHA-256 of `message`."""


@runtime_checkable
class Sealer(Protocol):
    """Who signs whole statements, each with a key that is gone then (sigstore keyless)."""

    def tag(self) -> str:
        """16 hex digits that tell this signer from others, the same each time."""

    def issuer(self) -> str:
        """Who says who it is: the URL of an OIDC issuer."""

    def seal(self, payload: bytes) -> bytes:
        """A sigstore bundle over an in-toto statement, which verifies."""


@record
class SignerFile:
    """`signer.yaml`: a program that signs with a key which this process never sees."""

    schema: Literal["aotc.signer/1"]
    command: Annotated[
        tuple[str, ...],
        Bounds(least=1),
        "the program and its arguments; no shell; it runs in the folder of this file, gets the "
        "bytes to sign on standard input and answers with the signature on standard output",
    ]
    public_key: Annotated[str, "the public key: a path below or beside this file, or PEM text"]
    certificates: Annotated[
        str, "certificates of the key, its own first: a path, or PEM text; none by default"
    ] = ""
    format: Annotated[
        Literal["der", "raw"], "of the signature: DER, or r and s with 32 bytes each"
    ] = "der"
    timeout_seconds: Annotated[float, Bounds(least=1, most=600), "then the program is ended"] = 60.0

    def problems(self) -> list[Problem]:
        """What the types leave open."""
        found = []
        if not self.command[0]:
            found.append(Problem("command[0]", "is empty"))
        if any("\0" in word for word in self.command):
            found.append(Problem("command", "holds a NUL"))
        return found
