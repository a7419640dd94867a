"""External data of a model that a configuration names which nobody named: behind no link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from made_models import save_external
from refusals import refusal

from aotc.base.files import confined
from aotc.graph.external_data import external_files
from aotc.graph.model import read_model, tensors


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A snapshot of a hub as the working directory."""
    (tmp_path / "blobs").mkdir()
    folder = tmp_path / "snapshots" / "r1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    yield folder
    confined.release()


@pytest.mark.parametrize("target", ["../../blobs/d0", "held.bin"])
def test_links_are_followed_unless_the_model_is_confined(checkout: Path, target: str) -> None:
    model, content = save_external(checkout)
    (checkout / target).write_bytes(content)
    (checkout / "weights.bin").symlink_to(target)
    held = tuple(tensors(read_model(model)))
    (found,) = external_files(held, model)
    assert found.size == len(content)
    confined.confine(model.name)
    assert refusal(external_files, held, model).code == "AOTC-I006"


def test_plain_data_of_a_confined_model_is_read(checkout: Path) -> None:
    model, content = save_external(checkout)
    (checkout / "weights.bin").write_bytes(content)
    confined.confine(model.name)
    held = tuple(tensors(read_model(model)))
    assert external_files(held, model)[0].size == len(content)
