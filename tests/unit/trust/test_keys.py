"""Keys: made once, never overwritten, refused with a code where they cannot be used."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import key_id
from aotc.trust import key_files, key_loading
from aotc.trust.development_key import default_trust, development_key, resolve_trust
from aotc.trust.key_loading import load_private, load_public

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "aotc"


def test_generate_writes_a_pair_that_belongs_together(tmp_path: Path) -> None:
    private, public = key_files.generate(tmp_path / "release.pem")
    assert (private.name, public.name) == ("release.pem", "release.pub")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = load_private(private)
    (trusted,) = load_public(public)
    assert trusted.pem == key.public_pem == public.read_text()
    assert key.key_id == key_id(trusted.pem)
    assert not key.development
    assert key.sign(b"message") == key.sign(b"message")
    assert "PRIVATE" not in repr(key)
    assert private.read_text().startswith("-----BEGIN PRIVATE KEY-----")


@pytest.mark.parametrize("existing", ["release.pem", "release.pub"])
def test_generate_overwrites_nothing(existing: str, tmp_path: Path) -> None:
    (tmp_path / existing).write_bytes(b"mine")
    with pytest.raises(AotcError) as caught:
        key_files.generate(tmp_path / "release.pem")
    assert caught.value.line() == (
        "AOTC-I017 the key file already exists, and keys are never overwritten "
        f"[{tmp_path / existing}]"
    )
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_bytes() == b"mine"


@pytest.mark.parametrize("empty", [("a.pem",), ("a.pem", "a.pub"), ("a.pub",)])
def test_empty_files_are_not_keys(empty: tuple[str, ...], tmp_path: Path) -> None:
    """An earlier release that was killed while it wrote a key left such files."""
    for name in empty:
        (tmp_path / name).touch(mode=0o600)
    private, public = key_files.generate(tmp_path / "a.pem")
    assert load_private(private).public_pem == public.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pem", "a.pub"]


def test_a_link_to_an_empty_file_stays(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "a.pem").symlink_to("target")
    with pytest.raises(AotcError) as caught:
        key_files.generate(tmp_path / "a.pem")
    assert caught.value.code == "AOTC-I017"
    assert (tmp_path / "a.pem").is_symlink()


def test_one_key_stays_where_several_processes_replace_an_empty_file(tmp_path: Path) -> None:
    """No process takes the key of another one for the empty file."""
    for turn in range(20):
        place = tmp_path / str(turn) / "a.pem"
        place.parent.mkdir()
        place.touch()
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(key_files.generate, place) for _ in range(4)]
        codes = {job.exception().code if job.exception() else "" for job in jobs}  # type: ignore[union-attr]
        assert codes <= {"", "AOTC-I017"}
        assert load_private(place).public_pem == place.with_suffix(".pub").read_text()
        assert sorted(path.name for path in place.parent.iterdir()) == ["a.pem", "a.pub"]


def test_a_key_whose_public_half_is_missing(tmp_path: Path) -> None:
    """As after a kill between both files: the private key is never replaced, and the fix says how
    to write the public one."""
    private, public = key_files.generate(tmp_path / "a.pem")
    before, pem = private.read_bytes(), public.read_text()
    public.unlink()
    with pytest.raises(AotcError) as caught:
        key_files.generate(private)
    assert caught.value.code == "AOTC-I017"
    assert private.read_bytes() == before
    command = caught.value.fix.partition("missing: ")[2]
    if shutil.which("openssl") is None:
        pytest.skip("the help names openssl, which is not installed here")
    subprocess.run(command.split(), check=True)
    assert public.read_text() == pem


def test_an_empty_development_key_is_replaced(config: Path) -> None:
    config.mkdir(parents=True)
    (config / "development.pem").touch(mode=0o600)
    made = development_key()
    assert load_private(config / "development.pem").public_pem == made.public_pem
    assert sorted(path.name for path in config.iterdir()) == ["development.pem", "development.pub"]


def test_generate_needs_a_folder_and_a_name(tmp_path: Path) -> None:
    for path, code in [("none/release.pem", "AOTC-I026"), ("release.pub", "AOTC-I027")]:
        with pytest.raises(AotcError) as caught:
            key_files.generate(tmp_path / path)
        assert caught.value.code == code


def _private_pem(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes = b""
) -> bytes:
    protection = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )


def test_unusable_private_keys(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    p256 = ec.generate_private_key(ec.SECP256R1())
    public = p256.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for data, found in [
        (b"", "something else"),
        (b"\xff\x00", "something else"),
        (public, "a public key"),
        (_private_pem(ec.generate_private_key(ec.SECP384R1())), "a key on the curve secp384r1"),
        (_private_pem(rsa.generate_private_key(65537, 2048)), "a key of type RSAPrivateKey"),
    ]:
        path.write_bytes(data)
        with pytest.raises(AotcError) as caught:
            load_private(path)
        assert (caught.value.code, caught.value.found) == ("AOTC-I023", found)
    with pytest.raises(AotcError) as caught:
        load_private(tmp_path / "none.pem")
    assert caught.value.code == "AOTC-I001"


def test_an_encrypted_key_takes_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (key_loading.FILE_VARIABLE, key_loading.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    path, public = key_files.generate(tmp_path / "release.pem", password=b"correct horse")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert load_private(path, password=b"correct horse").public_pem == public.read_text()
    with pytest.raises(AotcError) as caught:
        load_private(path)
    assert caught.value.line() == (f"AOTC-I034 there is no terminal to ask for a password [{path}]")
    monkeypatch.setenv(key_loading.VARIABLE, "wrong")
    with pytest.raises(AotcError) as caught:
        load_private(path)
    assert caught.value.line() == f"AOTC-I034 the password does not decrypt the key file [{path}]"
    monkeypatch.setenv(key_loading.VARIABLE, "correct horse")
    assert load_private(path).public_pem == public.read_text()
    # The file comes before the variable, and only its first line counts.
    (tmp_path / "password").write_bytes(b"other\n")
    monkeypatch.setenv(key_loading.FILE_VARIABLE, str(tmp_path / "password"))
    with pytest.raises(AotcError):
        load_private(path)
    (tmp_path / "password").write_bytes(b"correct horse\r\nnot this\n")
    assert load_private(path).public_pem == public.read_text()
    # No password is asked for when a key has none.
    plain, _ = key_files.generate(tmp_path / "plain.pem")
    assert load_private(plain).key_id != load_private(path).key_id


@pytest.mark.skipif(os.name != "posix", reason="modes of files are not those of POSIX")
@pytest.mark.parametrize(("mode", "reported"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_private_key_that_others_may_read_is_reported(
    mode: int, reported: bool, tmp_path: Path
) -> None:
    path, _ = key_files.generate(tmp_path / "release.pem")
    path.chmod(mode)
    found = load_private(path).findings
    assert [(finding.code, finding.where) for finding in found] == [
        ("AOTC-I038", str(path))
    ] * reported


def test_the_fix_for_a_missing_password_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NOPE", raising=False)
    with pytest.raises(AotcError) as caught:
        key_loading.from_variable("NOPE")
    assert "AOTC_KEY_PASSWORD" not in caught.value.fix
    monkeypatch.setenv("NOPE", "")
    with pytest.raises(AotcError) as caught:
        key_loading.from_variable("NOPE")
    assert caught.value.fix == "Set the variable to the password."


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 1024])
def test_unusable_password_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(content)
    with pytest.raises(AotcError) as caught:
        key_loading.from_file(tmp_path / "password")
    assert (caught.value.code, caught.value.what) == ("AOTC-I034", "the password is unusable")
    for name in ("none", "."):
        with pytest.raises(AotcError) as caught:
            key_loading.from_file(tmp_path / name)
        assert caught.value.what == "the password file cannot be read"


def test_openssl_opens_an_encrypted_key(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    path, public = key_files.generate(tmp_path / "release.pem", password=b"secret")
    done = subprocess.run(
        ["openssl", "pkey", "-in", path, "-passin", "pass:secret", "-pubout"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == public.read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("second", "status"), [("secret", 0), ("other", 3)])
def test_keygen_asks_twice_on_a_terminal(second: str, status: int, tmp_path: Path) -> None:
    import pty

    child, terminal = pty.fork()
    if child == 0:
        words = [sys.executable, "-m", "aotc.cli.main", "keygen", "-o", "a.pem", "--password"]
        os.chdir(tmp_path)
        os.execv(sys.executable, words)
    shown = b""
    for typed in ("secret", second):
        while not shown.endswith(b": "):
            shown += os.read(terminal, 1024)
        os.write(terminal, typed.encode() + b"\n")
        shown = b""
    with contextlib.suppress(OSError):  # The end of a pseudo-terminal is an error.
        while block := os.read(terminal, 1024):
            shown += block
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
    os.close(terminal)
    assert b"secret" not in shown
    if status == 0:
        assert load_private(tmp_path / "a.pem", password=b"secret")
    else:
        assert b"the two passwords differ" in shown
        assert not (tmp_path / "a.pem").exists()


def test_trust_files(tmp_path: Path) -> None:
    pairs = [key_files.generate(tmp_path / f"{name}.pem") for name in ("a", "b")]
    both = tmp_path / "both.pub"
    both.write_text("# the release keys\n" + "\r\n".join(p.read_text() for _, p in pairs))
    assert [key.pem for key in load_public(both)] == [p.read_text() for _, p in pairs]
    block = pairs[0][1].read_text()
    for text, found in [
        ("", "something else"),
        ("# nothing\n", "something else"),
        (pairs[0][0].read_text(), "a private key"),
        (block + block.replace("-----END PUBLIC KEY-----", ""), "something else"),
        (block.replace("MFkw", "AAAA"), "bytes that are not a key"),
        ("not this one:\n" + block, "something else"),
        (CERTIFICATE, "a certificate"),
        (block + "revoked: lost\n", "something else"),
        ("# not this one: " + block, "something else"),
        ("  " + block, "something else"),
    ]:
        both.write_text(text)
        with pytest.raises(AotcError) as caught:
            load_public(both)
        assert (caught.value.code, caught.value.found) == ("AOTC-G013", found)
        assert ("--authority" in caught.value.fix) == (text == CERTIFICATE)


def test_the_development_key_is_made_once(config: Path) -> None:
    assert default_trust() == ()
    key = development_key()
    assert key.development
    assert development_key() == key
    assert stat.S_IMODE((config / "development.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(config.stat().st_mode) == 0o700
    assert sorted(path.name for path in config.iterdir()) == ["development.pem", "development.pub"]
    (trusted,) = default_trust()
    assert (trusted.pem, trusted.development) == (key.public_pem, True)
    assert resolve_trust(None, None) == (trusted,)


def test_a_stated_key_replaces_the_default_trust(config: Path, tmp_path: Path) -> None:
    development = development_key()
    _, public = key_files.generate(tmp_path / "release.pem")
    (only,) = resolve_trust(None, public)
    assert (only.pem, only.development) == (public.read_text(), False)
    (own,) = resolve_trust(config / "development.pub", None)
    assert (own.pem, own.development) == (development.public_pem, True)
    assert len(resolve_trust(str(public), str(config / "development.pub"))) == 2


def test_many_processes_agree_on_one_development_key(config: Path) -> None:
    program = (
        "from aotc.trust.development_key import development_key; print(development_key().key_id)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "toolchain")}

    def start(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout

    with ThreadPoolExecutor(6) as pool:
        found = set(pool.map(start, range(6)))
    assert found == {development_key().key_id + "\n"}
    assert sorted(path.name for path in config.iterdir()) == ["development.pem", "development.pub"]


def test_a_lost_public_half_is_made_again(config: Path) -> None:
    key = development_key()
    (config / "development.pub").unlink()
    assert [anchor.pem for anchor in default_trust()] == [key.public_pem]
    (config / "development.pub").write_text("stale")
    development_key()
    assert (config / "development.pub").read_text() == key.public_pem


def test_the_default_trust_needs_no_cryptography(config: Path) -> None:
    development_key()
    program = (
        "import sys; from aotc.trust.development_key import default_trust; "
        "print(len(default_trust()), 'cryptography' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
    )
    assert done.stdout == "1 False\n"


def test_a_development_key_in_a_read_only_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The public key next to it is written if possible, and signing does not need it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = development_key()
    secret, public = tmp_path / "aotc" / "development.pem", tmp_path / "aotc" / "development.pub"
    public.unlink()
    public.mkdir()  # Nothing can be written there, by root either.
    assert development_key().key_id == made.key_id
    public.rmdir()
    assert development_key().key_id == made.key_id
    assert public.read_text() == made.public_pem
    assert secret.exists()
