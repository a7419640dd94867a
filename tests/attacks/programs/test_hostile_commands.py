"""Hostile exported programs given to commands: refused by their codes, and nothing of them runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_programs import ATTACKS
from refusals import refusal

import aotc
from aotc.cli.main import main

# One of each code.
TRIED = (
    *("comment_with_another_archive", "opaque_object", "two_versions_in_one_file", "newer_schema"),
    *("lists_without_an_end", "code_for_a_size", "operator_that_writes_a_file"),
    *("weight_of_a_tebibyte", "pickle_with_the_suffix"),
)
KINDS = {kind.name: kind for kind in ATTACKS}


@pytest.mark.parametrize("name", TRIED)
def test_commands_refuse_it(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind = KINDS[name]
    path, ran = kind.write(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for command in (["build", "-o", "made.aotc"], ["inspect"], ["init"]):
        before = set(tmp_path.iterdir())
        assert main([*command, path.name]) == 3, command
        assert f"error: {kind.code} " in capsys.readouterr().err
        assert not ran.exists()
        assert set(tmp_path.iterdir()) - before <= {tmp_path / "home"}


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "pytorch_model.bin", "model.onnx"])
def test_pickles_of_torch_are_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    _, ran = KINDS["weights_of_torch_save"].write(tmp_path)
    path = tmp_path / name
    (tmp_path / "program.pt2").rename(path)
    error = refusal(aotc.inspect, path)
    assert (error.code, ran.exists()) == ("AOTC-I002", False)
    assert "a PyTorch file (.pt), a pickle of weights or modules" in error.what
    assert "torch.export.save(torch.export.export(" in error.fix
