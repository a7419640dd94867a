"""Ctrl-C, termination and a full disk amid a build: nothing half-written, no orphans."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import Command, Outcome, finish, wait_until
from made_models import endless, linear, save
from process_tree import alive, descendants

# Mounts a file system of $0 bytes at $1, runs the command, and lists in $2 what it left there.
_FULL = """
mount -t tmpfs -o size="$0" tmpfs "$1" || exit 99
mount=$1 listing=$2
shift 2
"$@"
status=$?
find "$mount" -mindepth 1 -printf '%P\\n' > "$listing"
exit $status
"""


@pytest.fixture
def slow(aotc: Command) -> str:
    """A model on which a build is busy until it is ended."""
    save(endless(), aotc.folder / "slow.onnx")
    return "slow.onnx"


def busy_in(
    aotc: Command, process: subprocess.Popen[str], step: str, output: str = "out.aotc"
) -> set[int]:
    """Wait until the build's `step` runs in a worker; the processes below the build."""

    def working() -> set[int]:
        assert process.poll() is None, process.communicate()
        started = any(aotc.folder.glob(f".{output}.*/build/{step}"))
        below = descendants(process.pid)
        # The server of workers, and a worker.
        return below if started and len(below) >= 2 else set()

    below: set[int] = wait_until(working)
    return below


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("json", [True, False])
def test_a_signal_in_a_build(aotc: Command, slow: str, number: signal.Signals, json: bool) -> None:
    process = aotc.start("build", slow, "-o", "out.aotc", *(["--json"] if json else []))
    workers = busy_in(aotc, process, "reference/trying.json")
    # As a terminal does it: to the whole foreground group, of which the workers are no part.
    os.killpg(process.pid, number)
    outcome = finish(process)
    if json:
        outcome.refused("AOTC-I025", 130)
    else:
        assert outcome.status == 130
        assert outcome.stdout == ""
        told, error, _ = outcome.stderr.partition("error: AOTC-I025 interrupted\n")
        assert error, outcome.stderr
        assert told.splitlines()[-1].endswith(" s, not finished")
    assert aotc.leftovers() == []
    assert not (aotc.folder / "out.aotc").exists()
    wait_until(lambda: not alive(workers))


def test_a_signal_at_once(aotc: Command, slow: str) -> None:
    """Before the first stage, too, a signal is no accident."""
    process = aotc.start("build", slow, "-o", "out.aotc", "--json")
    wait_until(lambda: any(aotc.folder.glob(".out.aotc.*")))
    workers = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    finish(process).refused("AOTC-I025", 130)
    assert aotc.leftovers() == []
    wait_until(lambda: not alive(workers))


def test_a_hangup_that_the_caller_has_ignored_ends_nothing(aotc: Command) -> None:
    """As 'nohup' starts a command, whose terminal is closed then."""
    save(linear(), aotc.folder / "linear.onnx")
    deaf = ["sh", "-c", 'trap "" HUP; exec "$0" "$@"']
    process = aotc.start("build", "linear.onnx", "-o", "out.aotc", "--json", prefix=deaf)
    wait_until(lambda: any(aotc.folder.glob(".out.aotc.*")))
    process.send_signal(signal.SIGHUP)
    outcome = finish(process)
    assert outcome.status == 0, outcome
    assert aotc("verify", "out.aotc").status == 0


def test_what_a_killed_build_left_goes_with_the_next(aotc: Command, slow: str) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    process = aotc.start("build", slow, "-o", "out.aotc")
    workers = busy_in(aotc, process, "reference/trying.json")
    process.kill()
    finish(process)
    wait_until(lambda: not alive(workers))
    assert any(aotc.folder.glob(".out.aotc.*"))
    # While another build in that folder goes on.
    going = aotc.start("build", slow, "-o", "other.aotc")
    workers = busy_in(aotc, going, "reference/trying.json", "other.aotc")
    assert aotc("build", "linear.onnx", "-o", "third.aotc").status == 0
    assert [each.name.split(".aotc-")[0] for each in aotc.folder.glob(".*")] == [".other.aotc"]
    going.terminate()
    assert finish(going).status == 130
    assert aotc.leftovers() == []


def test_two_builds_that_replace_the_same(aotc: Command) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "-o", "out.aotc", "--force", "--json")
    for _ in range(2):
        for outcome in [finish(each) for each in [aotc.start(*words) for _ in range(3)]]:
            assert outcome.status == 0, outcome
        assert aotc("verify", "out.aotc").status == 0
        assert aotc.leftovers() == []


def test_ctrl_c_twice(aotc: Command, slow: str) -> None:
    process = aotc.start("build", slow, "-o", "out.aotc", "--json")
    workers = busy_in(aotc, process, "reference/trying.json")
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    finish(process).refused("AOTC-I025", 130)
    assert aotc.leftovers() == []
    wait_until(lambda: not alive(workers))


def test_a_killed_build_leaves_no_orphans(aotc: Command, slow: str) -> None:
    process = aotc.start("build", slow, "-o", "out.aotc")
    workers = busy_in(aotc, process, "reference/trying.json")
    process.kill()
    finish(process)
    wait_until(lambda: not alive(workers))
    assert not (aotc.folder / "out.aotc").exists()


def test_an_interrupted_replacement_keeps_the_artifact(aotc: Command, slow: str) -> None:
    save(linear(), aotc.folder / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", "out.aotc").status == 0
    process = aotc.start("build", slow, "-o", "out.aotc", "--force", "--json")
    busy_in(aotc, process, "reference/trying.json")
    os.killpg(process.pid, signal.SIGINT)
    finish(process).refused("AOTC-I025", 130)
    assert aotc("verify", "out.aotc").status == 0
    assert aotc.leftovers() == []


@pytest.mark.slow
def test_a_signal_at_any_time(aotc: Command) -> None:
    """From the first import to the last clean-up, the output is the old artifact or the new."""
    aotc = replace(aotc, anew=True)
    save(linear(features=128), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "-o", "out.aotc", "--force", "--json")
    started = time.monotonic()
    assert aotc.plain(*words).status == 0
    whole = time.monotonic() - started
    seen = set()
    for step in range(60):
        process = aotc.start(*words)
        time.sleep(whole * step / 50)
        process.send_signal((signal.SIGINT, signal.SIGTERM)[step % 2])
        outcome = finish(process)
        seen.add(outcome.status)
        if outcome.status == 130:
            outcome.refused("AOTC-I025", 130)
        else:
            # It came too early or too late: while the interpreter started, or took itself down.
            assert outcome.status in (0, -signal.SIGINT, -signal.SIGTERM)
            if outcome.status == 0 or outcome.stdout:
                assert outcome.document["schema"] == "aotc.build/1"
        assert aotc.leftovers() == []
        assert aotc("verify", "out.aotc").status == 0
    assert 130 in seen


# -- a full disk
@pytest.fixture(scope="module")
def may_mount(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """How to become one who may mount; skips where that is not permitted."""
    folder = tmp_path_factory.mktemp("mount")
    for unshare in (["unshare", "-m"], ["unshare", "-mr"]):
        if shutil.which("unshare"):
            words = [*unshare, "mount", "-t", "tmpfs", "tmpfs", str(folder)]
            if subprocess.run(words, capture_output=True, check=False).returncode == 0:
                return unshare
    pytest.skip("a file system to fill cannot be mounted here: neither as root nor in a namespace")


def on_full_disk(
    aotc: Command, unshare: list[str], size: str, *words: str | Path
) -> tuple[Outcome, list[str]]:
    """The command with a file system of `size` at `full/`; with what it left there."""
    full, listing = aotc.folder / "full", aotc.folder / "listing"
    full.mkdir(exist_ok=True)
    prefix = [*unshare, "sh", "-c", _FULL, size, str(full), str(listing)]
    outcome = aotc(*words, prefix=prefix)
    assert outcome.status != 99
    return outcome, sorted(listing.read_text().splitlines())


# From no room for the first file to none for the last, in a model of 64 KiB of weights.
@pytest.mark.parametrize("kilobytes", [4, 40, 84, 200])
def test_a_full_disk_ends_a_build(aotc: Command, may_mount: list[str], kilobytes: int) -> None:
    save(linear(features=128), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "-o", Path("full") / "out.aotc", "--profile", "server-cpu")
    outcome, left = on_full_disk(aotc, may_mount, f"{kilobytes}k", *words)
    outcome.refused("AOTC-I018", 3)
    assert left == []
    assert aotc.leftovers() == []


def test_a_disk_with_room_takes_the_build(aotc: Command, may_mount: list[str]) -> None:
    save(linear(features=128), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "-o", Path("full") / "out.aotc")
    outcome, left = on_full_disk(aotc, may_mount, "64m", *words)
    assert outcome.status == 0
    assert {name.partition("/")[0] for name in left} == {"out.aotc"}


@pytest.mark.slow
def test_a_full_disk_at_every_size(aotc: Command, may_mount: list[str]) -> None:
    """Wherever a build runs out of room it says so, and an artifact that is built is whole."""
    save(linear(features=128), aotc.folder / "linear.onnx")
    words = ("build", "linear.onnx", "-o", Path("full") / "out.aotc", "--profile", "server-cpu")
    seen = set()
    for kilobytes in range(4, 16384, 28):
        outcome, left = on_full_disk(aotc, may_mount, f"{kilobytes}k", *words)
        seen.add(outcome.status)
        if outcome.status == 0:
            break
        outcome.refused("AOTC-I018", 3)
        assert left == [], kilobytes
    assert seen == {0, 3}


@pytest.mark.parametrize("kilobytes", [4, 64])
def test_a_full_disk_of_the_store(aotc: Command, may_mount: list[str], kilobytes: int) -> None:
    save(linear(features=128), aotc.folder / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", "out.aotc").status == 0
    stored = Command(aotc.folder, {"AOTC_STORE": str(aotc.folder / "full" / "store")})
    outcome, left = on_full_disk(stored, may_mount, f"{kilobytes}k", "run", "out.aotc")
    found = outcome.refused("AOTC-R007", 3)
    assert found["what"] == "the disk of the store is full"
    assert left in ([], ["store"])
    outcome, left = on_full_disk(stored, may_mount, "64m", "run", "out.aotc")
    assert outcome.status == 0
    assert not [name for name in left if "/.new-" in name]


def test_a_full_disk_of_keys_and_outputs(aotc: Command, may_mount: list[str]) -> None:
    outcome, left = on_full_disk(aotc, may_mount, "4k", "keygen", "-o", Path("full") / "new.pem")
    outcome.refused("AOTC-I018", 3)
    assert left == []
    save(linear(features=128), aotc.folder / "linear.onnx")
    assert aotc("build", "linear.onnx", "-o", "out.aotc").status == 0
    words = ("run", "out.aotc", "--output-dir", Path("full") / "answers")
    outcome, _ = on_full_disk(aotc, may_mount, "4k", *words)
    outcome.refused("AOTC-I018", 3)


def test_an_interrupted_build_has_its_report(aotc: Command, slow: str) -> None:
    process = aotc.start("build", slow, "-o", "out.aotc", "--report", "r.json", "--report", "r.md")
    workers = busy_in(aotc, process, "reference/trying.json")
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process).status == 130
    report = json_of(aotc.folder / "r.json")
    assert (report["outcome"], report["exit_status"]) == ("error", 130)
    assert [breach["code"] for breach in report["refusals"]] == ["AOTC-I025"]
    assert "import" in report["stages"]
    assert (aotc.folder / "r.md").is_file()
    assert aotc.leftovers() == []
    wait_until(lambda: not alive(workers))


def json_of(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document
