"""Every published vector is accepted or refused as its index says, and can be regenerated."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.trust_anchors import Anchor, TrustedKey
from aotc.trust import dsse, key_files, oms, statements
from aotc.trust.bundles import verify_bundle
from aotc.trust.gate import verify
from aotc.trust.key_loading import PrivateKey, load_private, load_public
from aotc.trust.policy.host_trust import Trust

VECTORS = ROOT / "manifests" / "vectors"
FOLDERS = ("valid", "invalid", "invalid-payload")
READERS: dict[str, Callable[[bytes, Iterable[Anchor]], object]] = {
    "oms": verify_payload,
    "attestation": statements.verify,
}


def rows(folder: str) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads((VECTORS / folder / "index.json").read_bytes())
    return listed


ALL = [(folder, row) for folder in FOLDERS for row in rows(folder)]
BUNDLES = [(folder, row) for folder, row in ALL if row["kind"] in READERS]
MANIFESTS = [(folder, row) for folder, row in ALL if row["kind"] == "manifest"]


def name_of(value: Any) -> str:
    return value["file"].partition(".")[0] if isinstance(value, dict) else str(value)


@pytest.fixture(scope="module")
def trusted() -> tuple[TrustedKey, ...]:
    found = load_public(VECTORS / "trusted.pub")
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    path = tmp_path_factory.mktemp("keys") / "signer.pem"
    key_files.generate(path)
    return load_private(path)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_index_lists_every_file_once(folder: str) -> None:
    listed = [row["file"] for row in rows(folder)]
    assert sorted([*listed, "index.json"]) == sorted(
        path.name for path in (VECTORS / folder).iterdir()
    )
    assert all(row["why"] for row in rows(folder))


def test_there_are_enough_and_they_are_small() -> None:
    payloads = {row.get("payload", "payload") for _, row in MANIFESTS}
    assert {path.name for path in VECTORS.iterdir()} == {*FOLDERS, *payloads, "trusted.pub"}
    assert len(rows("valid")) >= 8
    assert len(rows("invalid")) >= 25
    assert len([row for folder, row in MANIFESTS if folder == "invalid-payload"]) >= 10
    assert sum(path.stat().st_size for path in VECTORS.rglob("*") if path.is_file()) < 200_000


@pytest.mark.parametrize(("folder", "row"), BUNDLES, ids=name_of)
def test_a_bundle(folder: str, row: dict[str, str], trusted: tuple[TrustedKey, ...]) -> None:
    data = (VECTORS / folder / row["file"]).read_bytes()
    if not row["code"]:
        READERS[row["kind"]](data, trusted)
        return
    with pytest.raises(AotcError) as caught:
        READERS[row["kind"]](data, trusted)
    assert caught.value.code == row["code"]
    # The defect is in the bundle itself, not only in its statement.
    if folder == "invalid" and row["code"] != "AOTC-G004":
        assert dsse.parse(data)


def test_a_bad_statement_is_signed_well(trusted: tuple[TrustedKey, ...]) -> None:
    """So that the statement is the only reason."""
    for folder, row in BUNDLES:
        if folder == "invalid-payload":
            verify_bundle(dsse.parse((VECTORS / folder / row["file"]).read_bytes()), trusted)


@pytest.mark.parametrize(("folder", "row"), BUNDLES, ids=name_of)
def test_without_trusted_keys_none_vouches(folder: str, row: dict[str, str]) -> None:
    with pytest.raises(AotcError) as caught:
        READERS[row["kind"]]((VECTORS / folder / row["file"]).read_bytes(), ())
    malformed = folder == "invalid" and row["code"] == "AOTC-G004"
    assert caught.value.code == ("AOTC-G004" if malformed else "AOTC-G002")


@pytest.mark.parametrize(("folder", "row"), MANIFESTS, ids=name_of)
def test_a_manifest(folder: str, row: dict[str, str], signer: PrivateKey, tmp_path: Path) -> None:
    payload = tmp_path / "a.aotc" / "payload"
    shutil.copytree(VECTORS / row.get("payload", "payload"), payload)
    shutil.copyfile(VECTORS / folder / row["file"], payload / "aotc.json")
    digests = {
        path.relative_to(payload).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in payload.rglob("*")
        if path.is_file()
    }
    (tmp_path / "a.aotc" / "attestations").mkdir()
    (tmp_path / "a.aotc" / "attestations" / "oms.sigstore.json").write_bytes(
        oms.sign(digests, signer)
    )
    report = verify(tmp_path / "a.aotc", trust=Trust.of([signer.trusted()]))
    refused = {refusal.code for refusal in report.refusals if refusal.code.startswith("AOTC-G")}
    if folder == "valid":
        assert report.authentic
        assert refused == set()
        assert [finding.code for finding in report.findings] == ([row["code"]] * bool(row["code"]))
    else:
        assert not report.authentic
        assert refused == {row["code"]}


def generate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "ci/make_vectors.py", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_files_are_what_the_generator_makes() -> None:
    result = generate()
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_the_generator_sees_a_byte_and_a_file_too_many(tmp_path: Path) -> None:
    copy = tmp_path / "vectors"
    shutil.copytree(VECTORS, copy)
    (copy / "valid" / "oms.sigstore.json").write_bytes(b"{}")
    (copy / "invalid" / "more.json").write_bytes(b"{}")
    result = generate("--folder", str(copy))
    assert result.returncode == 1
    assert {Path(line).name for line in result.stdout.splitlines()} == {
        "oms.sigstore.json",
        "more.json",
    }
    assert generate("--folder", str(copy), "--write").returncode == 0
    assert generate("--folder", str(copy)).returncode == 0
