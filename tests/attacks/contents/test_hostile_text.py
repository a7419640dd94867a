"""No command shows text of a file at the beginning of its own lines, or unescaped."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from attacked_artifact import Attacked
from hostile_text import (
    HOSTILE,
    MARK,
    TAME,
    hostile_model,
    poison_bundle,
    poisoned,
    poisoned_everywhere,
    refuse_hostile,
    save_yaml,
)
from made_certificates import authority, leaf

from aotc.cli.main import main
from aotc.spec.codec import encode
from aotc.spec.json import canonical_json
from aotc.spec.manifest import Manifest
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.target import Target
from aotc.spec.trust_policy import TrustPolicy
from aotc.trust import oms
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

BUILD = ("--force", "--no-cache")
LONGEST = 500
# What the tables themselves are drawn with; no hostile text has it.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class World:
    """A folder with hostile files of every kind, and the key that signed them."""

    folder: Path
    environment: dict[str, str]
    key: Path
    public: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hostile")
    environment = {
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "AOTC_STORE": str(folder / "store"),
        "AOTC_CACHE": str(folder / "build-cache"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("AOTC_TRUST_ROOT", raising=False)
        patch.chdir(folder)
        private, public = generate(folder / "release.pem")
        made = World(folder, environment, private, public)
        _make(made)
        yield made
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def _make(world: World) -> None:
    folder, key = world.folder, load_private(world.key)
    onnx.save(hostile_model(), folder / "hostile.onnx")
    assert main(["build", "hostile.onnx", "-o", "good.aotc", "--key", str(world.key)]) == 0
    # Attestations that are signed, with hostile predicates, under hostile names.
    good = folder / "good.aotc"
    for name in ("evidence", "provenance", "sbom"):
        bundle = good / "attestations" / f"{name}.sigstore.json"
        poison_bundle(bundle, key)
        shutil.copy(bundle, bundle.with_name(f"{MARK} \u0435{name}.sigstore.json"))
    _poison_manifest(world, good, folder / "poisoned.aotc")
    assert main(["pack", "good.aotc", "-o", "good.aotc.zip"]) == 0
    with zipfile.ZipFile(folder / "bad.aotc.zip", "w") as archive:
        for path in good.rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(good).as_posix())
        archive.writestr(f"payload/{HOSTILE.replace(chr(0), '')[:200]}", b"x")
    # Another file, and one that is not listed.
    shutil.copytree(good, folder / "changed.aotc")
    (folder / "changed.aotc/payload" / f"{MARK}\n{MARK}\x1b[2K").write_bytes(b"x")
    named = folder / "changed.aotc/attestations" / f"{TAME[2][:60]}\n{MARK}.sigstore.json"
    named.write_text(HOSTILE)
    # A certificate of a hostile name.
    shutil.copytree(good, folder / "certified.aotc")
    root = authority("root")
    signed = oms.sign({"aotc.json": "1" * 64}, leaf(root, subject=HOSTILE[:60]).signer())
    (folder / "certified.aotc/attestations/oms.sigstore.json").write_bytes(signed)
    # Documents that people write.
    save_yaml(folder / "profile.yaml", poisoned(Profile, encode(load_profile("edge"), full=True)))
    save_yaml(folder / "bad-profile.yaml", poisoned_everywhere(encode(load_profile("edge"))))
    save_yaml(folder / "unknown.yaml", {"schema": "aotc.profile/1", HOSTILE: HOSTILE})
    target = encode(load_target("linux-x86-64"), full=True)
    save_yaml(folder / "target.yaml", poisoned(Target, target))
    _write_policy(world)
    (folder / "broken.yaml").write_text(f"{MARK}: [\n'{MARK}\u202e\n")
    # Requests.
    model = hostile_model().graph.input[0].name
    lines = [{model: [size, 4]} for size in (1, 1, 2, 3, 3, 5)]
    (folder / "traffic.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "bad.jsonl").write_text(json.dumps({HOSTILE: [HOSTILE]}) + "\n" + HOSTILE)
    (folder / "bad.csv").write_text(f'"{HOSTILE}",b\n"{HOSTILE}",2\n')
    np.savez(folder / "bad.npz", **{TAME[2]: np.zeros(1)})
    (folder / "bad.npy").write_text(HOSTILE)
    # Models that are refused.
    folder.joinpath("models").mkdir()
    refused = hostile_model()
    refused.graph.node[0].op_type, refused.graph.node[0].domain = HOSTILE, HOSTILE
    refused.opset_import.append(onnx.helper.make_opsetid(HOSTILE, 1))
    onnx.save(refused, folder / "models" / f"{MARK}\n{MARK}\x1b[2K.onnx")
    (folder / "models" / f"{MARK}\u202e.onnx").write_text(HOSTILE)
    onnx.save(refused, folder / "refused.onnx")
    (folder / "trust.pub").write_text(HOSTILE)
    (folder / "signer.yaml").write_text(yaml.safe_dump({"schema": HOSTILE, HOSTILE: HOSTILE}))


def _poison_manifest(world: World, good: Path, to: Path) -> None:
    """Hostile text wherever aotc.json accepts it, all of it signed."""
    shutil.copytree(good, to)
    spoilt = Attacked(to, load_private(world.key), world.public, to)
    bundles = {path: path.read_bytes() for path in (to / "attestations").iterdir()}
    document = poisoned(Manifest, spoilt.manifest)
    text = canonical_json(document)
    spoilt.sign_manifest(text)
    for bundle, data in bundles.items():
        if bundle.name != "oms.sigstore.json":
            bundle.write_bytes(data)


def _write_policy(world: World) -> None:
    other = generate(world.folder / "other.pem")[1]
    policy = {
        "schema": "aotc.trust/1",
        "name": "prod",
        "sequence": 1,
        "expires": "2999-01-01T00:00:00Z",
        "keys": [
            {"id": "release", "pem": world.public.read_text(), "usage": ["oms", "provenance"]},
            {"id": "gone", "pem": other.read_text(), "usage": ["oms"], "revoked": "lost"},
        ],
        "rules": [
            {
                "name": "others",
                "match": {"name": "other", "channel": "*"},
                "require": [{"predicate": "oms", "signers": ["release"]}],
            },
            {
                "name": "all",
                "match": {"name": "*", "channel": "*"},
                "require": [
                    {"predicate": "oms", "signers": ["release"]},
                    {"predicate": "provenance", "signers": ["release"], "builders": ["me"]},
                ],
            },
        ],
        "min_versions": {"other": "1.0.0"},
        "revoked": {"artifacts": ["0" * 64], "keys": ["gone"]},
    }
    hostile = poisoned(TrustPolicy, policy)
    # This policy is applied to the artifact.
    hostile["rules"][1]["match"] = policy["rules"][1]["match"]
    hostile["revoked"]["keys"] = ["gone"]
    save_yaml(world.folder / "trust.yaml", hostile)
    save_yaml(world.folder / "bad-trust.yaml", poisoned_everywhere(policy))


GOOD = ("good.aotc", "--key", "release.pub")
CALLS = [
    ["inspect", "good.aotc"],
    ["inspect", "poisoned.aotc"],
    ["inspect", "hostile.onnx"],
    ["inspect", "refused.onnx"],
    ["inspect", "good.aotc", "--traffic", "traffic.jsonl"],
    ["inspect", "good.aotc", "--traffic", "bad.jsonl"],
    ["inspect", "good.aotc.zip"],
    ["inspect", "bad.aotc.zip"],
    ["verify", *GOOD],
    ["verify", *GOOD, "--explain"],
    ["verify", "poisoned.aotc", "--key", "release.pub"],
    ["verify", "poisoned.aotc", "--key", "release.pub", "--explain"],
    ["verify", "changed.aotc", "--key", "release.pub"],
    ["verify", "certified.aotc", "--key", "release.pub"],
    ["verify", "good.aotc.zip", "--key", "release.pub"],
    ["verify", "bad.aotc.zip", "--key", "release.pub"],
    ["verify", "good.aotc", "--trust", "trust.yaml", "--explain"],
    ["verify", "good.aotc", "--trust", "bad-trust.yaml"],
    ["verify", "good.aotc", "--trust", "broken.yaml"],
    ["verify", "good.aotc", "--trust", "trust.pub"],
    ["verify", *GOOD, "--target", "target.yaml"],
    ["trust", "check", "trust.yaml"],
    ["trust", "check", "bad-trust.yaml"],
    ["trust", "explain", "good.aotc", "--trust", "trust.yaml"],
    ["run", *GOOD],
    ["run", *GOOD, "--output-dir", "out"],
    ["run", "poisoned.aotc", "--key", "release.pub"],
    ["run", *GOOD, "--input", "bad.npz"],
    ["run", *GOOD, "--input", f"{HOSTILE}=bad.npy"],
    ["run", *GOOD, "--input", f"{hostile_model().graph.input[0].name}=bad.npy"],
    ["run", *GOOD, "--variant", HOSTILE],
    ["bench", *GOOD, "--runs", "2"],
    ["bench", *GOOD, "--runs", "2", "--dim", f"{HOSTILE}=1"],
    ["install", *GOOD],
    ["install", "poisoned.aotc", "--key", "release.pub"],
    ["store", "list"],
    ["store", "remove", HOSTILE],
    ["store", "prune", "--keep", "1GB"],
    ["cache", "list"],
    ["doctor"],
    ["pack", "good.aotc", "-o", "again.aotc.zip", "--force"],
    ["unpack", "good.aotc.zip", "-o", "unpacked.aotc", "--force"],
    ["unpack", "bad.aotc.zip", "-o", "bad.aotc"],
    ["profile", "check", "profile.yaml"],
    ["profile", "check", "bad-profile.yaml"],
    ["profile", "check", "unknown.yaml"],
    ["profile", "check", "broken.yaml"],
    ["profile", "show", "profile.yaml"],
    ["target", "show", "target.yaml"],
    ["target", "show", "bad-profile.yaml"],
    ["profile", "learn", "bad.jsonl", "--model", "hostile.onnx"],
    ["profile", "learn", "bad.csv", "--model", "hostile.onnx"],
    ["build", "hostile.onnx", "-o", "o.aotc", "--key", "release.pem", *BUILD],
    ["build", "hostile.onnx", "-o", "o.aotc", "--profile", "profile.yaml", *BUILD],
    ["build", "hostile.onnx", "-o", "o.aotc", "--profile", "bad-profile.yaml", *BUILD],
    ["build", "refused.onnx", "-o", "o.aotc", *BUILD],
    ["build", "bad.npy", "-o", "o.aotc", *BUILD],
    ["build", "hostile.onnx", "-o", "o.aotc", "--dim", f"{HOSTILE}=1", *BUILD],
    ["build", "hostile.onnx", "-o", "o.aotc", "--fixtures", "bad.npz", *BUILD],
    ["build", "hostile.onnx", "-o", "o.aotc", "--key", "signer.yaml", *BUILD],
    ["check-models", "models"],
    ["sign", "good.aotc", "--key", "release.pem", "--force"],
    ["sign", "good.aotc", "--key", "trust.pub"],
    ["attest", "good.aotc", "--approve", "--channel", "prod", "--expires", "2030-01-01",
     "--note", HOSTILE, "--key", "release.pem", "--trust", "release.pub", "--force"],
    ["attest", "good.aotc", "--approve", "--channel", HOSTILE, "--expires", HOSTILE,
     "--key", "release.pem"],
    ["explain", HOSTILE],
    ["explain", "--list"],
    ["explain", "G005"],
    [HOSTILE],
    ["verify", f"--{HOSTILE}"],
    ["store", HOSTILE],
]  # fmt: skip


def said(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capfd.readouterr()
    status = main([word.replace("\0", "") for word in words])
    shown = capfd.readouterr()
    return status, shown.out + shown.err


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("words", CALLS, ids=lambda words: " ".join(words)[:50].split(MARK)[0])
def test_no_line_begins_with_foreign_text(
    world: World, words: list[str], form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status, text = said([*words, *(["--json"] if form == "json" else [])], capfd)
    assert status in (0, 1, 2, 3), text
    refuse_hostile(text)
    if form == "json" and text.lstrip().startswith("{"):
        json.loads(text)
        assert text.isascii()
    else:
        assert len(text.splitlines()) < LONGEST


def test_hostile_text_was_shown(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise the test above would prove nothing."""
    for words in (
        ["inspect", "poisoned.aotc"],
        ["verify", "poisoned.aotc", "--key", "release.pub"],
        ["run", *GOOD],
        ["bench", *GOOD, "--runs", "2"],
        ["trust", "check", "trust.yaml"],
        ["profile", "check", "bad-profile.yaml"],
        ["check-models", "models"],
    ):
        assert MARK in said(words, capfd)[1], words


def test_outputs_stay_in_their_folder(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path for path in world.folder.rglob("*") if "inside" not in path.parts}
    status, text = said(["run", *GOOD, "--output-dir", "inside/one/two"], capfd)
    assert status == 0, text
    after = {path for path in world.folder.rglob("*") if "inside" not in path.parts}
    store = world.folder / "store"
    assert {name for name in after - before if store not in (name, *name.parents)} == set()
    written = [path for path in (world.folder / "inside").rglob("*") if path.is_file()]
    assert written
    assert {path.suffix for path in written} == {".npy"}
    for path in written:
        assert path.parent.parent == world.folder / "inside/one/two"
        assert path.name.isascii()


@pytest.mark.parametrize("name", ["../../../escaped", "/tmp/escaped", "..", "a/b", ".ssh", "a\nb"])
def test_a_fixture_whose_name_is_a_path_is_refused(
    world: World, tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "named.aotc"
    shutil.copytree(world.folder / "good.aotc", target)
    spoilt = Attacked(target, load_private(world.key), world.public, target)
    manifest = spoilt.manifest
    manifest["fixtures"][0]["name"] = name
    spoilt.sign_manifest(canonical_json(manifest))
    words = ["run", str(target), "--key", "release.pub", "--output-dir", str(tmp_path / "a/b/out")]
    status, text = said(words, capfd)
    assert (status, text.split()[1]) == (1, "AOTC-G009")
    assert {path.name for path in tmp_path.iterdir()} == {"named.aotc"}


def test_what_is_learned_is_shown_and_drawn_safely(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["profile", "learn", "traffic.jsonl", "--model", "hostile.onnx", "--seconds", "1"]
    words += ["--max-variants", "2", "--threads", "1"]
    status, text = said(words, capfd)
    assert status == 0, text
    assert MARK in text
    refuse_hostile(text)
    status, text = said([*words, "--html", "page.html", "--force"], capfd)
    assert status == 0, text
    page = (world.folder / "page.html").read_text("utf-8")
    assert "&lt;b onload=x" in page
    assert "<b onload=x" not in page
    assert "<script" not in page


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "poisoned.aotc"],
        ["verify", "poisoned.aotc", "--key", "release.pub"],
        ["verify", "changed.aotc", "--key", "release.pub"],
        ["run", "poisoned.aotc", "--key", "release.pub"],
        ["build", "refused.onnx", "-o", "o.aotc", *BUILD],
        ["build", "hostile.onnx", "-o", "o.aotc", "--key", "release.pem", *BUILD],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_terminal_shows_no_line_that_begins_with_foreign_text(
    world: World, words: list[str]
) -> None:
    """A terminal breaks lines by itself, at a width that an attacker may guess."""
    # A dumb terminal gets no progress display; for rich it is 80 columns wide.
    kind, columns = ("dumb", 80) if words[0] == "build" else ("xterm-256color", 64)
    text = _STYLE.sub("", on_a_terminal(world, words, kind, columns))
    assert MARK in text
    refuse_hostile(text, columns)


def on_a_terminal(world: World, words: list[str], kind: str, columns: int) -> str:
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    pty_size = f"stty cols {columns} rows 50 && exec "
    environment = {**os.environ, **world.environment, "TERM": kind}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        ["/bin/sh", "-c", pty_size + '"$0" -m aotc.cli.main "$@"', sys.executable, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=world.folder,
        env=environment,
    )
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], 120)[0]:
        try:
            block = os.read(ours, 1 << 16)
        except OSError:  # The other end is closed.
            break
        if not block:
            break
        said += block
    os.close(ours)
    assert process.wait(60) in (0, 1, 3), said
    return said.decode("utf-8").replace("\r\n", "\n")


def test_long_lists_and_texts_are_cut(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hint of 30 MB, and 20,000 unknown fields."""
    target = tmp_path / "long.aotc"
    shutil.copytree(world.folder / "good.aotc", target)
    spoilt = Attacked(target, load_private(world.key), world.public, target)

    def change(manifest: dict[str, Any]) -> None:
        manifest["target"] = "y" * 30_000_000
        manifest["findings"] = [
            {"code": "AOTC-S008", "what": "z", "where": str(number)} for number in range(20_000)
        ]

    manifest = spoilt.manifest
    change(manifest)
    spoilt.sign_manifest(canonical_json(manifest))
    status, text = said(["inspect", str(target)], capfd)
    assert status == 0
    assert "(30,0" in text
    assert "and 19,8" in text.replace("19800", "19,800")
    assert len(text) < 100_000
    assert len(text.splitlines()) < LONGEST
    path = tmp_path / "many.yaml"
    path.write_text(
        "schema: aotc.profile/1\nname: x\n" + "".join(f"f{number}: 1\n" for number in range(2000))
    )
    status, text = said(["profile", "check", str(path)], capfd)
    assert status == 3
    assert len(text.splitlines()) < LONGEST
