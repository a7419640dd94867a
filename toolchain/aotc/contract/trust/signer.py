"""The interface of signers, and the file that describes a signer in another program."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, runtime_checkable

from aotc.contract.codec.parsing import Bounds, Problem
from aotc.contract.finding import Finding
from aotc.contract.trust.anchors import TrustedIdentity
from aotc.records import record


class Signer(Protocol):
    """A P-256 key that signs, wherever its private half is kept."""

    @property
    def public_pem(self) -> str:
        """The public half (SPKI, PEM)."""

    @property
    def key_id(self) -> str:
        """sha256 (hex) of `public_pem`."""

    @property
    def development(self) -> bool:
        """Whether it is the development key of this user."""

    @property
    def chain(self) -> tuple[str, ...]:
        """The certificate chain of the key (PEM), its own first; empty without certificates."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the user should know about how the key is kept."""

    def sign(self, message: bytes) -> bytes:
        """A DER-encoded ECDSA signature over the SHA-256 of `message`."""


@runtime_checkable
class Sealer(Protocol):
    """A signer of complete statements, with a new key for each (sigstore keyless)."""

    def tag(self) -> str:
        """16 hexadecimal digits that identify this signer."""

    def issuer(self) -> str:
        """The URL of the OIDC issuer that confirms its identity."""

    def anchors(self) -> tuple[TrustedIdentity, ...]:
        """Its possible names, one of which its signatures verify for."""

    def seal(self, payload: bytes) -> bytes:
        """A verified sigstore bundle (JSON) with the in-toto statement `payload`."""


@record
class SignedBy:
    """Who made a bundle: the id of the key, and the identity with its issuer, or empty."""

    key_id: str
    identity: str
    development_key: bool


@record
class SignerFile:
    """`signer.yaml`: a program that signs with a key that this process never sees."""

    schema: Literal["aotc.signer/1"]
    command: Annotated[
        tuple[str, ...],
        Bounds(1),
        "the program and its arguments, without a shell; it runs in the folder of this file, gets "
        "the bytes to sign on standard input, and writes the signature to standard output",
    ]
    public_key: Annotated[str, "the public key: a path relative to this file, or PEM text"]
    certificates: Annotated[
        str, "certificates of the key, its own first: a path, or PEM text; default: none"
    ] = ""
    format: Annotated[
        Literal["der", "raw"], "of the signature: DER, or r and s in 32 bytes each"
    ] = "der"
    timeout_seconds: Annotated[
        float, Bounds(1, 600), "time limit; the program is stopped after it"
    ] = 60.0

    def problems(self) -> list[Problem]:
        """Rules that the types do not express."""
        found = []
        if not self.command[0]:
            found.append(Problem("command[0]", "is empty"))
        if any("\0" in word for word in self.command):
            found.append(Problem("command", "holds a NUL"))
        return found
