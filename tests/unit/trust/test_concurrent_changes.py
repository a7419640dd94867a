"""Several processes change one file at once: no change is lost without an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lock_holding import held_by_another
from repository import ROOT

from aotc.base.errors import AotcError
from aotc.base.files import locks
from aotc.base.files.folders import ATTESTATIONS
from aotc.cli.main import main
from aotc.runtime import recorder as recorder_module
from aotc.runtime.recorder import ShapeRecorder
from aotc.trust.key_files import generate
from aotc.trust.policy import authoring
from aotc.trust.policy.authoring import Change, change_policy
from aotc.trust.policy.document import read_policy

_TOOLCHAIN = ROOT / "toolchain"
_MANY = 6
# Everything is imported before a job starts, so that the jobs run at the same time.
_COMMAND = """
import sys
from aotc.cli.main import main
from aotc.cli.commands import trust
from aotc.trust.policy import authoring
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
"""
_LIBRARY = """
import sys
from pathlib import Path
from aotc.host.plugin_libraries import libraries_digest
print("ready", flush=True)
sys.stdin.readline()
print(libraries_digest([Path(sys.argv[1])]))
"""


def at_once(code: str, commands: list[list[str]], cwd: Path) -> list[tuple[int, str]]:
    """Exit status and output of processes that start at the same time."""
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code, *command],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(_TOOLCHAIN)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("\n")
        job.stdin.flush()
    return [(job.wait(), output) for job in jobs for output in [job.communicate()[0]]]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    generate(tmp_path / "release.pem")
    path = tmp_path / "trust.yaml"
    signer = f"release={tmp_path / 'release.pub'}"
    assert main(["trust", "init", "-o", str(path), "--name", "plant", "--signer", signer]) == 0
    return path


def test_no_change_of_a_policy_is_lost(policy: Path) -> None:
    ids = [f"{number:x}" * 64 for number in range(_MANY)]
    commands = [
        ["trust", "add", policy.name, "--revoke-artifact", artifact_id] for artifact_id in ids
    ]
    ended = at_once(_COMMAND, commands, policy.parent)
    assert [status for status, _ in ended] == [0] * _MANY, ended
    found = read_policy(policy).policy
    assert sorted(found.revoked.artifacts) == ids
    assert found.sequence == 1 + _MANY
    assert not [path.name for path in policy.parent.iterdir() if path.name.startswith(".")]


def test_only_one_of_many_processes_begins_a_policy(policy: Path) -> None:
    policy.unlink()
    commands = [
        ["trust", "init", "--name", f"plant-{number}", "--signer", "release=release.pub"]
        for number in range(_MANY)
    ]
    ended = at_once(_COMMAND, commands, policy.parent)
    assert sorted(status for status, _ in ended) == [0, *[3] * (_MANY - 1)]
    assert all("AOTC-I017" in output for status, output in ended if status)
    winner = next(number for number, (status, _) in enumerate(ended) if status == 0)
    assert read_policy(policy).policy.name == f"plant-{winner}"


def test_a_wait_that_ends_names_the_other_process(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.05)
    lock = policy.with_name(f".{policy.name}.lock")
    lock.touch(0o600)
    before = policy.read_bytes()
    capsys.readouterr()
    with held_by_another(lock) as process:
        assert main(["trust", "add", str(policy), "--expires", "2099-01-01", "--json"]) == 3
    (refused,) = json.loads(capsys.readouterr().out)["errors"]
    assert refused["code"] == "AOTC-G041"
    assert f"process {process.pid} " in refused["found"]
    assert policy.read_bytes() == before


def test_an_edit_made_meanwhile_is_not_overwritten(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = authoring.apply_change

    def while_edited(*given: object) -> object:
        policy.write_bytes(policy.read_bytes() + b"# by hand\n")
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(authoring, "apply_change", while_edited)
    with pytest.raises(AotcError, match="AOTC-G041 another program has changed the policy"):
        change_policy(policy, Change(expires="2099-01-01T00:00:00Z"))
    assert policy.read_bytes().endswith(b"# by hand\n")


def test_every_process_keeps_the_library_digest_that_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    libraries = [tmp_path / f"lib{number}.so" for number in range(_MANY)]
    for library in libraries:
        library.write_bytes(library.name.encode() * 100_000)
    ended = at_once(_LIBRARY, [[str(library)] for library in libraries], tmp_path)
    assert [status for status, _ in ended] == [0] * _MANY, ended
    known = json.loads((tmp_path / "cache" / "aotc" / "library-digests.json").read_bytes())
    assert sorted(known) == sorted(map(str, libraries))


def test_shapes_are_recorded_in_the_file_that_another_process_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened before the other process replaced it."""
    path = tmp_path / "shapes.jsonl"
    path.write_text('{"ids":[1,1]}\n')
    recorder = ShapeRecorder(path)
    recorder.record({"ids": _Shaped((1, 2))})  # type: ignore[dict-item]
    plain = recorder_module.wait_for_lock

    def replaced_meanwhile(descriptor: int, **given: float) -> bool:
        if path.read_text().count("\n") == 1 and not (tmp_path / "old").exists():
            path.rename(tmp_path / "old")
            path.write_text('{"ids":[1,9]}\n')
        return plain(descriptor, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(recorder_module, "wait_for_lock", replaced_meanwhile)
    recorder.close()
    assert path.read_text() == '{"ids":[1,9]}\n{"ids":[1,2]}\n'
    assert recorder.lost == 0


def test_no_request_waits_for_a_record_that_another_process_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "_LOCK_SECONDS", 0.05)
    path = tmp_path / "shapes.jsonl"
    path.touch()
    recorder = ShapeRecorder(path)
    recorder.record({"ids": _Shaped((1, 2))})  # type: ignore[dict-item]
    with held_by_another(path):
        recorder.close()
    assert (recorder.lost, path.read_text()) == (1, "")


def test_attesting_does_not_wait_for_a_reader_of_the_artifact(tmp_path: Path) -> None:
    artifact = tmp_path / "a.aotc"
    (artifact / ATTESTATIONS).mkdir(parents=True)
    adds = (
        "import sys; from pathlib import Path; from aotc.trust import sealing\n"
        "sealing.add_attestation(Path(sys.argv[1]), 'approval', b'{}', force=False)"
    )
    with held_by_another(artifact / ATTESTATIONS), held_by_another(artifact):
        subprocess.run(
            [sys.executable, "-c", adds, str(artifact)],
            env={**os.environ, "PYTHONPATH": str(_TOOLCHAIN)},
            timeout=60,
            check=True,
        )
    assert [path.name for path in (artifact / ATTESTATIONS).iterdir()] == ["approval.sigstore.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.aotc"]


class _Shaped:
    """What the recorder reads of an array."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
