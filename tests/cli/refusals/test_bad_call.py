"""Calls that cannot be answered: wrong words, keys, outputs and inputs."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from command import Command
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from made_models import FEATURES, linear, save
from model_parts import model_of
from onnx import TensorProto, helper

from aotc.trust import key_files

GOOD = np.ones((2, FEATURES), np.float32)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command in a folder with `linear.onnx` and a strict `good.aotc` for batches to 8."""
    aotc = Command(tmp_path_factory.mktemp("built"))
    save(linear(), aotc.folder / "linear.onnx")
    (aotc.folder / "strict.yaml").write_text(
        "schema: aotc.profile/1\nname: strict\nstrict: true\ndims: {batch: 1..8}\n"
    )
    words = ("build", "linear.onnx", "--profile", "strict.yaml", "-o", "good.aotc")
    assert aotc(*words).status == 0
    return aotc


# -- words
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bild"], "did you mean 'build'?"),
        (["build"], "MODEL"),
        (["build", "a.onnx", "b.onnx"], "'b.onnx'"),
        (["build", "a.onnx", "--forse"], "'--force'"),
        (["build", "a.onnx", "--dim", "batch"], "NAME=VALUE"),
        (["build", "a.onnx", "--dim", "n=1", "--dim", "n=2"], "given twice"),
        (["verify"], "ARTIFACT"),
        (["verify", "a.aotc", "--key"], "--key"),
        (["run", "a.aotc", "--input"], "--input"),
        (["keygen"], "--output"),
        (["explain", "AOTC-Z999"], "AOTC-Z999"),
        (["profile", "chek"], "'check'"),
    ],
    ids=" ".join,
)
def test_usage(aotc: Command, words: list[str], says: str) -> None:
    assert says in aotc(*words).refused("AOTC-I027", 2)["what"]
    plain = aotc.plain(*words)
    assert (plain.status, plain.stdout) == (2, "")
    assert plain.stderr.startswith("error: AOTC-I027 argument is not valid\n")


def test_no_words(aotc: Command) -> None:
    assert aotc.plain().status == 2
    assert aotc.plain("--help").status == 0


def test_a_reader_that_goes_away(built: Command) -> None:
    """A closed pipe is nobody's error to read."""
    process = built.start("explain", "--list")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as stderr:
        assert stderr.read() == ""
    assert process.wait() in (0, 1)


# -- the output
def test_an_output_that_exists(built: Command) -> None:
    """One of another model, and what is no artifact; its own one it replaces."""
    before = (built.folder / "good.aotc/payload/aotc.json").read_bytes()
    save(linear(features=FEATURES + 1), built.folder / "other.onnx")
    found = built("build", "other.onnx", "-o", "good.aotc").refused("AOTC-I017", 3)
    assert found["where"] == "good.aotc"
    assert found["what"] == "the output exists and is of another model"
    (built.folder / "mine").mkdir()
    found = built("build", "linear.onnx", "-o", "mine").refused("AOTC-I017", 3)
    assert found["what"] == (
        "the output exists and is not an artifact, so that --force does not replace it"
    )
    assert found["fix"] == "Choose another output with -o, or remove it yourself."
    (built.folder / "mine").rmdir()
    assert (built.folder / "good.aotc/payload/aotc.json").read_bytes() == before
    assert built.leftovers() == []


def test_an_output_that_is_replaced(aotc: Command, built: Command) -> None:
    shutil.copytree(built.folder / "good.aotc", aotc.folder / "old.aotc")
    (aotc.folder / "old.aotc" / "payload" / "of-old").touch()
    save(linear(), aotc.folder / "linear.onnx")
    outcome = aotc("build", "linear.onnx", "-o", "old.aotc", "--force")
    assert outcome.status == 0
    assert not (aotc.folder / "old.aotc" / "payload" / "of-old").exists()
    assert aotc("verify", "old.aotc").status == 0
    assert aotc.leftovers() == []


def test_a_replacement_that_fails_keeps_the_artifact(built: Command) -> None:
    (built.folder / "text.onnx").write_text("no model")
    words = ("build", "text.onnx", "-o", "good.aotc", "--force")
    built(*words).refused("AOTC-I002", 3)
    assert built("verify", "good.aotc").status == 0
    assert built.leftovers() == []


@pytest.mark.parametrize("words", [(), ("--force",)])
@pytest.mark.parametrize("name", ["mine", "file", "link", "dangling", ".", ".."])
def test_force_replaces_artifacts_alone(
    aotc: Command, built: Command, name: str, words: tuple[str, ...]
) -> None:
    """A slip of the hand must not delete a folder of the user's; nobody is told to try --force."""
    folder = aotc.folder / "in"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "precious").write_text("x")
    (folder / "file").write_text("x")
    shutil.copytree(built.folder / "good.aotc", folder / "kept.aotc")
    (folder / "link").symlink_to("kept.aotc")
    (folder / "dangling").symlink_to("nowhere")
    before = sorted(folder.rglob("*"))
    found = aotc("build", built.folder / "linear.onnx", "-o", f"in/{name}", *words).refused(
        "AOTC-I017", 3
    )
    assert "is not an artifact" in found["what"]
    assert found["fix"] == "Choose another output with -o, or remove it yourself."
    assert sorted(folder.rglob("*")) == before
    assert aotc.leftovers() == []


@pytest.mark.parametrize("output", ["no/such/out.aotc", "file/out.aotc", "n" * 300])
def test_an_output_that_cannot_be(aotc: Command, output: str) -> None:
    (aotc.folder / "file").touch()
    aotc("build", "linear.onnx", "-o", output).refused("AOTC-I026", 3)
    assert aotc.leftovers() == []


def _as_a_mere_user() -> list[str]:
    """Words before a command that take from root what lets it write everywhere."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-all"]
    if not shutil.which("setpriv") or subprocess.run([*words, "true"], check=False).returncode:
        pytest.skip("this is root, and setpriv cannot take its rights away")
    return words


def test_folders_that_may_not_be_written(built: Command) -> None:
    prefix = _as_a_mere_user()
    closed = built.folder / "closed"
    closed.mkdir(mode=0o555)
    words = ("build", "linear.onnx", "-o", "closed/out.aotc")
    found = built(*words, prefix=prefix).refused("AOTC-I026", 3)
    assert found["found"] == "Permission denied"
    found = built("keygen", "-o", "closed/a.pem", prefix=prefix).refused("AOTC-I026", 3)
    assert (found["what"], found["found"]) == ("cannot write the key", "Permission denied")
    elsewhere = Command(built.folder, {"AOTC_STORE": str(closed / "store")})
    found = elsewhere("run", "good.aotc", prefix=prefix).refused("AOTC-R007", 3)
    assert found["what"] == "the store: Permission denied"
    words = ("run", "good.aotc", "--output-dir", "closed/answers")
    built(*words, prefix=prefix).refused("AOTC-I026", 3)
    assert list(closed.iterdir()) == []


def test_a_store_that_is_a_file(built: Command) -> None:
    stored = Command(built.folder, {"AOTC_STORE": str(built.folder / "linear.onnx")})
    stored("run", "good.aotc").refused("AOTC-R007", 3)


# -- keys
def _pem(secret: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: str = "") -> bytes:
    return secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode())
        if password
        else serialization.NoEncryption(),
    )


def _public(secret: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return secret.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


KEYS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "RSA": lambda: _both(rsa.generate_private_key(65537, 2048)),
    "P-521": lambda: _both(ec.generate_private_key(ec.SECP521R1())),
    "garbage": lambda: (b"garbage", b"garbage"),
    "empty": lambda: (b"", b""),
    "binary": lambda: (bytes(range(256)), bytes(range(256))),
}


def _both(secret: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> tuple[bytes, bytes]:
    return _pem(secret), _public(secret)


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_another_kind(built: Command, kind: str) -> None:
    private, public = KEYS[kind]()
    (built.folder / "odd.pem").write_bytes(private)
    (built.folder / "odd.pub").write_bytes(public)
    words = ("build", "linear.onnx", "-o", "out.aotc", "--key", "odd.pem")
    assert built(*words).refused("AOTC-I023", 3)["where"] == "odd.pem"
    for command in ("verify", "run"):
        built(command, "good.aotc", "--key", "odd.pub").refused("AOTC-I023", 3)
        built(command, "good.aotc", "--trust", "odd.pub").refused("AOTC-G013", 3)
    assert built.leftovers() == []


def test_an_encrypted_key(built: Command) -> None:
    secret = ec.generate_private_key(ec.SECP256R1())
    (built.folder / "locked.pem").write_bytes(_pem(secret, "password"))
    words = ("build", "linear.onnx", "-o", "out.aotc", "--key", "locked.pem")
    assert built(*words).refused("AOTC-I034", 3)["where"] == "locked.pem"
    (built.folder / "password").write_text("wrong\n")
    asked = dataclasses.replace(built, extra={"AOTC_KEY_PASSWORD_FILE": "password"})
    found = asked(*words).refused("AOTC-I034", 3)
    assert found["what"] == "the password does not decrypt the key file"
    (built.folder / "password").write_text("password\n")
    assert asked("build", "linear.onnx", "-o", "opened.aotc", "--key", "locked.pem").status == 0


def test_halves_that_are_confused(built: Command) -> None:
    private, public = key_files.generate(built.folder / "pair.pem")
    words = ("build", "linear.onnx", "-o", "out.aotc", "--key", public)
    assert built(*words).refused("AOTC-I023", 3)["found"] == "a public key"
    found = built("verify", "good.aotc", "--key", private).refused("AOTC-I023", 3)
    assert found["found"] == "a private key"


def test_missing_files(built: Command) -> None:
    for words in (
        ("build", "linear.onnx", "-o", "out.aotc", "--key", "none.pem"),
        ("build", "linear.onnx", "-o", "out.aotc", "--fixtures", "none.npz"),
        ("verify", "good.aotc", "--key", "none.pub"),
        ("verify", "good.aotc", "--trust", "none.txt"),
        ("run", "good.aotc", "--key", "none.pub"),
        ("run", "good.aotc", "--input", "x=none.npy"),
        ("bench", "good.aotc", "--against", "none.onnx"),
    ):
        built(*words).refused("AOTC-I001", 3)
    assert built.leftovers() == []


def test_keys_are_never_overwritten(aotc: Command) -> None:
    assert aotc("keygen", "-o", "a.pem").status == 0
    before = (aotc.folder / "a.pem").read_bytes()
    aotc("keygen", "-o", "a.pem").refused("AOTC-I017", 3)
    aotc("keygen", "-o", "none/a.pem").refused("AOTC-I026", 3)
    assert (aotc.folder / "a.pem").read_bytes() == before


# -- inputs
@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        (GOOD.astype(np.float64), "AOTC-R002", "float64"),
        (GOOD.astype(np.int64), "AOTC-R002", "int64"),
        (GOOD[0], "AOTC-R003", f"1: [{FEATURES}]"),
        (GOOD[None], "AOTC-R003", f"3: [1, 2, {FEATURES}]"),
        (GOOD[:, :3], "AOTC-R004", "3: [2, 3]"),
        (np.ones((9, FEATURES), np.float32), "AOTC-S010", "9"),
        (np.ones((0, FEATURES), np.float32), "AOTC-S010", "0"),
    ],
    ids=["double", "integers", "vector", "cube", "narrow", "large", "empty"],
)
def test_an_input_that_does_not_fit(
    built: Command, given: np.ndarray, code: str, says: str
) -> None:
    np.save(built.folder / "x.npy", given)
    found = built("run", "good.aotc", "--input", "x=x.npy").refused(code, 1)
    assert says in found["found"]


def test_an_input_that_fits(built: Command) -> None:
    np.save(built.folder / "x.npy", GOOD)
    words = ("run", "good.aotc", "--input", "x=x.npy", "--output-dir", "answers")
    (run,) = built(*words).document["runs"]
    (output,) = run["outputs"]
    assert np.load(built.folder / output["file"]).shape == GOOD.shape


@pytest.mark.parametrize(
    "given",
    [np.asfortranarray(GOOD), GOOD.astype(">f4"), np.asfortranarray(GOOD).astype(">f4")],
    ids=["columns", "bytes", "both"],
)
@pytest.mark.parametrize("form", ["x=x.npy", "x=x.npz", "x.npz"])
def test_the_order_in_a_file_is_of_no_matter(built: Command, given: np.ndarray, form: str) -> None:
    np.save(built.folder / "plain.npy", GOOD)
    np.save(built.folder / "x.npy", given)
    np.savez(built.folder / "x.npz", x=given)
    answers = []
    for word in ("x=plain.npy", form):
        words = ("run", "good.aotc", "--input", word, "--output-dir", "ordered")
        (run,) = built(*words).document["runs"]
        answers.append(np.load(built.folder / run["outputs"][0]["file"]))
    assert np.array_equal(*answers)


def test_an_input_that_is_not_given(aotc: Command) -> None:
    info = helper.make_tensor_value_info
    model = model_of(
        [helper.make_node("Add", ["a", "b"], ["sum"])],
        inputs=[info(name, TensorProto.FLOAT, ["batch"]) for name in "ab"],
        outputs=[info("sum", TensorProto.FLOAT, ["batch"])],
    )
    save(model, aotc.folder / "add.onnx")
    assert aotc("build", "add.onnx", "-o", "add.aotc").status == 0
    for name, size in (("one", 1), ("two", 2)):
        np.save(aotc.folder / f"{name}.npy", np.ones(size, np.float32))
    found = aotc("run", "add.aotc", "--input", "a=one.npy").refused("AOTC-R001", 1)
    assert (found["what"], found["expected"]) == ("input 'b' is missing", "a, b")
    words = ("run", "add.aotc", "--input", "a=one.npy", "--input", "b=two.npy")
    found = aotc(*words).refused("AOTC-R004", 1)
    assert found["what"] == "dim 'batch' has two sizes in one call"


def test_inputs_by_another_name(built: Command) -> None:
    np.save(built.folder / "x.npy", GOOD)
    np.savez(built.folder / "y.npz", y=GOOD)
    for words in (["y=x.npy"], ["x.npy"], ["x=x.npy", "x=x.npy"], ["y.npz"]):
        options = [word for each in words for word in ("--input", each)]
        built("run", "good.aotc", *options).refused("AOTC-I027", 2)


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}  "]
)
def test_an_input_that_is_no_array(built: Command, content: bytes) -> None:
    (built.folder / "bad.npy").write_bytes(content)
    built("run", "good.aotc", "--input", "x=bad.npy").refused("AOTC-I027", 2)
    (built.folder / "bad.npz").write_bytes(content)
    built("run", "good.aotc", "--input", "bad.npz").refused("AOTC-I027", 2)


def test_an_input_of_objects(built: Command) -> None:
    """Reading one would run what the file says."""
    np.save(built.folder / "objects.npy", np.array([{}], object), allow_pickle=True)
    built("run", "good.aotc", "--input", "x=objects.npy").refused("AOTC-I027", 2)


def test_an_input_that_is_cut_short(built: Command) -> None:
    np.save(built.folder / "cut.npy", GOOD)
    content = (built.folder / "cut.npy").read_bytes()
    (built.folder / "cut.npy").write_bytes(content[:-1])
    built("run", "good.aotc", "--input", "x=cut.npy").refused("AOTC-I027", 2)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04"])
def test_fixtures_that_are_none(built: Command, content: bytes) -> None:
    (built.folder / "bad.npz").write_bytes(content)
    words = ("build", "linear.onnx", "-o", "out.aotc", "--fixtures", "bad.npz")
    built(*words).refused("AOTC-I024", 3)
    assert built.leftovers() == []


@pytest.mark.parametrize(
    "words", [("portabel",), ("portabel,portable",), ("portabel", "--variant", "portable")]
)
def test_a_variant_that_is_not_there(built: Command, words: tuple[str, ...]) -> None:
    outcome = built("run", "good.aotc", "--variant", *words)
    assert outcome.status in (1, 2)
    assert "portable" in outcome.stdout
