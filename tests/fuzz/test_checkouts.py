"""Whole checkouts: some by chance, and that the judge sees what must not happen."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import checkout_run
import checkouts
import pytest

pytestmark = pytest.mark.skipif(
    not checkouts.can_watch(), reason="this system does not tell who reads a file (inotify)"
)


@pytest.mark.parametrize(
    ("commands", "tries"),
    [
        (("inspect", "verify"), 120),
        (("check-models",), 4),
        pytest.param(checkout_run.WEIGHED, 2000, marks=pytest.mark.slow),
    ],
)
def test_checkouts_by_chance(commands: tuple[str, ...], tries: int) -> None:
    found = checkout_run.run(commands, tries, 600, seed=20261126)
    assert found.tries == tries
    assert not found.broken, found.broken[0]
    assert found.accepted or "inspect" not in commands


@pytest.mark.parametrize("tries", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_builds_in_checkouts_by_chance(tries: int) -> None:
    found = checkout_run.run(("build",), tries, 1800, seed=20261126)
    assert found.tries == tries
    assert not found.broken, found.broken[0]
    assert found.accepted


@pytest.fixture
def ground(tmp_path: Path) -> checkouts.Ground:
    made = checkouts.Ground(tmp_path)
    assert made.lay(checkouts.made(random.Random(1), ("inspect",))) is not None
    made.forget()
    return made


def _map(path: Path) -> None:
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        pass


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda g: (g.kept / "key.pem").read_bytes(), "key.pem: opened"),
        (lambda g: _map(g.kept / "weights.bin"), "weights.bin: opened"),
        (lambda g: list((g.kept / "data").iterdir()), "data: opened"),
        (lambda g: (g.kept / "new").touch(), "new: made"),
        (lambda g: (g.kept / "settings.json").chmod(0o600), "in its attributes"),
        (lambda g: (g.kept / "data").rename(g.kept / "other"), "moved away"),
        (lambda g: (g.lent / "model.onnx").write_bytes(b""), "model.onnx: written"),
        (lambda g: (g.place / "elsewhere").touch(), "new things lie outside"),
        (lambda g: (g.here / "m.onnx").write_bytes(b""), "have changed: ['m.onnx']"),
        (lambda g: (g.here / "notes.json").unlink(), "have changed: ['notes.json']"),
        # By whichever process.
        (lambda g: subprocess.run(["cat", g.kept / "key.pem"], check=True), "key.pem: opened"),
    ],
)
def test_the_judge_sees(
    act: Callable[[checkouts.Ground], object], says: str, ground: checkouts.Ground
) -> None:
    act(ground)
    with pytest.raises(checkouts.Broken) as caught:
        ground.judge(["inspect"], 0, "")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("status", "said", "says"),
    [
        (70, "AOTC-R999", "exit status 70"),
        (3, "no code", "without a code"),
        (1, "AOTC-R999", "an internal error"),
        (-9, "", "exit status -9"),
    ],
)
def test_the_judge_reads(status: int, said: str, says: str, ground: checkouts.Ground) -> None:
    with pytest.raises(checkouts.Broken) as caught:
        ground.judge(["inspect"], status, said)
    assert says in str(caught.value)


def test_what_is_allowed_is_no_fault(ground: checkouts.Ground) -> None:
    (ground.lent / "model.onnx").read_bytes()
    (ground.kept / "model.onnx").stat()
    (ground.here / "mine.md").write_text("a report")
    ground.judge(["inspect"], 1, "AOTC-G001")


def test_a_hang_is_told_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of four never ends, and the third ends its process."""
    child = tmp_path / "child.py"
    child.write_text(
        "import json, sys, time\n"
        "for number in range(int(sys.argv[2]), int(sys.argv[3])):\n"
        "    print(json.dumps({'number': number}), flush=True)\n"
        "    if number == 1: time.sleep(600)\n"
        "    if number == 2: sys.exit(9)\n"
        "    print(json.dumps({'number': number, 'status': 'no'}), flush=True)\n"
    )
    monkeypatch.setattr(checkout_run, "CHILD", child)
    monkeypatch.setattr(checkout_run, "SECONDS", 5.0)
    found = checkout_run.run(("inspect",), 4, 300, seed=3, keep=tmp_path / "kept")
    assert found.tries == 2
    assert found.broken == [(1, "it hangs"), (2, "the process ended: 9")]
    names = ["checkout-3-1.json", "checkout-3-2.json"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == names


def test_a_kept_case_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(checkout_run.case(1, 2, ("inspect", "verify"))))
    done = subprocess.run(
        [sys.executable, Path(checkouts.__file__).parent, "--replay", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) in ((0, "yes\n"), (0, "no\n")), done.stderr
