"""P-256 keys: generated, loaded, and trusted by default or on request.

`cryptography` is imported only where a key is used; the default trust needs none of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.trust import TrustedKey, split_pem
from aotc.errors import AotcError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

MAX_KEY_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A P-256 private key; only its signatures and its public half leave it."""

    public_pem: str
    key_id: str
    development: bool
    _secret: EllipticCurvePrivateKey = field(repr=False, compare=False)

    def sign(self, message: bytes) -> bytes:
        """ECDSA over SHA-256 with a deterministic nonce (RFC 6979), DER-encoded."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256

        return self._secret.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True))

    def trusted(self) -> TrustedKey:
        """The public half, as a key to trust."""
        return TrustedKey(pem=self.public_pem, origin="signer", development=self.development)


def key_id(public_pem: str) -> str:
    """sha256 (hex) of the SPKI PEM as OpenSSL writes it: the `hint` of a sigstore bundle."""
    return hashlib.sha256(public_pem.encode("ascii")).hexdigest()


def generate(path: Path) -> tuple[Path, Path]:
    """Write a new private key (PKCS#8 PEM, mode 0600) to `path` and its public half beside it.

    Returns both paths; the public one has the suffix `.pub`.
    Raises I017 where either exists, I026 where the folder cannot be written, I027 for a bad name.
    """
    if not path.name or path.is_dir():
        raise AotcError(
            "AOTC-I027", "the private key needs a file name", where=str(path), mend="Give NAME.pem."
        )
    public = path.with_suffix(".pub")
    if public == path:
        raise AotcError(
            "AOTC-I027",
            "the private key's name may not end in .pub",
            where=str(path),
            mend="Give a name that ends in .pem.",
        )
    if public.exists() or public.is_symlink():
        raise _exists(public)
    secret_pem, public_pem = _new_pair()
    _write_new(path, secret_pem, 0o600)
    try:
        _write_new(public, public_pem.encode("ascii"), 0o644)
    except AotcError:
        path.unlink(missing_ok=True)
        raise
    return path, public


def load_private(path: Path, *, development: bool = False) -> PrivateKey:
    """Read an unencrypted PKCS#8 (or SEC1) PEM of a P-256 key; raises I001, I023."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = _read(path)
    try:
        secret = load_pem_private_key(data, password=None)
    except TypeError:
        raise _unusable(path, "an encrypted private key") from None
    except (ValueError, UnsupportedAlgorithm):
        found = "a public key" if split_pem(data.decode("ascii", "replace")) else "something else"
        raise _unusable(path, found) from None
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise _unusable(path, f"a key of type {type(secret).__name__}")
    if not isinstance(secret.curve, ec.SECP256R1):
        raise _unusable(path, f"a key on the curve {secret.curve.name}")
    public_pem = _pem(secret.public_key())
    return PrivateKey(public_pem, key_id(public_pem), development, secret)


def load_public(path: Path, *, code: str = "AOTC-G013") -> tuple[TrustedKey, ...]:
    """Every PEM public key in a file, in its order.

    Raises I001 where the file cannot be read, and `code` where it holds no key or one that
    is not on P-256.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text = _read(path).decode("utf-8", "replace")
    wanted = "one or more PEM public keys on P-256"
    found = []
    for number, block in enumerate(split_pem(text), start=1):
        try:
            public = load_pem_public_key(block.encode("ascii"))
        except (ValueError, UnsupportedAlgorithm):
            public = None
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(
            public.curve, ec.SECP256R1
        ):
            raise AotcError(
                code,
                f"key {number} of the file is unusable",
                where=str(path),
                expected=wanted,
                found="another kind of key" if public else "bytes that are no key",
            )
        found.append(TrustedKey(pem=_pem(public), origin=str(path)))
    if text.count("-----BEGIN PUBLIC KEY-----") != len(found) or not found:
        has_private = "PRIVATE KEY-----" in text
        raise AotcError(
            code,
            "the file is not a list of public keys",
            where=str(path),
            expected=wanted,
            found="a private key" if has_private else "something else",
            mend="Give the .pub file beside it." if has_private else "",
        )
    return tuple(found)


def development_key() -> PrivateKey:
    """This user's development key, created at its first use.

    Raises I023 where the file is unusable, I026 where it cannot be written.
    """
    secret_path, public_path = _development_paths()
    if not secret_path.exists():
        _create_development_key(secret_path)
    key = load_private(secret_path, development=True)
    pem = key.public_pem.encode("ascii")
    try:
        if not public_path.exists() or public_path.read_bytes() != pem:
            _replace(public_path, pem, 0o644)
    except OSError as error:
        raise _unwritable(public_path, error) from None
    return key


def default_trust() -> tuple[TrustedKey, ...]:
    """The development public key of this user, if there is one; nothing else is trusted unasked."""
    try:
        secret_path, public_path = _development_paths()
        if not secret_path.is_file():
            return ()
        blocks = split_pem(public_path.read_text("ascii")) if public_path.is_file() else ()
    except (AotcError, OSError, UnicodeDecodeError):
        return ()
    if len(blocks) != 1:
        return (load_private(secret_path, development=True).trusted(),)
    return (TrustedKey(pem=blocks[0], origin="development key", development=True),)


def resolve_trust(
    trust: str | Path | None = None, key: str | Path | None = None
) -> tuple[TrustedKey, ...]:
    """The keys that may vouch: those of `trust` and `key`, or the default where neither is given.

    Raises I001, G013 (for `trust`), I023 (for `key`).
    """
    if trust is None and key is None:
        return default_trust()
    found: dict[str, TrustedKey] = {}
    if trust is not None:
        found.update((each.pem, each) for each in load_public(Path(trust)))
    if key is not None:
        found.update((each.pem, each) for each in load_public(Path(key), code="AOTC-I023"))
    development = {each.pem for each in default_trust()}
    return tuple(
        TrustedKey(pem=each.pem, origin=each.origin, development=each.pem in development)
        for each in found.values()
    )


def _new_pair() -> tuple[bytes, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = ec.generate_private_key(ec.SECP256R1())
    pem = secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, _pem(secret.public_key())


def _pem(public: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    data = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data.decode("ascii")


def _development_paths() -> tuple[Path, Path]:
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    if configured and Path(configured).is_absolute():
        base = Path(configured)
    else:
        try:
            base = Path.home() / ".config"
        except RuntimeError:
            raise AotcError(
                "AOTC-I026",
                "this user has no home folder for a development key",
                mend="Set XDG_CONFIG_HOME, or sign with --key.",
            ) from None
    return base / "aotc" / "development.pem", base / "aotc" / "development.pub"


def _create_development_key(path: Path) -> None:
    """Of several processes that create the key at once, one wins and all use its key."""
    secret_pem, _ = _new_pair()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_new(draft, secret_pem, 0o600)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:
            # A file system without hard links: O_EXCL on the name itself decides the race.
            if not path.exists():
                _write_new(path, secret_pem, 0o600)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _replace(path: Path, data: bytes, mode: int) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_new(draft, data, mode)
    draft.replace(path)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from None
        raise


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_FILE_BYTES)
    except OSError as error:
        raise AotcError(
            "AOTC-I001", f"cannot read the key file: {error.strerror}", where=str(path)
        ) from None


def _exists(path: Path) -> AotcError:
    return AotcError(
        "AOTC-I017",
        "the key file is already there, and keys are never overwritten",
        where=str(path),
        mend="Choose another name with -o.",
    )


def _unwritable(path: Path, error: OSError) -> AotcError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return AotcError(
        "AOTC-I018" if full else "AOTC-I026",
        f"cannot write the key: {error.strerror}",
        where=str(path),
    )


def _unusable(path: Path, found: str) -> AotcError:
    return AotcError(
        "AOTC-I023",
        "the file is no usable signing key",
        where=str(path),
        expected="an unencrypted PEM private key on P-256",
        found=found,
    )
