"""Architectures that people build, with no flags and at five sizes that they have.

It takes half an hour: `make test-zoo`.  What is built is in `zoo_models.py`, how in `zoo_runs.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-sources")
pytest.importorskip("transformers", reason="transformers is not installed: make test-sources")
pytest.importorskip("diffusers", reason="diffusers is not installed: make test-sources")

from zoo_models import ENTRIES, Entry
from zoo_runs import outcome_of

# Architectures that are not built as they are, and what the message must name: code and line.
REFUSED = {
    "gru": ("AOTC-I121", "sources/zoo_modules.py:"),
    "longformer": ("AOTC-I121", "longformer/modeling_longformer.py:"),
}
# Those that lose a dim, which the finding must name with the line.
LOSES = {
    "mamba": "mamba/modeling_mamba.py:",
    "swin": "windows are padded and shifted by the image's sides",
}


def test_the_zoo_is_as_large_as_it_claims() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) >= 30
    assert len(ENTRIES) - len(REFUSED) - len(LOSES) >= 25
    assert all(len(entry.sizes) == 5 for entry in ENTRIES if entry.name not in REFUSED)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_architecture_is_built_and_right(entry: Entry, tmp_path: Path) -> None:
    found = outcome_of(entry, tmp_path)
    if entry.name in REFUSED:
        code, place = REFUSED[entry.name]
        assert found.code == code
        assert place in found.message
        return
    assert found.passed, found
    if entry.name in LOSES:
        assert any(LOSES[entry.name] in finding for finding in found.findings), found.findings
    else:
        assert not [each for each in found.findings if each.startswith("AOTC-I124")]
