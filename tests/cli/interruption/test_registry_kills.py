"""`aotc push` and `aotc pull` that are killed at any moment of what they transfer.

A proxy before a real registry counts what passes, and kills the command after so many bytes.
Nothing half is in the store, at the output or at the tag, and the next command goes on: what it
transfers again is counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest
from artifact_builder import build_artifact
from file_bytes import contents_of
from kill_sweep import KILLED, Ended, Home, copied
from registries import Registry, docker_registry

from aotc.cli.commands import COMMANDS
from aotc.spec.payload import CHUNK_BYTES
from aotc.trust.gate import verify
from aotc.trust.key_files import generate
from aotc.trust.key_loading import load_private

# So that no fork imports them.
for _name in ("push", "pull"):
    COMMANDS.load(_name)
for _name in (
    *("cli.terminal", "cli.output", "cli.progress", "report.sheets.stores"),
    *(
        "registry.connection",
        "registry.credentials",
        "registry.uploads",
        "trust.registry_container",
    ),
    *("tools.pushing", "tools.pulling", "runtime.store.installing"),
):
    import_module(f"aotc.{_name}")

POINTS = 40
NAME = "shop/model"
# Bytes of weights: those of the quick test, and whole chunks and a bit.
FEW, MANY = 3_000_000, 5 * CHUNK_BYTES + 100_000
# Two chunks may be on their way when a pull is killed; each may be followed by what TCP holds.
IN_FLIGHT = 2 * CHUNK_BYTES


class Proxy:
    """Passes connections on to a registry; kills process `pid` after `limit` bytes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.lock = threading.Lock()
        self.threads: list[threading.Thread] = []
        self.start(None, Path(os.devnull))
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.accepting = threading.Thread(target=self._accept)
        self.accepting.start()

    def start(self, limit: int | None, pid: Path) -> None:
        """Count anew; the process that is killed has written its number to `pid`."""
        # What the one before left in buffers is not of this one.
        while self.threads:
            self.threads.pop().join()
        with self.lock:
            self.passed = {"up": 0, "down": 0}
            self.limit, self.pid = limit, pid

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self.threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self.target) as server:
            back = threading.Thread(target=self._pass, args=(server, client, "down"))
            back.start()
            self._pass(client, server, "up")
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._count(len(data), way)
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int, way: str) -> None:
        with self.lock:
            self.passed[way] += size
            if self.limit is not None and sum(self.passed.values()) >= self.limit:
                self.limit = None
                os.kill(int(self.pid.read_text()), signal.SIGKILL)

    def close(self) -> None:
        """When nothing is connected any more."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.accepting.join()
        self.start(None, self.pid)


@contextmanager
def proxied(registry: Registry) -> Iterator[Proxy]:
    proxy = Proxy(registry.host)
    try:
        yield proxy
    finally:
        proxy.close()


class Scene:
    """An artifact, a registry behind a proxy, and commands that are killed."""

    def __init__(self, folder: Path, registry: Registry, proxy: Proxy, padding: int) -> None:
        self.registry, self.proxy = registry, proxy
        self.start = folder / "start"
        self.start.mkdir()
        private, self.public = generate(self.start / "release.pem")
        self.artifact = build_artifact(folder / "a.aotc", load_private(private), padding=padding)
        self.folder = folder / "home"
        self.pid = folder / "pid"

    def home(self) -> Home:
        return copied(self.start, self.folder)

    def run(self, home: Home, *words: str, after: int | None = None) -> Ended:
        self.proxy.start(after, self.pid)

        def tell() -> None:
            self.pid.write_text(str(os.getpid()))

        return home.run(*words, kill_at=None, first=tell)

    def reference(self, tag: str) -> str:
        return f"oci://{self.proxy.host}/{NAME}:{tag}"

    def get(self, what: str) -> bytes | None:
        """Something of the repository, directly from the registry; None where it has none."""
        request = urllib.request.Request(f"http://{self.registry.host}/v2/{NAME}/{what}")
        request.add_header("Accept", "application/vnd.oci.image.manifest.v1+json")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
            return None

    def is_whole_or_absent(self, tag: str) -> None:
        """The tag names nothing, or a manifest all of whose blobs are there and are right."""
        content = self.get(f"manifests/{tag}")
        if content is None:
            return
        manifest = json.loads(content)
        for each in (manifest["config"], *manifest["layers"]):
            blob = self.get(f"blobs/{each['digest']}")
            assert blob is not None
            assert "sha256:" + hashlib.sha256(blob).hexdigest() == each["digest"]


@contextmanager
def opened(folder: Path, padding: int) -> Iterator[Scene]:
    with docker_registry(folder / "registry") as registry, proxied(registry) as proxy:
        yield Scene(folder, registry, proxy, padding)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("kills"), FEW) as found:
        yield found


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("large"), MANY) as found:
        yield found


def _moments(whole: int, count: int) -> list[int]:
    """Numbers of bytes, evenly over all that passes."""
    return [max(1, whole * (2 * number + 1) // (2 * count)) for number in range(count)]


def _stored(home: Home, scene: Scene) -> None:
    for entry in (home.folder / "store").glob("sha256-*"):
        assert verify(entry, key=scene.public).authentic


def _pulls(scene: Scene, count: int, *output: str) -> list[tuple[int, int, int]]:
    """Bytes of all, of a pull until it was killed, and of the one after it; for each moment."""
    home = scene.home()
    pushed = scene.run(home, "push", str(scene.artifact), scene.reference("pulled"))
    assert pushed.status == 0, pushed
    words = ("pull", scene.reference("pulled"), "--key", "release.pub", *output)
    ended = scene.run(home, *words)
    assert ended.status == 0, ended
    whole = scene.proxy.passed["down"]
    found = []
    for moment in _moments(sum(scene.proxy.passed.values()), count):
        home = scene.home()
        ended = scene.run(home, *words, after=moment)
        assert ended.status == KILLED, ended
        before = scene.proxy.passed["down"]
        _stored(home, scene)
        if output and (home.folder / output[1]).exists():
            assert verify(home.folder / output[1], key=scene.public).authentic
        again = scene.run(home, *words)
        assert again.status == 0, (moment, again)
        found.append((whole, before, scene.proxy.passed["down"]))
        if output:
            assert verify(home.folder / output[1], key=scene.public).authentic
        else:
            (entry,) = (home.folder / "store").glob("sha256-*")
            assert contents_of(entry / "payload") == contents_of(scene.artifact / "payload")
        assert home.leftovers((".lock",)) == [], moment
    return found


def _resumed(found: list[tuple[int, int, int]]) -> None:
    """No more is fetched again than was on its way, and what TCP holds."""
    for whole, before, after in found:
        assert before + after - whole <= IN_FLIGHT + (8 << 20), (whole, before, after)


def test_a_pull_that_is_killed(scene: Scene) -> None:
    _resumed(_pulls(scene, 2))


def test_a_push_that_is_killed(scene: Scene) -> None:
    _pushes(scene, 2)


@pytest.mark.slow
@pytest.mark.parametrize("output", [(), ("-o", "out.aotc"), ("-o", "out.aotc.zip")])
def test_a_pull_that_is_killed_at_many_moments(large: Scene, output: tuple[str, ...]) -> None:
    found = _pulls(large, POINTS, *output)
    again = [before + after - whole for whole, before, after in found]
    print(f"{output}: {len(found)} kills, fetched again: {sorted(again)}")
    _resumed(found)


@pytest.mark.slow
def test_a_push_that_is_killed_at_many_moments(large: Scene) -> None:
    _pushes(large, POINTS)


def _pushes(scene: Scene, count: int) -> None:
    registry = scene.registry

    def emptied() -> None:
        """As no push ever was."""
        shutil.rmtree(registry.folder / "data" / "docker", ignore_errors=True)

    emptied()
    words = ("push", str(scene.artifact), scene.reference("new"))
    home = scene.home()
    assert scene.run(home, *words).status == 0
    total = sum(scene.proxy.passed.values())
    sizes = {digest: registry.blob_file(digest).stat().st_size for digest in registry.blobs()}
    for moment in _moments(total, count):
        emptied()
        home = scene.home()
        ended = scene.run(home, *words, after=moment)
        assert ended.status == KILLED, ended
        scene.is_whole_or_absent("new")
        had = {digest: registry.blob_file(digest).stat().st_size for digest in registry.blobs()}
        again = scene.run(home, *words)
        assert again.status == 0, (moment, again)
        # What the registry had whole is not sent again.
        missing = sum(sizes.values()) - sum(had.values())
        assert scene.proxy.passed["up"] <= missing + 200_000, (moment, had)
        scene.is_whole_or_absent("new")
        assert scene.get("manifests/new") is not None
        assert registry.blobs() == set(sizes), "the same blobs, and no others"
        assert home.leftovers((".lock",)) == []
