"""Those who type: a contributor in a clone, and two who are new to the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from repository import ROOT
from typist import DIGITS, Typist

LONG = re.compile(r"[0-9a-f]{32}|/")


@pytest.fixture
def typist(tmp_path: Path) -> Typist:
    found = Typist(tmp_path, columns=80)
    shutil.copy(DIGITS / "digits.onnx", found.here)
    return found


def test_a_contributor_finds_the_way_and_adds_a_pass(tmp_path: Path) -> None:
    done = subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False)
    if shutil.which("make") is None or done.returncode:
        pytest.skip("nothing can be contributed: there is no make, or this is no clone")
    typist = Typist(tmp_path)
    clone = typist.here / "clone"
    # What is worked on here, also before it is a commit.
    typist.types(f"git clone -q {ROOT} clone")
    typist.toolchain = str(clone / "toolchain")
    targets = typist.types("make -C clone help")
    said = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", said)) - {"help"}:
        assert re.search(rf"^  {target} ", targets, re.MULTILINE), target
    place = "toolchain/aotc/graph/passes/drop_unused_domains.py"
    typist.types(f"cd clone && cp examples/extending/drop_unused_domains.py {place}")
    typist.types(f"cd clone && ruff check {place} && ruff format --check {place}")
    typist.types("cd clone && lint-imports")
    typist.types("cd clone && python -m pytest -q tests/architecture/test_cycles.py")
    typist.types("cd clone && git add -A && git status --short | grep drop_unused_domains")


def test_one_who_mistypes_is_led_to_the_right_word(typist: Typist) -> None:
    assert "build" in typist.types("aotc --help")
    assert re.fullmatch(r"aotc \S+\n", typist.types("aotc --version"))
    assert "'build'" in typist.types("aotc biuld digits.onnx", status=2)
    assert "--profile" in typist.types("aotc build digits.onnx --profle edge", status=2)
    assert "--version" in typist.types("aotc --verison", status=2)
    assert "--dim" in typist.types("aotc build digits.onnx --input-shape batch:1", status=2)
    assert "edge" in typist.types("aotc build digits.onnx --profile egde", status=3)
    assert "no-such.onnx" in typist.types("aotc build no-such.onnx", status=3)
    typist.types("aotc build digits.onnx")
    # A path that is not there, and a model where an artifact belongs.
    assert "digit.aotc" in typist.types("aotc verify digit.aotc", status=3)
    assert "aotc build" in typist.types("aotc verify digits.onnx", status=1)
    both = typist.types("aotc explain G005 AOTC-N001")
    assert "AOTC-G005" in both
    assert "AOTC-N001" in both
    typist.types("aotc explain AOTC-X999", status=2)


def test_one_at_a_narrow_terminal_reads_whole_words(typist: Typist) -> None:
    for line in (
        "aotc --help",
        "aotc build digits.onnx",
        "aotc verify digits.aotc",
        "aotc inspect digits.aotc",
        "aotc run digits.aotc",
        "aotc explain AOTC-G005",
        "aotc doctor",
    ):
        for shown in typist.types(line).splitlines():
            assert len(shown) <= 80 or LONG.search(shown), f"{line}: {shown}"


def test_one_who_writes_scripts_gets_what_pipes_can_use(typist: Typist) -> None:
    said = typist.types("aotc build digits.onnx -q 2>/dev/null")
    assert re.fullmatch(r"[0-9a-f]{64}\n", said)
    typist.types("aotc inspect digits.aotc | grep -q $(aotc build digits.onnx -q -o again.aotc)")
    document = json.loads(typist.types("aotc verify digits.aotc --json 2>/dev/null"))
    assert document["schema"].startswith("aotc.verify/")
    typist.types("aotc inspect digits.aotc | head -1")
    # An existing artifact is replaced on demand, and packed in one line.
    typist.types("aotc build digits.onnx --force -q")
    typist.types("aotc build digits.onnx -o out.zip -q")
    assert (typist.here / "out.zip").is_file()
    typist.types("aotc verify out.zip")
