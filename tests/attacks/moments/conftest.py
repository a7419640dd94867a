"""An artifact, loaded, with a store and a temporary folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from repository import ROOT
from shared_workers import build
from user_calls import UserCalls

import aotc
from aotc.trust import key_files


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserCalls]:
    """With everything imported that the calls import."""
    root = tmp_path_factory.mktemp("host")
    private, key = key_files.generate(root / "release.pem")
    source = ROOT / "examples" / "digits" / "digits.onnx"
    build(source, profile="edge", output=root / "digits.aotc", key=private)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_STORE", str(root / "store"))
        (root / "temporary").mkdir()
        patch.setattr(tempfile, "tempdir", str(root / "temporary"))
        with aotc.load(root / "digits.aotc", key=key) as model:
            inputs = {
                value.name: np.zeros([d if isinstance(d, int) else 1 for d in value.shape or ()])
                .astype(value.dtype)
                for value in model.inputs
            }  # fmt: skip
            found = UserCalls(root, root / "digits.aotc", key, model, inputs)
            found.verify()
            found.install()
            yield found
