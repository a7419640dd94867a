"""A signing key for each module whose tests ask for one."""

from __future__ import annotations

import pytest

from aotc.spec.trust_anchors import TrustedKey
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> PrivateKey:
    """A new key, which signs what the module's tests build."""
    return load_private(generate(tmp_path_factory.mktemp("keys") / "a.pem")[0])


@pytest.fixture(scope="module")
def trust(key: PrivateKey) -> tuple[TrustedKey, ...]:
    """The keys that are trusted: that one."""
    return (key.trusted(),)
