"""Jobs on another machine, without one: files by their content, messages, what was changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import aotc.fleet.executors.carrying as carrying
from aotc.base.errors import AotcError
from aotc.fleet.executors.base import Job
from aotc.fleet.executors.carrying import (
    Carried,
    Ended,
    Message,
    Order,
    Received,
    files_of,
    run_order,
)
from aotc.spec.codec import Json
from aotc.spec.profile import WorkerLimits
from aotc.tools.model_sandbox import Sandbox

LARGE = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{path}"
    with Sandbox(WorkerLimits(parallel=1)) as made:
        os.environ["PYTHONPATH"] = path
        yield made


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))


def leave(request: Json) -> Json:
    """The job: say a line, and leave what it was given."""
    data = Path(request["file"]).read_bytes()
    print("reads", len(data), flush=True)
    Path("out/below").mkdir()
    Path("out/below/copy").write_bytes(data)
    Path("out/empty").touch()
    return Path(request["file"]).name


def chatter(request: Json) -> Json:
    """Say a line that is longer than a message, and many short ones."""
    print("x" * 40_000)
    for number in range(request["lines"]):
        print(f"line {number}")


def an_order(data: bytes, *, shared: str = "", pieces: tuple[bytes, ...] | None = None) -> Order:
    job = Job(
        name="a job",
        function="test_carried_jobs:leave",
        request={"file": "{file:model/weights}"},
        files={"model/weights": Path()},
    )
    parts = (data[:1000], data[1000:]) if pieces is None else pieces
    file = Carried(
        path="model/weights",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        pieces=parts,
    )
    return Order(job=job, files=(file,), shared=shared)


def received(
    messages: Iterator[Message], folder: Path, shared: str = ""
) -> tuple[Ended, list[str]]:
    taken, lines = Received(folder, shared), []
    for message in messages:
        if message[0] == "log":
            lines += message[1]
        elif message[0] == "error":
            raise message[1]
        elif message[0] == "end":
            taken.verify(message[1].digests)
            return message[1], lines
        elif message[0] != "begin":
            taken.take(message)
    raise AssertionError("no end")


def test_what_a_job_leaves_comes_back_with_its_lines(tmp_path: Path, sandbox: Sandbox) -> None:
    ended, lines = received(run_order(an_order(LARGE), lambda x: x, sandbox), tmp_path / "back")
    assert (tmp_path / "back" / "below" / "copy").read_bytes() == LARGE
    assert (tmp_path / "back" / "empty").read_bytes() == b""
    assert ended.value == "weights"
    assert lines == [f"reads {len(LARGE)}"]
    assert set(ended.digests) == {"below/copy", "empty"}


def test_a_large_file_is_fetched_once_and_a_small_one_is_not_kept(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    fetched: list[int] = []

    def fetch(piece: bytes) -> bytes:
        fetched.append(len(piece))
        return piece

    for number in range(2):
        received(run_order(an_order(LARGE), fetch, sandbox), tmp_path / f"large-{number}")
    assert fetched == [1000, len(LARGE) - 1000]
    fetched.clear()
    for number in range(2):
        received(run_order(an_order(b"key" * 500), fetch, sandbox), tmp_path / f"small-{number}")
    assert fetched == [1000, 500] * 2
    kept = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(data.startswith(b"keykey") for data in kept)


def test_a_file_that_was_changed_on_the_way(tmp_path: Path, sandbox: Sandbox) -> None:
    order = an_order(LARGE, pieces=(LARGE[:-1] + b"?",))
    with pytest.raises(AotcError) as caught:
        received(run_order(order, lambda x: x, sandbox), tmp_path / "back")
    assert caught.value.line() == (
        "AOTC-R054 a file of a job was changed on the way [model/weights] (expected "
        f"{hashlib.sha256(LARGE).hexdigest()}; found "
        f"{hashlib.sha256(LARGE[:-1] + b'?').hexdigest()})"
    )
    # Nor is it kept.
    ended, _ = received(run_order(an_order(LARGE), lambda x: x, sandbox), tmp_path / "again")
    assert ended.value == "weights"


def test_large_files_go_through_a_shared_folder(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "SHARED_BYTES", 1 << 20)
    shared = tmp_path / "shared"
    shared.mkdir()
    source = tmp_path / "source"
    source.write_bytes(LARGE)
    digest = hashlib.sha256(LARGE).hexdigest()
    carrying.share(source, digest, shared)
    order = an_order(LARGE, shared=str(shared), pieces=())
    messages = run_order(order, lambda x: x, sandbox)
    received(messages, tmp_path / "back", str(shared))
    assert (tmp_path / "back" / "below" / "copy").read_bytes() == LARGE
    # The job's file stays for other machines, and what came back was taken.
    assert [path.name for path in shared.iterdir()] == [digest]


def test_a_shared_folder_that_is_gone(tmp_path: Path, sandbox: Sandbox) -> None:
    order = an_order(LARGE, shared=str(tmp_path / "gone"), pieces=())
    with pytest.raises(AotcError) as caught:
        received(run_order(order, lambda x: x, sandbox), tmp_path / "back")
    assert caught.value.line() == (
        f"AOTC-I173 the shared folder cannot be used [{tmp_path / 'gone'}] "
        "(found No such file or directory)"
    )


@pytest.mark.parametrize(
    ("digests", "what"),
    [
        ({"a": "0" * 64}, "a"),
        ({"a": hashlib.sha256(b"a").hexdigest(), "b": "0" * 64}, "b"),
        ({}, "a"),
    ],
)
def test_what_came_back_is_verified(tmp_path: Path, digests: dict[str, str], what: str) -> None:
    taken = Received(tmp_path / "back")
    taken.take(("piece", "a", b"a"))
    with pytest.raises(AotcError) as caught:
        taken.verify(digests)
    assert (caught.value.code, caught.value.where) == ("AOTC-R054", what)


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../b", "", "a\0b"])
def test_paths_stay_below_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(AotcError) as caught:
        Received(tmp_path / "back").take(("piece", path, b""))
    assert caught.value.code == "AOTC-R054"
    assert list(tmp_path.rglob("*")) == [tmp_path / "back"]


@pytest.mark.parametrize("name", ["../mine", "{here}/mine", "mine", ".", f"{'0' * 64}-../mine"])
def test_no_other_file_is_taken_for_a_shared_one(tmp_path: Path, name: str) -> None:
    (tmp_path / "shared").mkdir()
    places = [tmp_path / "mine", tmp_path / "shared" / "mine"]
    for place in places:
        place.write_text("mine")
    taken = Received(tmp_path / "back", str(tmp_path / "shared"))
    with pytest.raises(AotcError) as caught:
        taken.take(("shared", "a", name.format(here=tmp_path)))
    assert caught.value.code == "AOTC-R054"
    assert all(place.is_file() for place in places)
    assert list((tmp_path / "back").iterdir()) == []


def test_a_shared_file_that_is_too_short_is_written_again(tmp_path: Path) -> None:
    shared, source = tmp_path / "shared", tmp_path / "source"
    shared.mkdir()
    source.write_bytes(LARGE)
    digest = hashlib.sha256(LARGE).hexdigest()
    (shared / digest).write_bytes(LARGE[:-1])
    carrying.share(source, digest, shared)
    assert (shared / digest).read_bytes() == LARGE


def test_what_the_machine_that_called_refuses_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AotcError):
        Received(tmp_path / "file" / "back")
    taken = Received(tmp_path / "back")
    taken.take(("piece", "a", b"a"))
    with pytest.raises(AotcError) as caught:
        taken.take(("piece", "a/b", b"b"))
    taken.close()
    assert (caught.value.code, caught.value.where) == ("AOTC-I043", str(tmp_path / "back" / "a"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is full")
def test_a_disk_that_is_full_when_a_file_is_closed(tmp_path: Path) -> None:
    taken = Received(tmp_path / "back")
    (tmp_path / "back" / "a").symlink_to("/dev/full")
    taken._open = ("a", (tmp_path / "back" / "a").open("wb"))
    taken.take(("piece", "a", b"a"))
    with pytest.raises(AotcError) as caught:
        taken.close()
    assert (caught.value.code, caught.value.where) == ("AOTC-I018", str(tmp_path / "back" / "a"))
    taken.close()


def test_a_log_comes_in_few_messages_and_whole(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(name="a job", function="test_carried_jobs:chatter", request={"lines": 20_000})
    monkeypatch.setattr(carrying, "PIECE_BYTES", 1 << 14)
    messages = list(run_order(Order(job=job, files=()), lambda x: x, sandbox))
    told = [message[1] for message in messages if message[0] == "log"]
    # Not one for each line; how many depends on how long the job took.
    assert len(told) < 2_000
    text = "".join("".join(lines) for lines in told)
    assert text == "x" * 40_000 + "".join(f"line {n}" for n in range(20_000))


def test_files_of_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "data" / "set").mkdir(parents=True)
    (tmp_path / "data" / "set" / "0.pb").touch()
    (tmp_path / "data" / "1.npz").symlink_to(tmp_path / "model")
    (tmp_path / "model").touch()
    files = {"data": tmp_path / "data", "model/x": tmp_path / "model"}
    found = files_of(Job(name="", function="", request={}, files=files))
    assert sorted(found) == ["data/1.npz", "data/set/0.pb", "model/x"]
