"""An artifact of an earlier release, loaded, with a store and a temporary folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from user_calls import ARTIFACT, KEY, UserCalls

import aotc


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserCalls]:
    """With everything imported that the calls import."""
    root = tmp_path_factory.mktemp("host")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTC_STORE", str(root / "store"))
        (root / "temporary").mkdir()
        patch.setattr(tempfile, "tempdir", str(root / "temporary"))
        with aotc.load(ARTIFACT, key=KEY) as model:
            inputs = {
                value.name: np.zeros([d if isinstance(d, int) else 1 for d in value.shape or ()])
                .astype(value.dtype)
                for value in model.inputs
            }  # fmt: skip
            found = UserCalls(root, model, inputs)
            found.verify()
            found.install()
            yield found
