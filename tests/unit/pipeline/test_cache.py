"""The build cache returns exactly what was stored, or nothing, whatever other processes do."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cache_jobs
import pytest
from cache_jobs import write
from file_bytes import contents_of
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import SUPPORT

from aotc.base.errors import AotcError
from aotc.pipeline import cache as caching
from aotc.pipeline import cache_folder
from aotc.pipeline import cache_folder as folder
from aotc.pipeline.cache import ARTIFACT, PARTITION, BuildCache
from aotc.spec.payload import CHUNK_BYTES

TOOLCHAIN = Path(caching.__file__).parents[2]
FILES = {"model.onnx": b"graph", "sub/deep/weights.bin": bytes(range(256)) * 400, "empty": b""}
DOCUMENT = {"files": ["model.onnx"], "nodes": 3, "share": 0.5}
# Mappings of what JSON holds; 1 and 1.0 are one number there, so that no fractions stand here.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
PARTS = st.dictionaries(st.text(max_size=6), JSON, max_size=4)


@pytest.fixture
def cache(tmp_path: Path) -> BuildCache:
    return BuildCache(tmp_path / "cache")


@pytest.fixture
def into(tmp_path: Path) -> Path:
    made = tmp_path / "into"
    made.mkdir()
    return made


@pytest.fixture
def key(cache: BuildCache, tmp_path: Path) -> str:
    return store_entry(cache, tmp_path, 0)


def store_entry(cache: BuildCache, work: Path, number: int, size: int = 0) -> str:
    """Store an entry now; returns its key."""
    made = cache.key(ARTIFACT, {"number": number})
    files = {"big.bin": bytes(size)} if size else FILES
    source = write(work / f"source-{number}", files)
    cache.put(made, source, tuple(files), DOCUMENT)
    assert cache.findings() == ()
    return made


def entry_path(cache: BuildCache, key: str) -> Path:
    assert cache.folder is not None
    return cache.folder / "v1" / key[:2] / key


def extra_names(cache: BuildCache) -> list[str]:
    """Names in the cache's folder that are not shards."""
    assert cache.folder is not None
    return sorted(path.name for path in (cache.folder / "v1").iterdir() if len(path.name) > 2)


def start_job(job: str, cache: BuildCache, work: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, cache_jobs.__file__, job, str(cache.folder), str(work)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TOOLCHAIN, SUPPORT)))},
    )


def finish_job(process: subprocess.Popen[str]) -> dict[str, Any]:
    stdout, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    found = json.loads(stdout)
    assert isinstance(found, dict)
    return found


def test_a_hit_gives_back_files_and_document(cache: BuildCache, key: str, into: Path) -> None:
    assert cache.get(key, into) == DOCUMENT
    assert contents_of(into) == FILES
    assert all(path.stat().st_nlink == 1 for path in into.rglob("*") if path.is_file())
    assert cache.findings() == ()
    assert extra_names(cache) == ["lock"]
    assert cache.folder is not None
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_a_copy_is_the_callers_own(cache: BuildCache, key: str, into: Path) -> None:
    assert cache.get(key, into / "one")
    (into / "one/model.onnx").write_bytes(b"other")
    assert cache.get(key, into / "two") == DOCUMENT
    assert contents_of(into / "two") == FILES


def test_a_miss_makes_nothing(cache: BuildCache, into: Path) -> None:
    assert cache.get(cache.key(PARTITION, {}), into) is None
    assert cache.folder is not None
    assert not cache.folder.exists()
    assert cache.entries() == []
    assert cache.prune().kept == cache.clear().removed == 0
    assert cache.findings() == ()


def test_only_the_files_named_are_kept(cache: BuildCache, tmp_path: Path, into: Path) -> None:
    source = write(tmp_path / "source", FILES)
    key = cache.key(PARTITION, {"a": 1})
    cache.put(key, source, ["model.onnx"], {"a": []})
    assert cache.get(key, into) == {"a": []}
    assert contents_of(into) == {"model.onnx": FILES["model.onnx"]}
    (entry,) = cache.entries()
    assert (entry.key, entry.kind, entry.files) == (key, PARTITION, 1)
    on_disk = sum(p.stat().st_size for p in entry_path(cache, key).rglob("*") if p.is_file())
    assert entry.bytes == on_disk
    assert entry.created_at.endswith("+00:00")


def test_large_files_are_verified_chunk_by_chunk(
    cache: BuildCache, tmp_path: Path, into: Path
) -> None:
    data = os.urandom(1 << 16) * (2 * CHUNK_BYTES // (1 << 16)) + b"end"
    source = write(tmp_path / "source", {"big": data, "small": b"s"})
    key = cache.key(ARTIFACT, {})
    cache.put(key, source, ["big", "small"], {})
    assert cache.get(key, into / "a") == {}
    assert contents_of(into / "a") == {"big": data, "small": b"s"}
    flip(entry_path(cache, key) / "files/big", CHUNK_BYTES + 5)
    assert cache.get(key, into / "b") is None
    assert [path.name for path in into.iterdir()] == ["a"]
    assert cache.dropped == 1


def test_known_digests_are_what_a_copy_must_have(
    cache: BuildCache, tmp_path: Path, into: Path
) -> None:
    source = write(tmp_path / "source", {"a": b"a"})
    key = cache.key(ARTIFACT, {})
    right = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    cache.put(key, source, ["a"], {}, {"a": right})
    assert cache.get(key, into / "a") == {}
    wrong = cache.key(ARTIFACT, {"wrong": True})
    cache.put(wrong, source, ["a"], {}, {"a": right[::-1]})
    assert cache.get(wrong, into / "b") is None
    assert cache.dropped == 1


def flip(path: Path, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _link(path: Path) -> None:
    target = path.rename(path.parents[4] / "elsewhere")
    path.symlink_to(target)


def _link_folder(path: Path) -> None:
    target = path.rename(path.parents[4] / "elsewhere")
    path.symlink_to(target, target_is_directory=True)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _reseal(path: Path) -> None:
    """Another index with its own, correct digest: only what it states about itself is wrong."""
    data = path.read_bytes().replace(b'"key":"', b'"key":"0')[:-1] + b"}"
    path.write_bytes(data)
    path.with_suffix(".sha256").write_text(hashlib.sha256(data).hexdigest())


WEIGHTS = "files/sub/deep/weights.bin"
DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "flipped": (WEIGHTS, flip, "sub/deep/weights.bin has another digest"),
    "cut": (WEIGHTS, _cut, "files are missing, added or of another size"),
    "missing": (WEIGHTS, Path.unlink, "files are missing, added or of another size"),
    "added": ("files/more", Path.touch, "files are missing, added or of another size"),
    "beside": ("more", Path.touch, "files are missing or added next to the index"),
    "symlink": (WEIGHTS, _link, "sub/deep/weights.bin is not a regular file"),
    "linked folder": ("files/sub", _link_folder, "sub is not a regular file"),
    "pipe": (WEIGHTS, _pipe, "sub/deep/weights.bin is not a regular file"),
    "index flipped": ("index.json", flip, "the index has another digest"),
    "index cut": ("index.json", _cut, "the index has another digest"),
    "index empty": ("index.json", lambda path: os.truncate(path, 0), "another digest"),
    "index missing": ("index.json", Path.unlink, "files are missing or added next to the index"),
    "index linked": ("index.json", _link, "index.json: Too many levels of symbolic links"),
    "index piped": ("index.json", _pipe, "index.json: not a regular file"),
    "index of another": ("index.json", _reseal, "the index: key: "),
    "seal missing": ("index.sha256", Path.unlink, "files are missing or added next to the index"),
    "no files": ("files", shutil.rmtree, "files are missing or added next to the index"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_dropped(
    damage: str, cache: BuildCache, key: str, into: Path, tmp_path: Path
) -> None:
    path, spoil, what = DAMAGES[damage]
    spoil(entry_path(cache, key) / path)
    assert cache.get(key, into) is None
    assert list(into.iterdir()) == []
    assert (cache.dropped, cache.problem) == (1, None)
    (finding,) = cache.findings()
    assert (finding.code, finding.where) == ("AOTC-R015", str(entry_path(cache, key)))
    assert what in finding.what
    assert not entry_path(cache, key).exists()
    assert extra_names(cache) == ["lock"]
    assert cache.get(key, into) is None
    cache.put(key, tmp_path / "source-0", tuple(FILES), DOCUMENT)
    assert cache.get(key, into) == DOCUMENT
    assert contents_of(into) == FILES
    assert cache.dropped == 1


def test_an_entry_under_anothers_key_is_dropped(
    cache: BuildCache, key: str, into: Path, tmp_path: Path
) -> None:
    other = store_entry(cache, tmp_path, 1)
    shutil.rmtree(entry_path(cache, other))
    entry_path(cache, key).rename(entry_path(cache, other))
    assert cache.get(other, into) is None
    assert [finding.what for finding in cache.findings()] == [f"the index belongs to {key}"]


def test_a_file_in_the_place_of_an_entry_is_dropped(
    cache: BuildCache, key: str, into: Path, tmp_path: Path
) -> None:
    shutil.rmtree(entry_path(cache, key))
    entry_path(cache, key).write_bytes(b"")
    cache.put(key, tmp_path / "source-0", tuple(FILES), DOCUMENT)
    assert cache.get(key, into) is None
    assert cache.dropped == 1
    assert not entry_path(cache, key).exists()


def test_damaged_entries_are_listed_and_pruned(cache: BuildCache, key: str) -> None:
    _cut(entry_path(cache, key) / "index.json")
    (entry,) = cache.entries()
    assert (entry.key, entry.kind, entry.files) == (key, "damaged", 0)
    assert cache.clear().removed == 1
    assert cache.entries() == []


def test_no_file_of_the_caller_is_replaced(cache: BuildCache, key: str, into: Path) -> None:
    mine = write(into, {"sub/deep/weights.bin": b"mine"})
    assert cache.get(key, into) is None
    assert contents_of(mine) == {"sub/deep/weights.bin": b"mine"}
    assert cache.dropped == 0
    assert [(finding.code, finding.what) for finding in cache.findings()] == [
        ("AOTC-R014", "the cache: File exists")
    ]


def test_the_first_of_a_key_stays(cache: BuildCache, key: str, into: Path, tmp_path: Path) -> None:
    cache.put(key, write(tmp_path / "other", {"a": b"a"}), ["a"], {"other": True})
    assert cache.get(key, into) == DOCUMENT
    assert len(cache.entries()) == 1


@pytest.mark.parametrize("path", ["../a", "/a", "a/../a", "", ".", "a//b", "a\nb"])
def test_paths_that_leave_the_folder_are_invalid(
    path: str, cache: BuildCache, tmp_path: Path
) -> None:
    write(tmp_path, {"a": b"a", "source/a": b"a"})
    with_path = tmp_path / "source"
    if "\n" in path or path == "a//b":
        shutil.rmtree(with_path)
        write(with_path, {path: b"a"})
    if path == "a/../a":
        (with_path / "a").unlink()
        write(with_path, {"a/x": b""})
        path = "a/../a/x"
    if path == "/a":
        path = str(tmp_path / "a")
    with pytest.raises(ValueError, match=r"files\[0\]\.path"):
        cache.put(cache.key(ARTIFACT, {}), with_path, [path], {})
    assert cache.entries() == []


def test_what_no_entry_can_hold(cache: BuildCache, tmp_path: Path) -> None:
    key = cache.key(ARTIFACT, {})
    for document in (None, {"a": 2**60}, {"a": {1, 2}}, {"a": float("nan")}):
        with pytest.raises(ValueError, match=r".+"):
            cache.put(key, tmp_path, [], document)
    with pytest.raises(ValueError, match=r"'\.\./a' is not a key"):
        cache.get("../a", tmp_path)
    with pytest.raises(ValueError, match="key"):
        cache.put("../a", tmp_path, [], {})


def test_a_source_that_cannot_be_read_is_a_finding(cache: BuildCache, tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"a": b"a"})
    (source / "link").symlink_to(source / "a")
    for name in ("absent", "link"):
        fresh = BuildCache(cache.folder)
        fresh.put(fresh.key(ARTIFACT, {"name": name}), source, ["a", name], {})
        (finding,) = fresh.findings()
        assert (finding.code, finding.where) == ("AOTC-R014", str(source / name))
    assert cache.entries() == []


def set_used(cache: BuildCache, key: str, seconds_ago: float) -> None:
    when = time.time() - seconds_ago
    os.utime(entry_path(cache, key) / "index.sha256", (when, when))


def test_what_was_used_longest_ago_goes_first(
    cache: BuildCache, tmp_path: Path, into: Path
) -> None:
    keys = [store_entry(cache, tmp_path, number, 10_000) for number in range(4)]
    for ago, key in zip((400, 300, 200, 100), keys, strict=True):
        set_used(cache, key, ago)
    assert cache.get(keys[0], into) == DOCUMENT
    assert [entry.key for entry in cache.entries()] == [keys[0], keys[3], keys[2], keys[1]]
    report = cache.prune(25_000)
    assert (report.removed, report.kept, report.leftovers) == (2, 2, 0)
    assert report.removed_bytes >= 20_000
    assert report.kept_bytes == sum(entry.bytes for entry in cache.entries())
    assert [entry.key for entry in cache.entries()] == [keys[0], keys[3]]
    assert cache.prune().removed == 0


def test_the_size_is_bounded_after_each_put(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache", limit_bytes=45_000)
    keys = []
    for number in range(6):
        keys.append(store_entry(cache, tmp_path, number, 10_000))
        assert sum(entry.bytes for entry in cache.entries()) <= 45_000
    assert [entry.key for entry in cache.entries()] == keys[:1:-1]


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "cache", limit_bytes=20_000)
    kept = store_entry(cache, tmp_path, 0, 10_000)
    cache.put(
        cache.key(ARTIFACT, {"number": 1}),
        write(tmp_path / "big", {"a": bytes(20_001)}),
        ["a"],
        {},
    )
    assert [entry.key for entry in cache.entries()] == [kept]
    assert cache.problem is not None
    assert cache.problem.code == "AOTC-R014"
    assert (cache.problem.expected, cache.problem.found) == ("at most 20000 bytes", "20001 bytes")
    # With its index it is too large: it is removed as well, and nothing else is left.
    cache.put(
        cache.key(ARTIFACT, {"number": 2}),
        write(tmp_path / "close", {"a": bytes(20_000)}),
        ["a"],
        {},
    )
    assert cache.entries() == []


def test_threads_share_a_cache(cache: BuildCache, tmp_path: Path, into: Path) -> None:
    def build(turn: int) -> bool:
        key = store_entry(cache, tmp_path / str(turn), turn % 2)
        return (
            cache.get(key, into / str(turn)) == DOCUMENT and contents_of(into / str(turn)) == FILES
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(build, range(24)))
    assert len(cache.entries()) == 2
    assert cache.findings() == ()


def test_concurrent_builds_and_prunes(cache: BuildCache, tmp_path: Path) -> None:
    builders = [start_job("build", cache, tmp_path / f"work-{number}") for number in range(3)]
    pruning = start_job("prune", cache, tmp_path)
    found = [finish_job(process) for process in builders]
    (tmp_path / "done").touch()
    pruner = finish_job(pruning)
    assert [job["wrong"] for job in found] == [0, 0, 0]
    assert [job["findings"] for job in (*found, pruner)] == [[], [], [], []]
    assert sum(job["hits"] for job in found) > 0
    assert pruner["removed"] > 0
    assert extra_names(cache) == ["lock"]
    assert {entry.kind for entry in cache.entries()} <= {PARTITION}


def test_a_build_that_is_killed_leaves_a_usable_cache(
    cache: BuildCache, key: str, into: Path, tmp_path: Path
) -> None:
    for _ in range(20):
        process = start_job("put", cache, tmp_path / "work")
        while not extra_names(cache)[0].startswith(folder.NEW):
            assert process.poll() is None
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        left = [name for name in extra_names(cache) if name.startswith(folder.NEW)]
        if left:
            break
    assert left
    assert cache.get(key, into) == DOCUMENT
    assert cache.folder is not None
    with folder.draft(cache.folder / "v1") as living:
        # An earlier release's, which does not say whose it is.
        (cache.folder / "v1" / ".new-0").mkdir()
        old = time.time() - 2 * folder.STALE_SECONDS
        os.utime(living, (old, old))
        store_entry(cache, tmp_path, 1)
        assert set(extra_names(cache)) == {"lock", living.name, ".new-0"}
        os.utime(cache.folder / "v1" / ".new-0", (old, old))
        assert cache.prune().leftovers == 1
        assert living.is_dir()
    assert extra_names(cache) == ["lock"]
    assert cache.get(key, into / "again") == DOCUMENT
    assert cache.dropped == 0


def test_clear_removes_half_written_folders_that_nobody_holds(cache: BuildCache, key: str) -> None:
    root = entry_path(cache, key).parents[1]
    (root / ".new-0").mkdir()
    (root / ".old-0").mkdir()
    with folder.draft(root) as living:
        report = cache.clear()
        assert (report.removed, report.leftovers, report.kept) == (1, 2, 0)
        assert extra_names(cache) == sorted(["lock", living.name])


def test_a_file_that_cannot_grow_further(cache: BuildCache, tmp_path: Path) -> None:
    """A write fails in the middle, as it does when a quota is used up."""
    found = finish_job(start_job("limited", cache, tmp_path / "work"))
    assert found["taken"] is None
    assert found["into"] == []
    assert found["get"] == [
        f"AOTC-R014 the cache: File too large [{tmp_path / 'work' / 'into' / 'big.bin'}]"
    ]
    assert found["put"].startswith("AOTC-R014 the cache: File too large [")
    assert found["entries"]
    assert found["dropped"] == 0
    assert extra_names(cache) == ["lock"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    copy = cache_folder.Copy(source, Path("/dev/full"), 1)
    with pytest.raises(AotcError) as caught:
        cache_folder._copy_span(cache_folder._Span(copy, 0, 1, shared=False))
    assert caught.value.line() == "AOTC-R014 the disk is full [/dev/full]"


def problem_of(cache: BuildCache, tmp_path: Path) -> AotcError:
    """Why a cache cannot be used: neither put nor get may raise."""
    key = cache.key(ARTIFACT, {})
    cache.put(key, write(tmp_path / "source", FILES), tuple(FILES), DOCUMENT)
    into = tmp_path / "empty"
    into.mkdir()
    assert cache.get(key, into) is None
    assert list(into.iterdir()) == []
    assert cache.problem is not None
    (finding,) = cache.findings()
    assert (finding.code, finding.where) == ("AOTC-R014", cache.problem.where)
    return cache.problem


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = BuildCache(tmp_path / "file" / "cache")
    assert problem_of(cache, tmp_path).code == "AOTC-R014"
    beside = BuildCache(tmp_path / "file")
    beside.put(beside.key(ARTIFACT, {}), tmp_path, [], {})
    assert beside.problem is not None
    with pytest.raises(AotcError) as caught:
        beside.entries()
    assert caught.value.line() == f"AOTC-R014 the cache is not a folder [{tmp_path / 'file'}]"


@contextmanager
def ordinary_user(folder: Path) -> Iterator[None]:
    """Become an ordinary user meanwhile, since root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        cache = BuildCache(work / "cache")
        key = store_entry(cache, work, 0)
        for path in (work / "cache" / "v1", work / "cache"):
            path.chmod(0o500)
        with ordinary_user(work):
            into = work / "into"
            into.mkdir()
            assert cache.get(key, into) == DOCUMENT
            assert cache.findings() == ()
            found = problem_of(cache, work)
        for path in (work / "cache", work / "cache" / "v1"):
            path.chmod(0o700)
    assert found.what == "the cache: Permission denied"


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    cache = BuildCache(tmp_path / "cache")
    found = problem_of(cache, tmp_path)
    assert (found.what, found.found) == ("others may write the cache", f"mode {mode:04o}")
    assert list((tmp_path / "cache").iterdir()) == []
    for refused in (cache.entries, cache.prune, cache.clear):
        with pytest.raises(AotcError) as caught:
            refused()
        assert caught.value.code == "AOTC-R014"


def test_what_was_there_is_not_trusted_once_others_may_write_it(
    cache: BuildCache, key: str, into: Path
) -> None:
    entry_path(cache, key).parents[1].chmod(0o777)
    assert cache.get(key, into) is None
    assert [finding.code for finding in cache.findings()] == ["AOTC-R014"]
    assert entry_path(cache, key).is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 12345, 12345)
    found = problem_of(BuildCache(tmp_path / "cache"), tmp_path)
    assert found.what == "the cache belongs to another user"
    assert found.found == "user 12345"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("above", [0, 1])
def test_an_entry_of_another_user_is_dropped(
    above: int, cache: BuildCache, key: str, into: Path, tmp_path: Path
) -> None:
    """A previous owner of the folder could store anything with digests that fit."""
    theirs = (entry_path(cache, key), *entry_path(cache, key).parents)[above]
    os.chown(theirs, 12345, 12345)
    assert cache.get(key, into) is None
    assert list(into.iterdir()) == []
    assert [finding.code for finding in cache.findings()] == ["AOTC-R015"]
    assert not entry_path(cache, key).exists()
    os.chown(theirs.parent if above == 0 else theirs, 0, 0)
    cache.put(key, tmp_path / "source-0", tuple(FILES), DOCUMENT)
    assert cache.get(key, into) == DOCUMENT


def test_folder_and_limit_follow_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path))
    monkeypatch.setenv("AOTC_CACHE_BYTES", "5000")
    cache = BuildCache()
    assert (cache.folder, cache.limit_bytes) == (tmp_path, 5000)
    monkeypatch.delenv("AOTC_CACHE")
    monkeypatch.delenv("AOTC_CACHE_BYTES")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = BuildCache()
    assert (cache.folder, cache.limit_bytes) == (tmp_path / "aotc" / "build", 10 * 2**30)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert BuildCache().folder == tmp_path / ".cache" / "aotc" / "build"


@pytest.mark.parametrize("stated", ["10GB", "-1", "9" * 5000])
def test_a_limit_that_is_not_a_number(
    stated: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AOTC_CACHE_BYTES", stated)
    found = problem_of(BuildCache(), tmp_path)
    assert (found.where, found.found) == ("AOTC_CACHE_BYTES", stated)
    with pytest.raises(AotcError, match="AOTC-R014"):
        BuildCache().entries()


def test_a_prune_that_does_not_end_is_named(
    cache: BuildCache, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_LOCK_SECONDS", 0.05)
    with (
        folder.locked_for_pruning(entry_path(cache, key).parents[1]),
        pytest.raises(AotcError) as caught,
    ):
        cache.prune()
    assert caught.value.what == "another process holds the lock"
    assert cache.prune().kept == 1


def test_errors_of_the_process_are_not_damage(cache: BuildCache, key: str, into: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        document = cache.get(key, into)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert document is None
    assert cache.dropped == 0
    assert cache.problem is not None
    assert os.strerror(errno.EMFILE) in cache.problem.what
    assert cache.get(key, into) == DOCUMENT


def sorted_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def test_the_key_is_the_same_for_ever(tmp_path: Path) -> None:
    parts = {"model": "4c" * 32, "options": {"threads": 4, "ratio": 0.5}, "passes": ["a", "b"]}
    text = (
        b'{"format":1,"kind":"artifact","parts":{"model":"'
        + b"4c" * 32
        + b'","options":{"ratio":0.5,"threads":4},"passes":["a","b"]}}'
    )
    assert BuildCache(tmp_path).key(ARTIFACT, parts) == hashlib.sha256(text).hexdigest()


@given(PARTS, st.randoms())
def test_the_order_of_parts_does_not_matter(parts: dict[str, Any], random: Any) -> None:
    cache = BuildCache(Path("nowhere"))
    shuffled = list(parts.items())
    random.shuffle(shuffled)
    assert cache.key(ARTIFACT, dict(shuffled)) == cache.key(ARTIFACT, parts)


@given(PARTS, PARTS)
def test_other_parts_have_another_key(one: dict[str, Any], two: dict[str, Any]) -> None:
    cache = BuildCache(Path("nowhere"))
    same = sorted_json(one) == sorted_json(two)
    assert (cache.key(ARTIFACT, one) == cache.key(ARTIFACT, two)) == same
    assert cache.key(ARTIFACT, one) != cache.key(PARTITION, one)


@given(PARTS, st.text(max_size=6), JSON)
def test_a_part_more_is_another_key(parts: dict[str, Any], name: str, value: Any) -> None:
    cache = BuildCache(Path("nowhere"))
    more = parts | {name: value}
    same = sorted_json(more) == sorted_json(parts)
    assert (cache.key(PARTITION, more) == cache.key(PARTITION, parts)) == same


NAMES = st.text("abcXYZ019 ._-é", min_size=1, max_size=8).filter(lambda name: name.strip("."))


@settings(max_examples=30)
@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=4), JSON)
def test_whatever_is_put_comes_back(files: dict[str, bytes], document: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        cache = BuildCache(work / "cache")
        key = cache.key(PARTITION, {"files": sorted(files)})
        (work / "source").mkdir()
        cache.put(key, write(work / "source", files), tuple(files), {"document": document})
        assert cache.get(key, work / "into") == {"document": document}
        assert cache.findings() == ()
        assert contents_of(work / "into") == files
