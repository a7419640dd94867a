"""A copy of a real built artifact that a test may change, and how verify and load react.

No session may be created for a refused artifact: here each one fails the test.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT
from shared_workers import build

from aotc import load
from aotc.base.errors import AotcError
from aotc.session import sessions
from aotc.spec.json import canonical_json
from aotc.trust import dsse, oms
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import PrivateKey, load_private

MODEL = ROOT / "examples" / "digits" / "digits.onnx"
BUNDLE = "attestations/oms.sigstore.json"
Json = Any


@dataclass(frozen=True)
class Attacked:
    """A signed artifact, the key that signed it, and another artifact signed by the same key."""

    path: Path
    key: PrivateKey
    public: Path
    other: Path

    def copy(self, folder: Path) -> Attacked:
        """A copy to change, with one of the other artifact."""
        for item, name in ((self.path, "a.aotc"), (self.other, "other.aotc")):
            shutil.copytree(item, folder / name)
        return Attacked(folder / "a.aotc", self.key, self.public, folder / "other.aotc")

    @property
    def payload(self) -> Path:
        return self.path / "payload"

    @property
    def bundle(self) -> Path:
        return self.path / BUNDLE

    @property
    def statement(self) -> Json:
        """The signed statement."""
        return json.loads(base64.b64decode(self.envelope["dsseEnvelope"]["payload"]))

    @property
    def envelope(self) -> Json:
        return json.loads(self.bundle.read_bytes())

    @property
    def manifest(self) -> Json:
        return json.loads((self.payload / "aotc.json").read_bytes())

    @property
    def model(self) -> Path:
        """The model file that a load on this host reads: that of the last variant."""
        return self.payload / self.manifest["variants"][-1]["model"]

    @property
    def unread(self) -> Path:
        """The model file of a variant that a load on this host does not read."""
        return self.payload / self.manifest["variants"][0]["model"]

    def edit(self, change: Callable[[Json], object]) -> None:
        """Change the bundle without signing again."""
        document = self.envelope
        change(document)
        self.bundle.write_text(json.dumps(document))

    def sign_bytes(self, payload: bytes, kind: str = dsse.IN_TOTO) -> None:
        """A bundle with a valid signature over any bytes."""
        document = self.envelope
        envelope = document["dsseEnvelope"]
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["payloadType"] = kind
        signature = self.key.sign(dsse.pae(kind, payload))
        envelope["signatures"] = [{"sig": base64.b64encode(signature).decode()}]
        self.bundle.write_text(json.dumps(document))

    def state(self, change: Callable[[Json], object]) -> None:
        """Change the statement, and sign it again."""
        statement = self.statement
        change(statement)
        self.sign_bytes(json.dumps(statement).encode())

    def sign_manifest(self, text: bytes) -> None:
        """Another aotc.json, with a valid signature over the whole payload."""
        (self.payload / "aotc.json").write_bytes(text)
        for path in (self.path / "attestations").iterdir():
            path.unlink()
        files = [path for path in self.payload.rglob("*") if path.is_file()]
        digests = {path.relative_to(self.payload).as_posix(): _sha256(path) for path in files}
        self.bundle.write_bytes(oms.sign(digests, self.key))

    def sign_files(self) -> None:
        """List and sign the files as they are now: only later rules can refuse them."""
        manifest = self.manifest
        for entry in manifest["files"]:
            path = self.payload / entry["path"]
            entry.update(sha256=_sha256(path), size=path.stat().st_size)
            entry.pop("chunks", None)
        self.sign_manifest(canonical_json(manifest))

    def verified(self) -> list[str]:
        """The distinct codes of verify's refusals."""
        report = verify(self.path, key=self.public)
        assert report.authentic == (not report.refusals)
        return list(dict.fromkeys(refusal.code for refusal in report.refusals))

    def loaded(self, **options: Any) -> str:
        """The code with which load refuses."""
        store = self.path.with_name("store")
        with pytest.raises(AotcError) as caught:
            load(self.path, key=self.public, store=store, warm_up=False, **options).close()
        assert not list(store.glob("sha256-*")), "what was refused is in the store"
        return caught.value.code

    def refused(self, *codes: str) -> None:
        """Verify refuses with exactly these codes; load with the first or one of them."""
        found = self.verified()
        assert sorted(found) == sorted(codes), found
        assert self.loaded() in codes


def forbid_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, creating a session fails the test."""

    def created(*args: object, **options: object) -> None:
        pytest.fail("a session was created of what should have been refused")

    monkeypatch.setattr(sessions, "create_session", created)


@functools.cache
def built_artifact() -> Attacked:
    """The digits example, built and signed; the other one is built with another profile."""
    place = tempfile.TemporaryDirectory(prefix="aotc-attacks-")
    atexit.register(place.cleanup)
    folder = Path(place.name)
    private, public = generate(folder / "release.pem")
    paths = [
        Path(build(MODEL, profile=profile, output=folder / f"{profile}.aotc", key=private).artifact)
        for profile in ("server-cpu", "edge")
    ]
    return Attacked(paths[0], load_private(private), public, paths[1])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
