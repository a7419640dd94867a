"""Text around a key, such as "REVOKED, do not use", is refused wherever a key is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from made_certificates import authority, leaf, p256, public_pem
from policy_setting import Setting

from aotc.base.errors import AotcError
from aotc.trust.development_key import default_trust, development_key
from aotc.trust.key_loading import load_one_public, load_private, load_public
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.signers import load_signer

NOTE = "REVOKED by security, do not use"


def secret_pem(secret: Any) -> str:
    """The private half of a key."""
    data = secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return str(data.decode())


# Where a key is read: the PEM text there, how it is read, and the code.


def _policy_key(host: Setting, text: str) -> Any:
    host.policy["keys"][0]["pem"] = text
    return read_policy(host.write()).policy.keys


def _policy_authority(host: Setting, text: str) -> Any:
    host.policy["authorities"] = [{"id": "ca", "pem": text, "usage": ["oms"]}]
    return read_policy(host.write()).policy.authorities


def _roots(host: Setting, text: str) -> Any:
    path = host.write_roots(1, "root-a")
    record = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**record, "keys": [text]}))
    return read_roots(path).keys


def _file(read: Callable[[Path], Any]) -> Callable[[Setting, str], Any]:
    def read_text(host: Setting, text: str) -> Any:
        path = host.folder / "key.pem"
        path.unlink(missing_ok=True)
        path.touch(0o600)
        path.write_text(text)
        return read(path)

    return read_text


def _signer_field(field: str) -> Callable[[Setting, str], Any]:
    """A field of a signer file, as text and as the name of a file."""

    def read_text(host: Setting, text: str) -> Any:
        certified = leaf(authority("ca"))
        stated = {
            "schema": "aotc.signer/1",
            "command": ["true"],
            "public_key": certified.signer().public_pem,
            "certificates": certified.pem,
            field: text,
        }
        if field == "public_key":
            del stated["certificates"]
        path = host.folder / "signer.yaml"
        path.write_text(yaml.safe_dump(stated))
        written = host.folder / "beside.pem"
        written.write_text(text)
        found = []
        for value in (text, "beside.pem"):
            path.write_text(yaml.safe_dump({**stated, field: value}))
            found.append(refusal_or(lambda: load_signer(path)))
        assert isinstance(found[0], AotcError) == isinstance(found[1], AotcError)
        if isinstance(found[0], AotcError):
            raise found[0]
        return found[0]

    return read_text


def refusal_or(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except AotcError as error:
        return error


PLACES: dict[str, tuple[str, Callable[[Setting, str], Any], str]] = {
    "key of a policy": ("public", _policy_key, "AOTC-G019"),
    "authority of a policy": ("certificate", _policy_authority, "AOTC-G019"),
    "root key": ("public", _roots, "AOTC-G019"),
    "list of keys": ("public", _file(load_public), "AOTC-G013"),
    "one key": ("public", _file(load_one_public), "AOTC-I023"),
    "signing key": ("private", _file(load_private), "AOTC-I023"),
    "certified signing key": ("certified", _file(load_signer), "AOTC-I023"),
    "key of a signer file": ("public", _signer_field("public_key"), "AOTC-I023"),
}


def material(kind: str) -> list[str]:
    """PEM blocks of a kind."""
    if kind == "public":
        return [public_pem(p256())]
    if kind == "certificate":
        return [authority("company").pem]
    if kind == "private":
        return [secret_pem(p256())]
    certified = leaf(authority("company"))
    return [secret_pem(certified.secret), certified.pem]


@pytest.mark.parametrize("place", PLACES)
def test_text_around_a_key_is_refused(place: str, host: Setting) -> None:
    kind, read, code = PLACES[place]
    blocks = material(kind)
    text = "".join(blocks)
    assert read(host, text)
    assert read(host, "\n\n" + text.replace("\n", "\r\n") + "\n \n")
    spoilt = [
        f"{NOTE}\n{text}",
        f"{text}{NOTE}\n",
        f"{text}{NOTE}",
        f"{text.rstrip()} {NOTE}\n",
        f"{text}\n\n\n{NOTE}\n",
        f"{text}\t{NOTE}\n",
        f"{text}# fine\n {NOTE}\n",
        f"{text}#\u2028{NOTE}\n",
        f"{text}#\r{NOTE}\n",
        f"{NOTE} {text}",
        text + "-----BEGIN REVOKED-----\nAAAA\n-----END REVOKED-----\n",
    ]
    spoilt.append(text.replace("-----\n", f"-----\nComment: {NOTE}\n\n", 1))
    if len(blocks) > 1:
        spoilt.append(f"{blocks[0]}{NOTE}\n{blocks[1]}")
    for bad in spoilt:
        with pytest.raises(AotcError) as caught:
            read(host, bad)
        assert caught.value.code == code, bad


@pytest.mark.parametrize("place", ["key of a policy", "authority of a policy", "root key"])
def test_yaml_has_comments_of_its_own(place: str, host: Setting) -> None:
    """A line with # within `pem:` is text."""
    kind, read, code = PLACES[place]
    (text,) = material(kind)
    with pytest.raises(AotcError) as caught:
        read(host, f"{text}# {NOTE}\n")
    assert caught.value.code == code
    assert NOTE in caught.value.found


def test_the_line_is_told_without_control_characters(host: Setting) -> None:
    with pytest.raises(AotcError) as caught:
        _policy_key(host, public_pem(p256()) + "lost \x1b[2J" + "x" * 500)
    assert "\x1b" not in caught.value.found
    assert len(caught.value.found) < 200


def test_certificates_of_a_signer_file(host: Setting) -> None:
    certified = leaf(authority("ca"))
    path = host.folder / "signer.yaml"
    stated = {
        "schema": "aotc.signer/1",
        "command": ["true"],
        "public_key": certified.signer().public_pem,
    }
    path.write_text(yaml.safe_dump({**stated, "certificates": certified.pem}))
    assert load_signer(path).chain
    (host.folder / "chain.pem").write_text(certified.pem + NOTE)
    for text in (certified.pem + NOTE, f"{NOTE}\n{certified.pem}", "chain.pem"):
        path.write_text(yaml.safe_dump({**stated, "certificates": text}))
        with pytest.raises(AotcError) as caught:
            load_signer(path)
        assert caught.value.code == "AOTC-I023"


def test_what_openssl_writes_beside_a_private_key_is_taken(host: Setting) -> None:
    parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    read = PLACES["signing key"][1]
    assert read(host, parameters + secret_pem(p256()))
    with pytest.raises(AotcError) as caught:
        read(host, secret_pem(p256()) + secret_pem(p256()))
    assert caught.value.found == "several private keys"


def test_a_public_half_with_text_is_made_again(host: Setting) -> None:
    key = development_key()
    public = host.folder / "config" / "aotc" / "development.pub"
    public.write_text(host.keys["stranger"].public_pem + NOTE)
    assert [item.pem for item in default_trust()] == [key.public_pem]
