"""A host with a policy for one attack: its state, store and artifact are in one folder."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from policy_setting import Setting, make_keys

from aotc import load
from aotc.base.errors import AotcError
from aotc.trust import oms
from aotc.trust.key_loading import PrivateKey
from aotc.trust.policy import roots
from aotc.trust.policy.host_trust import Trust

SIGNATURE = "oms.sigstore.json"


@contextmanager
def policy_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """A host without any record yet, with a copy of an artifact to attack."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("AOTC_STORE", str(folder / "store"))
    monkeypatch.delenv("AOTC_TRUST_ROOT", raising=False)
    monkeypatch.setattr(roots, "SYSTEM_ROOT", folder / "etc" / "root.yaml")
    template = _template()
    shutil.copytree(template.artifact, folder / "linear.aotc")
    yield Setting(folder, template.keys)
    for place in (folder / "store").rglob("*"):
        if place.is_dir():
            place.chmod(0o700)


def loaded(host: Setting, trust: Trust | None = None, **options: Any) -> str:
    """The variant that was loaded, or the code with which load refuses."""
    try:
        with load(host.artifact, trust=trust or host.path, warm_up=False, **options) as model:
            return model.report.variant
    except AotcError as error:
        if error.code.startswith("AOTC-G"):
            kept = list((host.folder / "store").glob("sha256-*"))
            assert not kept, "what was refused is in the store"
        return error.code


def resign(host: Setting, signer: PrivateKey) -> None:
    """Leave only this signer's signature on the payload."""
    folder = host.artifact / "attestations"
    digests = oms.read_digests(_payload(folder / SIGNATURE))
    for path in folder.iterdir():
        path.unlink()
    (folder / SIGNATURE).write_bytes(oms.sign(digests, signer))


def _payload(bundle: Path) -> bytes:
    from aotc.trust import dsse

    return dsse.parse(bundle.read_bytes()).payload


@functools.cache
def _template() -> Setting:
    place = tempfile.TemporaryDirectory(prefix="aotc-policy-")
    atexit.register(place.cleanup)
    folder = Path(place.name)
    return Setting(folder, make_keys(folder))
