"""Uploads that are cut, refused, too large for one request, or taken for something else."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from referrers_registry import Fault, ReferrersRegistry, digest_of
from registries import Registry, cutting_proxy
from test_transfers import EMPTY, LARGE, put

from aotc.base.errors import AotcError
from aotc.registry import connection
from aotc.registry.references import parse_reference
from aotc.registry.repository import Repository, Stored

SMALL = b"small" * 1000
HUGE = bytes(33 << 20)


@pytest.fixture
def repository(ours: ReferrersRegistry) -> Repository:
    return Repository(parse_reference(f"{ours.host}/a/b"))


def methods(registry: ReferrersRegistry) -> str:
    return " ".join(asked.method for asked in registry.asked)


def refused(repository: Repository, content: bytes) -> AotcError:
    with pytest.raises(AotcError) as caught:
        put(repository, content)
    return caught.value


def test_an_upload_goes_on_from_where_the_registry_has_it(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    cut = (2 << 20) + 77
    ours.faults.append(Fault(of="PATCH", cut_after=cut, times=1))
    blob, stored = put(repository, LARGE)
    assert ours.blobs[blob.digest] == LARGE
    assert methods(ours) == "HEAD POST PATCH GET PATCH PUT"
    assert stored.sent >= len(LARGE)
    again = [asked.headers for asked in ours.asked if asked.method == "PATCH"][1]
    assert again["Content-Range"] == f"{cut}-{len(LARGE) - 1}"
    assert again["Content-Length"] == str(len(LARGE) - cut)


def test_what_cannot_be_sought_goes_on_too(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

    ours.faults.append(Fault(of="PATCH", cut_after=3 << 20, times=1))
    told: list[int] = []
    digest = digest_of(LARGE)
    repository.put_blob(digest, len(LARGE), lambda: Stream(LARGE), told=told.append)
    assert ours.blobs[digest] == LARGE


@pytest.mark.parametrize("cut", [200, (1 << 20) + 5, 4 << 20])
def test_the_real_registry_has_all_of_a_blob_or_nothing(
    docker: Registry, cut: int, pauses: list[float | None]
) -> None:
    content = bytes([cut % 251]) * len(LARGE)
    with cutting_proxy(docker.host, cut, cut) as host:
        repository = Repository(parse_reference(f"{host}/cut"))
        blob, _ = put(repository, content)
    there = Repository(parse_reference(f"{docker.host}/cut"))
    assert there.read_blob(blob, len(content)) == content
    assert docker.blob_file(blob.digest).read_bytes() == content
    assert 1 <= len(pauses) <= 3


def test_pauses_get_longer_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(
        connection,
        "time",
        SimpleNamespace(
            monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
        ),
    )
    waited = []
    for attempt, asked in ((0, None), (1, None), (4, None), (9, None), (0, 7.0), (0, 0.0)):
        before = now[0]
        connection.pause(attempt, asked)
        waited.append(round(now[0] - before, 3))
    assert waited == [0.5, 1.0, 8.0, 60.0, 7.0, 0.0]


def test_a_registry_may_have_lost_an_upload(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    ours.resumes = False
    ours.faults.append(Fault(of="PATCH", cut_after=1 << 20, times=1))
    blob, _ = put(repository, LARGE)
    assert ours.blobs[blob.digest] == LARGE
    assert methods(ours) == "HEAD POST PATCH GET HEAD POST PATCH PUT"


def test_a_small_blob_is_cut(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    ours.faults.append(Fault(of="PUT", cut_after=1000, times=1))
    blob, _ = put(repository, SMALL)
    assert ours.blobs[blob.digest] == SMALL
    assert methods(ours) == "HEAD POST PUT GET PATCH PUT"


def test_an_answer_that_is_lost_costs_no_second_upload(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    ours.faults.append(Fault(of="PUT", headers={"Content-Length": "9"}, times=1))
    blob, stored = put(repository, SMALL)
    assert stored == Stored(how="sent", sent=len(SMALL))
    assert ours.blobs[blob.digest] == SMALL
    assert methods(ours) == "HEAD POST PUT GET HEAD"


@pytest.mark.parametrize("cut_after", [0, 1000])
def test_an_upload_that_never_gets_far_is_given_up(
    ours: ReferrersRegistry,
    repository: Repository,
    pauses: list[float | None],
    cut_after: int,
) -> None:
    ours.faults.append(Fault(of="PATCH", cut_after=cut_after))
    assert refused(repository, LARGE).code == "AOTC-I204"
    assert len(pauses) == 5


def test_a_busy_registry_is_waited_for(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    busy = Fault(of="P(ATCH|UT) ", status=429, headers={"Retry-After": "3"}, times=2)
    ours.faults.append(busy)
    blob, _ = put(repository, LARGE)
    assert ours.blobs[blob.digest] == LARGE
    assert pauses == [3.0, 3.0]
    ours.faults.append(Fault(of="PATCH", status=503))
    error = refused(repository, LARGE + b"more")
    assert (error.code, error.found) == ("AOTC-I202", "503 Service Unavailable")


def test_a_proxy_takes_smaller_pieces(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    ours.faults.append(Fault(of="PATCH", status=413, times=1))
    blob, _ = put(repository, HUGE)
    assert len(ours.blobs[blob.digest]) == len(HUGE)
    ranges = [asked.headers.get("Content-Range") for asked in ours.asked if asked.method == "PATCH"]
    first, second, last = 16 << 20, 32 << 20, len(HUGE)
    expected = [f"0-{first - 1}", f"{first}-{second - 1}", f"{second}-{last - 1}"]
    assert ranges == [None, *expected]
    ours.faults.append(Fault(of="PATCH", status=413))
    error = refused(repository, HUGE + b"more")
    assert (error.code, error.found) == ("AOTC-I202", "413 Request Entity Too Large")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"of": "POST", "headers": {"Location": None}}, "AOTC-I207"),
        ({"of": "POST", "headers": {"Location": "http://elsewhere.example/"}}, "AOTC-I203"),
        ({"of": "POST", "status": 405}, "AOTC-I202"),
        ({"of": "POST", "status": 403}, "AOTC-I199"),
        ({"of": "PUT", "status": 400, "body": b'{"errors": []}'}, "AOTC-I202"),
        ({"of": "PUT", "headers": {"Docker-Content-Digest": "sha256:00"}}, "AOTC-I205"),
        ({"of": "HEAD", "status": 200, "headers": {"Content-Length": "7"}}, "AOTC-I205"),
    ],
    ids=str,
)
def test_an_upload_that_is_answered_wrongly(
    ours: ReferrersRegistry, repository: Repository, wrong: Mapping[str, object], code: str
) -> None:
    ours.faults.append(Fault(**wrong))  # type: ignore[arg-type]
    assert refused(repository, SMALL).code == code


def test_a_redirect_that_no_upload_follows_is_told(
    ours: ReferrersRegistry, repository: Repository
) -> None:
    away = {"Location": "https://registry.example/v2/?signed=1"}
    ours.faults.append(Fault(of="POST", status=301, headers=away))
    error = refused(repository, SMALL)
    assert error.code == "AOTC-I202"
    assert error.found == "301 Moved Permanently, to https://registry.example/v2/"


def test_a_file_that_changes_is_no_blob(
    ours: ReferrersRegistry, repository: Repository, docker: Registry
) -> None:
    for there in (repository, Repository(parse_reference(f"{docker.host}/a"))):
        for content, code in ((SMALL[:-1], "AOTC-I205"), (b"S" + SMALL[1:], "AOTC-I202")):
            with pytest.raises(AotcError) as caught:
                there.put_blob(EMPTY.digest, len(SMALL), lambda given=content: io.BytesIO(given))  # type: ignore[misc]
            assert caught.value.code == code
            assert not there.has_blob(EMPTY.digest)


def test_bytes_that_are_not_those_of_the_digest_are_sent_once(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    with pytest.raises(AotcError) as caught:
        repository.put_blob(EMPTY.digest, len(LARGE), lambda: io.BytesIO(LARGE))
    assert caught.value.code == "AOTC-I202"
    assert methods(ours) == "HEAD POST PATCH PUT"


def test_a_number_without_end_is_no_range(
    ours: ReferrersRegistry, repository: Repository, pauses: list[float | None]
) -> None:
    ours.faults.append(Fault(of="PATCH", cut_after=1 << 20, times=1))
    ours.faults.append(Fault(of="GET", headers={"Range": f"0-{'9' * 5000}"}, times=1))
    blob, _ = put(repository, LARGE)
    assert ours.blobs[blob.digest] == LARGE


def test_an_error_of_the_disk_is_none_of_the_network(repository: Repository) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error", "weights.bin")

    with pytest.raises(AotcError) as caught:
        repository.put_blob(EMPTY.digest, 10, Failing)
    assert (caught.value.code, caught.value.where) == ("AOTC-I043", "weights.bin")


def test_a_blob_that_may_not_be_mounted_is_sent(
    ours: ReferrersRegistry, repository: Repository
) -> None:
    blob, _ = put(Repository(parse_reference(f"{ours.host}/c/d")), SMALL)
    ours.asked.clear()
    ours.faults.append(Fault(of="POST .*mount=", status=403, times=1))
    assert put(repository, SMALL, mount_from=["c/d"])[1] == Stored(how="sent", sent=len(SMALL))
    assert methods(ours) == "HEAD POST POST PUT"
    ours.mounts = False
    ours.asked.clear()
    other = Repository(parse_reference(f"{ours.host}/e/f"))
    # The upload that is begun in place of the mount is used.
    assert put(other, SMALL, mount_from=["c/d"])[1].how == "sent"
    assert methods(ours) == "HEAD POST PUT"
    assert other.read_blob(blob, len(SMALL)) == SMALL
