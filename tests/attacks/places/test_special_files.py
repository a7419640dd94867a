"""Pipes, devices, folders and links to nothing where a file is expected: each is told at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_models import save_external
from refusals import refusal

from aotc.pipeline.build import build
from aotc.pipeline.tune import read_tuning
from aotc.report.html.artifact_contents import read_node_times
from aotc.runtime.value_files import read_inputs
from aotc.session.node_times import read_events
from aotc.sizes.inputs.fixtures import read_fixtures, read_test_data
from aotc.sizes.inputs.samples import read_samples
from aotc.spec.payload import Value
from aotc.spec.profile_files import load_profile, load_target
from aotc.spec.traffic import read_traffic
from aotc.tools.bench_comparison import read_history
from aotc.tools.bench_sides import require_openable
from aotc.tools.check_outcomes import read_report
from aotc.tools.inspect import inspect
from aotc.trust.key_loading import from_file, load_private, load_public
from aotc.trust.keyless_signing import read_config, read_token
from aotc.trust.policy.document import read_policy, read_roots
from aotc.trust.signers import load_command

INPUTS = [Value(name="x", dtype="float32", shape=("n", 4))]


def folder_of(path: Path) -> Path:
    """A folder of test data, whose only input is `path`."""
    folder = path.parent / "set"
    folder.mkdir()
    (folder / "input_0.pb").symlink_to(path)
    return folder


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "profile": ("p.yaml", load_profile),
    "target": ("t.yaml", load_target),
    "policy": ("trust.yaml", read_policy),
    "roots": ("root.yaml", read_roots),
    "signer": ("signer.yaml", load_command),
    "key": ("k.pem", load_private),
    "public key": ("k.pub", load_public),
    "password": ("password", from_file),
    "token": ("token", read_token),
    "trust config": ("config.json", read_config),
    "report": ("report.json", read_report),
    "traffic": ("t.jsonl", read_traffic),
    "table of traffic": ("t.csv", read_traffic),
    "evidence": ("evidence.json", read_tuning),
    "history": ("history.jsonl", lambda path: list(read_history(path))),
    "trace": ("trace.json", read_events),
    "times of nodes": ("bench.json", lambda path: read_node_times(path, "")),
    "archive of fixtures": ("f.npz", lambda path: read_fixtures(path, INPUTS, path.parent / "f")),
    "fixtures": (
        "x",
        lambda path: read_fixtures(folder_of(path), INPUTS, path.parent / "f"),
    ),
    "test data": ("x", lambda path: read_test_data(folder_of(path), INPUTS)),
    "samples": ("s.npz", lambda path: list(read_samples(path, INPUTS, {}))),
    "input": ("x.npy", lambda path: read_inputs([f"x={path}"], INPUTS)),
    "archive of inputs": ("x.npz", lambda path: read_inputs([str(path)], INPUTS)),
    "model": ("m.onnx", inspect),
    "model to compare with": ("m.onnx", require_openable),
    "model to build": ("m.onnx", lambda path: build(path, output=path.parent / "m.aotc")),
}
SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "folder": Path.mkdir,
    "nothing": lambda path: path.symlink_to("none"),
    "circle": lambda path: path.symlink_to(path),
}


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """End a test that waits for a pipe, or reads without end."""

    def ended(number: int, frame: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("read", READERS)
def test_each_reader(tmp_path: Path, read: str, kind: str) -> None:
    name, reader = READERS[read]
    path = tmp_path / name
    SPECIAL[kind](path)
    if (read, kind) == ("model", "folder"):
        pytest.skip("a folder is an artifact without its files")
    error = refusal(reader, path)
    assert error.exit_status == 3, error
    assert str(path.parent) in error.line()


@pytest.mark.parametrize("kind", ["pipe", "zeros", "folder"])
def test_external_data(tmp_path: Path, kind: str) -> None:
    model, _ = save_external(tmp_path)
    (tmp_path / "weights.bin").unlink(missing_ok=True)
    SPECIAL[kind](tmp_path / "weights.bin")
    for reader in (require_openable, inspect, lambda path: build(path, output=tmp_path / "a.aotc")):
        assert refusal(reader, model).exit_status == 3


def test_costly_models_are_not_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x3a\x80\x89\x7a" + b"\x0a\x00" * 1_000_000)
    assert refusal(require_openable, path).code == "AOTC-I002"
