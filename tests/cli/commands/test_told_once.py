"""The remark on a development key: told once for a key, and each time where nobody remembers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save

REMARK = "\nfindings\n  AOTC-G016  the only trusted signature is by a development key\n"


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    command = Command(tmp_path)
    save(linear(), command.folder / "model.onnx")
    assert command.plain("build", "model.onnx", "-q").status == 0
    return command


def test_it_is_told_once(aotc: Command) -> None:
    first = aotc.plain("verify", "model.aotc").stdout
    assert first.endswith(REMARK)
    for words in (("verify", "model.aotc"), ("run", "model.aotc")):
        assert "AOTC-G016" not in aotc.plain(*words).stdout
    # The key is named each time, and data has all of it.
    assert "(this user's development key)" in aotc.plain("verify", "model.aotc").stdout
    codes = [each["code"] for each in aotc("verify", "model.aotc").document["findings"]]
    assert codes == ["AOTC-G016"]
    assert aotc.plain("verify", "model.aotc", "--report", "r.md").status == 0
    assert "AOTC-G016" in (aotc.folder / "r.md").read_text()


def test_a_document_is_no_telling(aotc: Command) -> None:
    assert aotc("verify", "model.aotc").status == 0
    assert aotc.plain("verify", "model.aotc", "-q").stdout == "optimal\n"
    assert aotc.plain("verify", "model.aotc").stdout.endswith(REMARK)


def test_another_key_is_told_of(aotc: Command) -> None:
    assert aotc.plain("verify", "model.aotc").stdout.endswith(REMARK)
    (key,) = (aotc.folder / "home").rglob("*.pem")
    shutil.rmtree(key.parent)
    assert aotc.plain("build", "model.onnx", "--force", "-q").status == 0
    assert aotc.plain("verify", "model.aotc").stdout.endswith(REMARK)
    assert "AOTC-G016" not in aotc.plain("verify", "model.aotc").stdout


@pytest.mark.parametrize("change", [{"CI": "true"}, {"XDG_STATE_HOME": "/proc/none"}])
def test_where_nothing_is_remembered(aotc: Command, change: dict[str, str]) -> None:
    there = Command(aotc.folder, change)
    for _ in range(2):
        assert there.plain("verify", "model.aotc").stdout.endswith(REMARK)
