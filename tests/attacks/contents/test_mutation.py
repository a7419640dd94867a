"""Every byte of every file of a small artifact, changed one at a time: it is refused.

What is accepted, such as a line break after a bundle, changes nothing of what is trusted: the
report is the same, the files are the signed ones, and no such change lies in the payload.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from attacked_artifact import Attacked, forbid_sessions
from onnx import TensorProto, helper, numpy_helper
from shared_workers import build
from signed_payload import verify_payload

from aotc.base.errors import AotcError
from aotc.spec.reports import VerifyReport
from aotc.trust import statements
from aotc.trust.container import FolderContainer
from aotc.trust.gate import authenticate, verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

PROFILE = """\
schema: aotc.profile/1
name: tiny
variants: [{name: portable}]
fixtures: {max_count: 1, max_bytes: 4096}
"""
# The quick test flips only every n-th byte of a file for the complete gate.
STEP = 7
# Only every n-th change is also checked as a load does.
SAMPLE = 97
# Codes of a signature, or of a file that should be one.
SIGNATURE = {"AOTC-G001", "AOTC-G002", "AOTC-G003", "AOTC-G004"}
CHANGED = "AOTC-G005"
Change = Callable[[bytes, int], bytes]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A model of one node, as it is really built and signed: files of every kind, all small."""
    folder = tmp_path_factory.mktemp("tiny")
    # A smaller one would stay in the model.
    weight = numpy_helper.from_array(np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = helper.make_graph([node], "tiny", values[:1], values[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, folder / "tiny.onnx")
    (folder / "tiny.yaml").write_text(PROFILE)
    private, public = generate(folder / "release.pem")
    path = Path(
        build(
            folder / "tiny.onnx",
            profile=folder / "tiny.yaml",
            output=folder / "tiny.aotc",
            key=private,
        ).artifact
    )
    return Attacked(path, load_private(private), public, path)


class Mutations:
    """Verifies an artifact after each change of one of its files, and undoes the change."""

    def __init__(self, artifact: Attacked) -> None:
        self.artifact = artifact
        self.files = sorted(path for path in artifact.path.rglob("*") if path.is_file())
        self.good = self.report()
        assert self.good.authentic
        assert self.good.signers == (artifact.key.key_id,)
        self.trust = (artifact.key.trusted(),)
        self.signed = dict(verify_payload(artifact.bundle.read_bytes(), self.trust).digests)
        self.count = 0
        self.accepted: list[tuple[str, int]] = []
        self.codes: Counter[str] = Counter()

    def report(self) -> VerifyReport:
        report = verify(self.artifact.path, key=self.artifact.public)
        return dataclasses.replace(report, seconds=0.0)

    def name(self, path: Path) -> str:
        return path.relative_to(self.artifact.path).as_posix()

    def judge(self, path: Path, good: bytes, bad: bytes, place: int) -> None:
        """Write the changed file, and compare what verify and the first part of load report."""
        name = self.name(path)
        _rewrite(path, bad)
        try:
            report = self.report()
            self.count += 1
            if self.count % SAMPLE == 0 or report.authentic:
                self._judge_as_load_does(report)
        finally:
            _rewrite(path, good)
        if report.authentic:
            # Everything is the same: identity, signers, bytes that were hashed, variants, findings.
            assert report == self.good, (name, place)
            self.accepted.append((name, place))
            return
        assert report.verdict == "unverified"
        here = {refusal.code for refusal in report.refusals if refusal.where.startswith(name)}
        self.codes.update(here)
        if name.startswith("payload/"):
            assert CHANGED in here, (name, place, report.refusals)
        else:
            assert here, (name, place, report.refusals)
            assert here <= SIGNATURE, (name, place, here)

    def _judge_as_load_does(self, report: VerifyReport) -> None:
        with FolderContainer(self.artifact.path) as container:
            try:
                found = authenticate(container, self.trust)
            except AotcError as error:
                assert error.code in {refusal.code for refusal in report.refusals}
                return
        assert report.authentic
        assert found.id == self.good.artifact_id
        assert found.digests == self.signed
        assert found.keys == self.trust


def _rewrite(path: Path, data: bytes) -> None:
    """Change the file in place, as an editor of bytes does."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def _each(mutations: Mutations, change: Change, step_of: Callable[[str], int]) -> None:
    for path in mutations.files:
        good = path.read_bytes()
        assert good, "no file of the artifact is empty"
        for place in range(0, len(good), step_of(mutations.name(path))):
            mutations.judge(path, good, change(good, place), place)


def _all_bits(good: bytes, place: int) -> bytes:
    return good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :]


def _one_bit(random_bits: Iterator[int]) -> Change:
    def change(good: bytes, place: int) -> bytes:
        return good[:place] + bytes([good[place] ^ 1 << next(random_bits)]) + good[place + 1 :]

    return change


def _bits() -> Iterator[int]:
    drawn = random.Random(20261121)
    while True:
        yield drawn.randrange(8)


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_sessions(monkeypatch)


@pytest.fixture
def mutations(tiny: Attacked) -> Mutations:
    return Mutations(tiny)


@pytest.fixture
def few_bundles(tiny: Attacked, tmp_path: Path) -> Mutations:
    """The artifact without its two largest attestations, which take most of the gate's time."""
    path = tmp_path / "tiny.aotc"
    shutil.copytree(tiny.path, path)
    for name in ("provenance", "sbom"):
        (path / "attestations" / f"{name}.sigstore.json").unlink()
    return Mutations(dataclasses.replace(tiny, path=path))


def test_the_artifact_has_files_of_every_kind(mutations: Mutations) -> None:
    roles = {file["role"] for file in mutations.artifact.manifest["files"]}
    assert roles == {"model", "weights", "package", "fixture"}
    bundles = [path.name for path in mutations.files if path.parent.name == "attestations"]
    assert len(bundles) == 4


def test_a_bit_of_every_byte_of_bundles_is_refused_before_parsing(mutations: Mutations) -> None:
    bits = _bits()
    for path in sorted((mutations.artifact.path / "attestations").iterdir()):
        good = path.read_bytes()
        read = verify_payload if path == mutations.artifact.bundle else statements.verify
        read(good, mutations.trust)
        for place in range(len(good)):
            try:
                read(_one_bit(bits)(good, place), mutations.trust)
                pytest.fail(f"byte {place} of {path.name} is looked at by nobody")
            except AotcError as error:
                assert error.code in SIGNATURE


def test_a_bit_of_every_byte_of_documents(few_bundles: Mutations) -> None:
    """As a load verifies it, which stops at the first step that fails."""
    bits = _bits()
    for name in ("aotc.json", "manifest.json"):
        path = few_bundles.artifact.payload / name
        good = path.read_bytes()
        for place in range(len(good)):
            _rewrite(path, _one_bit(bits)(good, place))
            with FolderContainer(few_bundles.artifact.path) as container:
                try:
                    authenticate(container, few_bundles.trust)
                    pytest.fail(f"byte {place} of {name} is looked at by nobody")
                except AotcError as error:
                    assert error.code in (CHANGED, "AOTC-G009")
        _rewrite(path, good)


def test_a_bit_of_each_few_bytes_of_every_file(few_bundles: Mutations) -> None:
    _each(few_bundles, _one_bit(_bits()), lambda name: STEP)
    assert few_bundles.accepted == []


@pytest.mark.slow
@pytest.mark.parametrize("change", [_all_bits, _one_bit(_bits())], ids=["all bits", "one bit"])
def test_every_byte_of_every_file(mutations: Mutations, change: Change) -> None:
    _each(mutations, change, lambda name: 1)
    assert mutations.accepted == []
    assert mutations.count == sum(path.stat().st_size for path in mutations.files)


def test_every_file_cut_emptied_or_longer(mutations: Mutations) -> None:
    for path in mutations.files:
        good = path.read_bytes()
        for bad in (good[:-1], good[1:], b"", good + b"\0", good + b"\n", b"\n" + good):
            mutations.judge(path, good, bad, len(bad) - len(good))
    # White space around a bundle is neither signed nor part of a payload file.
    bundles = [name for path in mutations.files if (name := mutations.name(path)).startswith("att")]
    assert mutations.accepted == [(name, 1) for name in bundles for _ in range(2)]


def test_loading_refuses_as_well(mutations: Mutations) -> None:
    """A change in the middle of each file: nothing is stored, and no session is created."""
    for path in mutations.files:
        good = path.read_bytes()
        if mutations.name(path).startswith("payload/fixtures/"):
            continue
        _rewrite(path, _all_bits(good, len(good) // 2))
        try:
            code = mutations.artifact.loaded()
        finally:
            _rewrite(path, good)
        if not path.is_relative_to(mutations.artifact.payload):
            assert code in SIGNATURE
        else:
            # Nothing is parsed that was not signed.
            assert code == CHANGED
