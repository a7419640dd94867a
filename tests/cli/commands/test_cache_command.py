"""`aotc cache`: what it lists and removes, and what it says of a cache that cannot be used."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotc.base.errors import AotcError
from aotc.cli import main as cli
from aotc.cli import terminal
from aotc.pipeline.cache import ARTIFACT, PARTITION, BuildCache
from aotc.report.sheets import stores
from aotc.spec.command_reports import CacheEntry, CacheListReport, PruneReport

SNAPSHOTS = Path(__file__).parent / "cache_snapshots"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildCache:
    monkeypatch.setenv("AOTC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AOTC_CACHE_BYTES", raising=False)
    return BuildCache()


def stored(cache: BuildCache, work: Path, kind: str, size: int) -> str:
    key = cache.key(kind, {"size": size})
    (work / "a").write_bytes(bytes(size))
    cache.put(key, work, ["a"], {})
    assert cache.findings() == ()
    return key


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main(["cache", *words, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    document = json.loads(shown.out)
    assert isinstance(document, dict)
    return document


def test_list_prune_and_clear(
    cache: BuildCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(capsys, "list") == {
        "schema": "aotc.cache-list/1",
        "folder": str(tmp_path / "cache"),
        "limit_bytes": 10 * 2**30,
        "bytes": 0,
        "entries": [],
    }
    first = stored(cache, tmp_path, ARTIFACT, 30_000)
    second = stored(cache, tmp_path, PARTITION, 20_000)
    listed = answer(capsys, "list")
    assert [(each["key"], each["kind"], each["files"]) for each in listed["entries"]] == [
        (second, PARTITION, 1),
        (first, ARTIFACT, 1),
    ]
    assert listed["bytes"] == sum(each["bytes"] for each in listed["entries"]) > 50_000
    assert answer(capsys, "prune")["removed"] == 0
    pruned = answer(capsys, "prune", "--limit", "40000")
    assert (pruned["schema"], pruned["removed"], pruned["kept"]) == ("aotc.cache-prune/1", 1, 1)
    assert pruned["removed_bytes"] + pruned["kept_bytes"] == listed["bytes"]
    assert [each["key"] for each in answer(capsys, "list")["entries"]] == [second]
    assert answer(capsys, "clear")["removed"] == 1
    assert answer(capsys, "list")["entries"] == []


def test_prune_keeps_to_the_stated_limit(
    cache: BuildCache,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored(cache, tmp_path, ARTIFACT, 30_000)
    monkeypatch.setenv("AOTC_CACHE_BYTES", "20000")
    assert answer(capsys, "list")["limit_bytes"] == 20_000
    assert answer(capsys, "prune")["removed"] == 1


@pytest.mark.parametrize("words", [["list"], ["prune"], ["clear"]])
def test_a_cache_that_cannot_be_used(
    words: list[str], cache: BuildCache, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cache.folder is not None
    cache.folder.mkdir()
    cache.folder.chmod(0o777)
    assert cli.main(["cache", *words]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "error: AOTC-R014 cache cannot be used\n"
        "  what:     others may write the cache\n"
        f"  where:    {cache.folder}\n"
        "  expected: not writable by group or others\n"
        "  found:    mode 0777\n"
        "  fix:      Take a folder of your own (AOTC_CACHE), or look at what is in this one, "
        f"then: chmod go-w {cache.folder}\n"
    )


@pytest.mark.parametrize("limit", ["-1", "2 gigabytes", "2gB", "", "9" * 40])
def test_a_limit_that_is_not_a_number(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "prune", f"--limit={limit}"]) == 2
    assert f"argument --limit: {limit!r} is not a size such as" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("2kB", 2000), ("3MB", 3 * 10**6), ("1GiB", 1 << 30)]
)
def test_a_limit_with_its_unit(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []

    def prune(self: BuildCache, limit: int | None = None) -> PruneReport:
        seen.append(limit)
        return PruneReport(folder="", removed=0, removed_bytes=0, kept=0, kept_bytes=0, leftovers=0)

    monkeypatch.setattr(BuildCache, "prune", prune)
    assert cli.main(["cache", "prune", "--limit", text, "--json"]) == 0
    assert seen == [size]


def test_a_limit_in_the_environment_that_is_no_number(
    cache: BuildCache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTC_CACHE_BYTES", "much")
    assert cli.main(["cache", "list", "--json"]) == 3
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert (error["code"], error["where"]) == ("AOTC-R014", "AOTC_CACHE_BYTES")
    assert error["fix"] != AotcError("AOTC-R014", "").fix


def list_text() -> list[Any]:
    rows = (("3f" * 32, "artifact", 110_000_833, 12), ("a1" * 32, "partition", 1_204, 1))
    entries = tuple(
        CacheEntry(
            key=key,
            kind=kind,
            bytes=size,
            created_at="2026-03-01T09:00:00+00:00",
            used_at="2026-03-02T10:30:00+00:00",
            files=files,
        )
        for key, kind, size, files in rows
    )
    answer = CacheListReport(
        folder="/home/me/.cache/aotc/build",
        limit_bytes=10 * 2**30,
        bytes=sum(each.bytes for each in entries),
        entries=entries,
    )
    return stores.cache_view(answer)


def prune_text() -> list[Any]:
    return stores.pruned_cache_view(
        PruneReport(
            folder="/home/me/.cache/aotc/build",
            removed=3,
            removed_bytes=2_400_000,
            leftovers=1,
            kept=2,
            kept_bytes=1_000_000,
        )
    )


def shown(parts: Callable[[], list[Any]]) -> str:
    stream = io.StringIO()
    terminal.show_sheet(parts(), file=stream)
    return stream.getvalue()


def help_text(*words: str) -> str:
    stream, sys.stdout = sys.stdout, io.StringIO()
    try:
        assert cli.main(["cache", *words, "--help"]) == 0
        return sys.stdout.getvalue()
    finally:
        sys.stdout = stream


TEXTS: dict[str, Callable[[], str]] = {
    "cache_list": lambda: shown(list_text),
    "cache_prune": lambda: shown(prune_text),
    "cache_help": lambda: "\n".join(
        help_text(*words) for words in ((), ("list",), ("prune",), ("clear",))
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = TEXTS[name]()
    snapshot = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("AOTC_UPDATE_SNAPSHOTS"):
        snapshot.write_text(text, encoding="utf-8")
    assert text == snapshot.read_text("utf-8")
