"""Registries that lie, send elsewhere, refuse, send too much or end early: a code each."""

from __future__ import annotations

import gc
import itertools
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from types import SimpleNamespace

import pytest
from referrers_registry import INDEX, Fault, ReferrersRegistry, referrers_registry
from registries import listening
from test_transfers import manifest, put

from aotc.base.errors import AotcError
from aotc.base.interruptions import uninterrupted
from aotc.registry import connection
from aotc.registry.connection import Connection
from aotc.registry.descriptors import MANIFEST, MAX_MANIFEST, Descriptor
from aotc.registry.references import Reference, parse_reference
from aotc.registry.repository import Repository

TAG, DIGEST = "a tag", "a digest"
BLOB = bytes(range(256)) * (3 << 12)  # 3 MiB
NO_DIGEST = "sha256:" + "0" * 64


def shortly(value: object) -> str:
    """Words of a row, without the addresses of its functions, which each worker has of its own."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))[:60]


class Held:
    """A repository with a manifest, a blob and a referrer, in a registry that will do wrong."""

    def __init__(self, registry: ReferrersRegistry) -> None:
        self.registry = registry
        self.reference = parse_reference(f"{registry.host}/a/b:1")
        self.repository = Repository(self.reference)
        put(self.repository, b"{}")
        self.blob = put(self.repository, BLOB)[0]
        self.content = manifest("application/x-test", self.blob)
        self.manifest = self.repository.put_manifest(self.content, MANIFEST, "1")
        referrer = manifest("application/x-referrer", subject=self.manifest)
        self.referrer = self.repository.put_manifest(referrer, MANIFEST)
        registry.asked.clear()

    def by(self, what: str) -> Reference:
        name = f":{self.reference.tag}" if what == TAG else f"@{self.manifest.digest}"
        return parse_reference(self.reference.repository_name + name)

    def does(self, of: str, **wrong: object) -> None:
        self.registry.faults.append(Fault(of=of, **wrong))  # type: ignore[arg-type]


@pytest.fixture
def held(ours: ReferrersRegistry) -> Held:
    return Held(ours)


def refusal(call: Callable[[], object]) -> AotcError:
    with pytest.raises(AotcError) as caught:
        call()
    return caught.value


def flipped(content: bytes) -> bytes:
    """One byte changed, so that JSON stays JSON."""
    return content.replace(b"x-test", b"x-tesu") if b"x-test" in content else b"!" + content[1:]


@pytest.mark.parametrize(
    ("what", "wrong", "code"),
    [
        (DIGEST, {"change": flipped}, "AOTC-I205"),
        (DIGEST, {"change": flipped, "headers": {"Docker-Content-Digest": None}}, "AOTC-I205"),
        (TAG, {"change": flipped}, "AOTC-I205"),
        (TAG, {"headers": {"Docker-Content-Digest": NO_DIGEST}}, "AOTC-I205"),
        (DIGEST, {"headers": {"Docker-Content-Digest": NO_DIGEST}}, "AOTC-I205"),
        (TAG, {"headers": {"Content-Type": "application/json"}}, "AOTC-I205"),
        (TAG, {"headers": {"Content-Length": "20"}}, "AOTC-I205"),
        (TAG, {"headers": {"Content-Length": "100000"}}, "AOTC-I204"),
        (TAG, {"headers": {"Content-Encoding": "gzip"}}, "AOTC-I207"),
        (TAG, {"status": 200, "body": b"<html>"}, "AOTC-I207"),
        (TAG, {"status": 200, "body": b"[]"}, "AOTC-I207"),
        (TAG, {"status": 200, "body": b"[" * 100_000}, "AOTC-I207"),
        (TAG, {"status": 200, "body": b" " * (MAX_MANIFEST + 1)}, "AOTC-I206"),
        (TAG, {"status": 204}, "AOTC-I202"),
        (TAG, {"cut_after": 10}, "AOTC-I204"),
        (TAG, {"status": 404}, "AOTC-I201"),
        (TAG, {"status": 403}, "AOTC-I199"),
        (TAG, {"status": 410}, "AOTC-I202"),
        (TAG, {"status": 302, "headers": {"Location": "http://elsewhere.example/"}}, "AOTC-I203"),
        (TAG, {"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "AOTC-I203"),
        (TAG, {"status": 302, "headers": {"Location": "http://a:b@127.0.0.1/"}}, "AOTC-I203"),
        (TAG, {"status": 302, "headers": {"Location": "http://[/"}}, "AOTC-I203"),
        (TAG, {"status": 302, "headers": {"Location": "/v2/a/b/manifests/1"}}, "AOTC-I203"),
        (TAG, {"status": 302}, "AOTC-I202"),
    ],
    ids=shortly,
)
def test_a_manifest_that_is_not_as_asked_for(
    held: Held, pauses: list[float | None], what: str, wrong: Mapping[str, object], code: str
) -> None:
    held.does("GET .*/manifests/", **wrong)
    error = refusal(lambda: held.repository.resolve(held.by(what)))
    assert error.code == code
    assert error.where


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_two_lengths_are_none(held: Held) -> None:
    held.does("GET .*/manifests/", headers={"Content-Length": "5, 6"})
    error = refusal(lambda: held.repository.resolve(held.reference))
    assert (error.code, error.what) == ("AOTC-I207", "No valid address or answer")
    # urllib3 leaves its socket behind.
    del error
    gc.collect()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"change": flipped}, "AOTC-I205"),
        ({"change": lambda content: content[:-1]}, "AOTC-I204"),
        ({"headers": {"Content-Length": "20"}}, "AOTC-I205"),
        ({"headers": {"Content-Encoding": "gzip"}}, "AOTC-I207"),
        ({"status": 200, "body": b"short"}, "AOTC-I205"),
        (
            {"status": 206, "headers": {"Content-Range": "bytes 0-4/5"}, "body": b"short"},
            "AOTC-I205",
        ),
        ({"status": 206, "body": b"short"}, "AOTC-I205"),
        ({"status": 206, "headers": {"Content-Range": f"bytes 0-{'9' * 5000}/*"}}, "AOTC-I205"),
        ({"status": 416}, "AOTC-I205"),
        ({"status": 404}, "AOTC-I201"),
        ({"cut_after": 0}, "AOTC-I204"),
    ],
    ids=shortly,
)
def test_a_blob_that_is_not_as_its_manifest_says(
    held: Held, pauses: list[float | None], wrong: Mapping[str, object], code: str
) -> None:
    held.does("GET .*/blobs/", **wrong)
    error = refusal(lambda: held.repository.read_blob(held.blob, len(BLOB)))
    assert error.code == code
    assert error.where.endswith(f"/v2/a/b/blobs/{held.blob.digest}")


def test_a_blob_is_as_large_as_is_wanted(held: Held) -> None:
    error = refusal(lambda: held.repository.read_blob(held.blob, 1000))
    assert error.code == "AOTC-I206"
    assert held.registry.requests() == []


def part(repository: Repository, blob: Descriptor, offset: int, length: int) -> bytes:
    stream = repository.open_blob(blob, offset, length)
    read = bytearray()
    block = bytearray(100_000)
    with memoryview(block) as view:
        while count := stream.readinto(view):
            read += view[:count]
    return bytes(read)


def test_a_registry_may_have_no_ranges(held: Held) -> None:
    held.registry.ranges = False
    length = 1 << 20
    assert part(held.repository, held.blob, 1000, length) == BLOB[1000 : 1000 + length]
    assert len(held.registry.requests("GET .*/blobs/")) == 1


@pytest.mark.parametrize("wrong", ["0-99/SIZE", "999-1099/SIZE", "1000-1100/SIZE", "1000-1099/9"])
def test_a_range_that_is_another_one(held: Held, wrong: str) -> None:
    stated = {"Content-Range": f"bytes {wrong.replace('SIZE', str(len(BLOB)))}"}
    held.does("GET .*/blobs/", headers=stated)
    error = refusal(lambda: part(held.repository, held.blob, 1000, 100))
    assert error.code == "AOTC-I205"
    assert error.expected == f"bytes 1000-1099/{len(BLOB)}"


def test_a_blob_that_is_cut_goes_on_where_it_was(held: Held, pauses: list[float | None]) -> None:
    cut = (1 << 20) + 1
    held.does("GET .*/blobs/", cut_after=cut, times=2)
    assert part(held.repository, held.blob, 0, len(BLOB)) == BLOB
    asked = [item.headers.get("Range") for item in held.registry.asked if item.method == "GET"]
    last = len(BLOB) - 1
    assert asked == [None, f"bytes={cut}-{last}", f"bytes={2 * cut}-{last}"]
    assert pauses == [None, None]


def test_a_blob_may_be_cut_as_often_as_it_gets_on(
    held: Held, pauses: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROGRESS", 200_000)
    held.does("GET .*/blobs/", cut_after=200_000)
    assert part(held.repository, held.blob, 0, len(BLOB)) == BLOB
    assert len(pauses) == len(BLOB) // 200_000


def test_a_blob_that_never_gets_far_is_given_up(held: Held, pauses: list[float | None]) -> None:
    held.does("GET .*/blobs/", cut_after=10_000)
    error = refusal(lambda: part(held.repository, held.blob, 0, len(BLOB)))
    assert error.code == "AOTC-I204"
    assert len(pauses) == 5


@pytest.mark.parametrize(
    ("wrong", "asked"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, [7.0, 7.0]),
        ({"status": 429}, [None, None]),
        ({"status": 503, "headers": {"Retry-After": "soon"}}, [None, None]),
        ({"status": 500}, [None, None]),
        ({"cut_after": 5}, [None, None]),
    ],
    ids=shortly,
)
def test_what_passes_is_tried_again(
    held: Held, pauses: list[float | None], wrong: Mapping[str, object], asked: list[float | None]
) -> None:
    held.does("GET .*/manifests/", times=2, **wrong)
    assert held.repository.resolve(held.reference) == (held.manifest, held.content)
    assert pauses == asked


def test_what_does_not_pass_is_told(held: Held, pauses: list[float | None]) -> None:
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow\\u001b[31m down"}, 1]}'
    held.does("GET .*/manifests/", status=429, body=body)
    error = refusal(lambda: held.repository.resolve(held.reference))
    assert error.code == "AOTC-I202"
    assert error.what == f"{held.registry.host} cannot answer now"
    assert error.where == f"http://{held.registry.host}/v2/a/b/manifests/1"
    assert error.found == "429 Too Many Requests: TOOMANYREQUESTS slow\x1b[31m down"
    assert "\x1b" not in error.line()
    assert len(pauses) == 5


def test_nobody_waits_for_an_hour(held: Held, pauses: list[float | None]) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for stated in ("3600", later):
        held.registry.faults.clear()
        held.does("GET .*/manifests/", status=429, headers={"Retry-After": stated})
        error = refusal(lambda: held.repository.resolve(held.reference))
        assert error.code == "AOTC-I202"
        assert error.found == f"429 Too Many Requests, to be tried again after {stated}"
    assert pauses == []


def test_a_tag_is_asked_for_once(held: Held) -> None:
    repo = held.registry.repo("a/b")

    def move() -> None:
        repo.tags["1"] = held.referrer.digest

    held.does("GET .*/manifests/1", after=1, then=move)
    held.does("GET .*/blobs/", then=move)
    found, _ = held.repository.resolve(held.reference)
    assert held.repository.read_blob(held.blob, len(BLOB)) == BLOB
    assert held.repository.referrers(found.digest) == (held.referrer,)
    assert len(held.registry.requests("manifests/1")) == 1


def test_blobs_may_be_elsewhere(held: Held) -> None:
    with referrers_registry() as other:
        elsewhere = Held(other)
        away = f"http://{other.host}/v2/a/b/blobs/{elsewhere.blob.digest}?signed=1"
        held.does("(GET|HEAD) .*/blobs/", status=307, headers={"Location": away})
        assert held.repository.has_blob(held.blob.digest)
        assert part(held.repository, held.blob, 5, 1000) == BLOB[5:1005]
        assert other.requests() == [
            f"{method} /v2/a/b/blobs/{held.blob.digest}?signed=1" for method in ("HEAD", "GET")
        ]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://registry.example/v2/", "plain HTTP, from HTTPS"),
        ("http://cdn.example/", "plain HTTP, from HTTPS"),
        ("http://127.0.0.1/", "plain HTTP, from HTTPS"),
        ("https://127.0.0.1/", "a host of this machine or its link"),
        ("https://localhost/", "a host of this machine or its link"),
        ("https://169.254.169.254/latest", "a host of this machine or its link"),
        ("https://[::1]/", "a host of this machine or its link"),
        # As the system reads addresses, and names that it knows without asking.
        ("https://127.1/", "a host of this machine or its link"),
        ("https://0x7f000001/", "a host of this machine or its link"),
        ("https://2130706433./", "a host of this machine or its link"),
        ("https://[::ffff:169.254.169.254]/", "a host of this machine or its link"),
        ("https://a.localhost/", "a host of this machine or its link"),
        # Read by urllib3 and requests as 127.0.0.1.
        ("https://127.0.0.1\\.cdn.example/", "no valid address"),
        ("https://127%2e0.0.1/", "no valid address"),
        ("https://a@cdn.example/", "an address with a login"),
        ("https://cdn.example:99999/", "no valid address"),
        ("https://cdn.example/blob?signed=1", ""),
        ("../other", ""),
    ],
)
def test_where_a_registry_may_send(location: str, problem: str) -> None:
    connection = Connection("registry.example", plain_http=False, ca=None)
    base = "https://registry.example/v2/a/blobs/x"
    if problem:
        error = refusal(lambda: connection.checked_address(base, location))
        assert (error.code, error.what) == ("AOTC-I203", f"registry.example sends to {problem}")
        assert (error.where, "signed" in error.line()) == (base, False)
    else:
        assert connection.checked_address(base, location).startswith("https://")


def test_lists_of_referrers_that_are_none(held: Held) -> None:
    digest = held.manifest.digest
    row = held.referrer.to_json()
    for body, code in (
        (b"{}", "AOTC-I207"),
        (b'{"manifests": [1]}', "AOTC-I207"),
        (json.dumps({"manifests": [{**row, "digest": "md5:00"}]}).encode(), "AOTC-I207"),
        (json.dumps({"manifests": [{**row, "size": -1}]}).encode(), "AOTC-I207"),
        (json.dumps({"manifests": [{**row, "annotations": {"a": 1}}]}).encode(), "AOTC-I207"),
        (json.dumps({"manifests": [{**row, "artifactType": []}]}).encode(), "AOTC-I207"),
    ):
        held.registry.faults.clear()
        held.does("GET .*/referrers/", status=200, body=body)
        assert refusal(lambda: held.repository.referrers(digest)).code == code


def test_too_many_referrers(held: Held) -> None:
    digest = held.manifest.digest

    def rows(count: int) -> bytes:
        listed = [{**held.referrer.to_json(), "digest": f"sha256:{n:064x}"} for n in range(count)]
        return json.dumps({"mediaType": INDEX, "manifests": listed}).encode()

    held.does("GET .*/referrers/", status=200, body=rows(1000))
    assert len(held.repository.referrers(digest)) == 1000
    held.registry.faults.clear()
    held.does("GET .*/referrers/", status=200, body=rows(1001))
    assert refusal(lambda: held.repository.referrers(digest)).code == "AOTC-I206"
    held.registry.faults.clear()
    more = {"Link": f'</v2/a/b/referrers/{digest}?more>; rel="next"'}
    held.does("GET .*/referrers/", status=200, headers=more, body=rows(1))
    held.registry.asked.clear()
    assert refusal(lambda: held.repository.referrers(digest)).code == "AOTC-I206"
    assert len(held.registry.asked) == 100
    held.registry.faults.clear()
    away = {"Link": '<http://elsewhere.example/>; rel="next"'}
    held.does("GET .*/referrers/", status=200, headers=away, body=rows(1))
    assert refusal(lambda: held.repository.referrers(digest)).code == "AOTC-I203"


def test_lists_of_referrers_are_not_kept_without_end(held: Held) -> None:
    listed = 0

    def page(_: bytes) -> bytes:
        nonlocal listed
        listed += 1
        row = {**held.referrer.to_json(), "annotations": {"long": "x" * (1 << 20)}}
        return json.dumps({"manifests": [{**row, "digest": f"sha256:{listed:064x}"}]}).encode()

    digest = held.manifest.digest
    more = {"Link": f'</v2/a/b/referrers/{digest}?more>; rel="next"', "Content-Length": None}
    held.does("GET .*/referrers/", change=page, headers=more)
    error = refusal(lambda: held.repository.referrers(digest))
    assert (error.code, error.what) == ("AOTC-I206", "The registry lists too many referrers")
    assert listed == MAX_MANIFEST >> 20


def test_referrers_of_several_pages(held: Held) -> None:
    added = [
        held.repository.put_manifest(manifest(f"application/{n}", subject=held.manifest), MANIFEST)
        for n in range(6)
    ]
    held.registry.page = 3
    assert held.repository.referrers(held.manifest.digest) == (held.referrer, *added)
    assert len(held.registry.requests("referrers")) == 3


def test_an_index_of_referrers_that_others_write(held: Held) -> None:
    registry = held.registry
    registry.referrers_api = False
    tag = held.manifest.digest.replace(":", "-")
    repo = registry.repo("a/b")

    def added(kind: str) -> Descriptor:
        content = manifest(f"application/{kind}", subject=held.manifest)
        return held.repository.put_manifest(content, MANIFEST)

    first = added("first")
    before = repo.tags[tag]

    def overwrite() -> None:
        repo.tags[tag] = before

    # What another one has written in between is kept, and ours is written anew.
    held.does(f"GET .*/{tag}", after=1, times=2, then=overwrite)
    second = added("second")
    assert held.repository.referrers(held.manifest.digest) == (first, second)
    before = repo.tags[tag]
    registry.faults.clear()
    held.does(f"GET .*/{tag}", then=overwrite)
    error = refusal(lambda: added("third"))
    assert (error.code, error.found) == ("AOTC-I209", "8 times")


def test_an_index_of_referrers_keeps_what_others_wrote(held: Held) -> None:
    held.registry.referrers_api = False
    tag = held.manifest.digest.replace(":", "-")
    row = {**held.referrer.to_json(), "platform": {"os": "linux"}, "data": "e30="}
    index = {"schemaVersion": 2, "mediaType": INDEX, "annotations": {"a": "b"}, "manifests": [row]}
    held.repository.put_manifest(json.dumps(index).encode(), INDEX, tag)
    ours = manifest("application/x-ours", subject=held.manifest)
    added = held.repository.put_manifest(ours, MANIFEST)
    repo = held.registry.repo("a/b")
    found = json.loads(repo.manifests[repo.tags[tag]][1])
    assert found == {**index, "manifests": [row, added.to_json()]}


SLOWLY = 1000


@contextmanager
def slow_registry(told: Callable[[int], None] = lambda count: None) -> Iterator[str]:
    """Yields the host of one that sends a body of `SLOWLY` bytes one by one."""

    def serve(asking: socket.socket) -> None:
        asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with asking, suppress(OSError):
            asking.recv(1 << 16)
            asking.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SLOWLY)
            for count in range(SLOWLY):
                asking.sendall(b"x")
                told(count)
                threading.Event().wait(0.005)

    with listening(lambda client: partial(serve, client)) as host:
        yield host


@pytest.mark.parametrize("what", ["manifest", "blob"])
def test_a_registry_that_sends_next_to_nothing_is_not_waited_for(
    what: str, monkeypatch: pytest.MonkeyPatch, pauses: list[float | None]
) -> None:
    seconds = itertools.count(0, 31)
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with slow_registry() as host:
        slow = Repository(parse_reference(f"{host}/a:1"))
        blob = Descriptor(media_type="a/b", digest=NO_DIGEST, size=SLOWLY)
        if what == "blob":
            error = refusal(lambda: slow.read_blob(blob, SLOWLY))
        else:
            error = refusal(lambda: slow.resolve(slow.reference))
    assert (error.code, error.found.endswith(" bytes in 62 seconds")) == ("AOTC-I204", True)
    assert len(pauses) == 5


def test_who_interrupts_does_not_wait_for_a_slow_registry() -> None:
    sent = 0

    def interrupt(count: int) -> None:
        nonlocal sent
        sent = count
        if not count:
            os.kill(os.getpid(), signal.SIGINT)

    with slow_registry(interrupt) as host:
        slow = Repository(parse_reference(f"{host}/a:1"))
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(slow.resolve)(slow.reference)
    assert sent < SLOWLY - 1


def test_nobody_answers() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{server.getsockname()[1]}"
        error = refusal(lambda: Repository(parse_reference(f"{host}/a")).has_blob(NO_DIGEST))
    assert (error.code, error.what) == ("AOTC-I197", f"{host} cannot be reached")
    assert error.found == "[Errno 111] Connection refused"
    name = "registry.invalid"
    error = refusal(lambda: Repository(parse_reference(f"{name}/a")).has_blob(NO_DIGEST))
    assert (error.code, error.what) == ("AOTC-I197", f"{name} cannot be reached")


@pytest.mark.parametrize(
    "answer", [b"", b"220 mail ready\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"]
)
def test_what_answers_is_no_registry(answer: bytes, pauses: list[float | None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        host = f"127.0.0.1:{server.getsockname()[1]}"
        repository = Repository(parse_reference(f"{host}/a"))
        error = refusal(lambda: repository.has_blob(NO_DIGEST))
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert (error.code, error.what) == ("AOTC-I204", f"The connection to {host} ended")
    assert len(pauses) == 5
