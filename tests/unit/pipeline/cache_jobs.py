"""Jobs that separate processes run on one build cache."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from pathlib import Path

from file_bytes import contents_of

from aotc.pipeline.cache import BuildCache


def content(number: int) -> dict[str, bytes]:
    """The files of the entry of that number."""
    return {"a.bin": bytes([number]) * 200_000, "sub/b.bin": bytes([number, 1]) * 30_000}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def build(cache: BuildCache, work: Path, rounds: int) -> dict[str, int]:
    """Read entries that exist, write those that do not; what was read must be correct."""
    hits = wrong = 0
    for turn in range(rounds):
        number = turn % 4
        key = cache.key("partition", {"number": number})
        into = work / f"into-{turn}"
        into.mkdir()
        document = cache.get(key, into)
        if document is None:
            wrong += contents_of(into) != {}
            source = write(work / f"source-{turn}", content(number))
            cache.put(key, source, tuple(content(number)), {"number": number})
        else:
            hits += 1
            wrong += document != {"number": number} or contents_of(into) != content(number)
        shutil.rmtree(into)
    return {"hits": hits, "wrong": wrong, "dropped": cache.dropped}


def prune(cache: BuildCache, work: Path) -> dict[str, int]:
    """Prune repeatedly, to two entries, then to none, until the other jobs are done."""
    removed = turn = 0
    while not (work / "done").exists() or turn == 0:
        removed += (cache.prune(600_000) if turn % 3 else cache.clear()).removed
        cache.entries()
        time.sleep(0.002)
        turn += 1
    return {"removed": removed, "dropped": cache.dropped}


def write_forever(cache: BuildCache, work: Path) -> None:
    """Put one entry after another until the process is killed."""
    source = write(work, {"big.bin": bytes(24 << 20)})
    turn = 0
    while True:
        cache.put(cache.key("partition", {"turn": turn}), source, ["big.bin"], {})
        turn += 1


def limited(cache: BuildCache, work: Path) -> dict[str, object]:
    """Write and read while the operating system limits the size of a file."""
    source = write(work / "source", {"small.bin": b"x", "big.bin": bytes(1 << 20)})
    (work / "into").mkdir()
    first, second = (cache.key("artifact", {"number": number}) for number in (1, 2))
    cache.put(first, source, ["small.bin", "big.bin"], {"number": 1})
    assert cache.problem is None
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
    taken = cache.get(first, work / "into")
    after_get = [problem.line() for problem in (cache.problem,) if problem is not None]
    again = BuildCache(cache.folder)
    again.put(second, source, ["small.bin", "big.bin"], {"number": 2})
    return {
        "taken": taken,
        "into": sorted(path.name for path in (work / "into").iterdir()),
        "get": after_get,
        "put": again.problem.line() if again.problem is not None else "",
        "entries": [entry.key for entry in again.entries()] == [first],
        "dropped": cache.dropped,
    }


def main(job: str, folder: str, work: str) -> None:
    cache, work_folder = BuildCache(Path(folder)), Path(work)
    work_folder.mkdir(exist_ok=True)
    answer: dict[str, object] = {}
    if job == "build":
        answer |= build(cache, work_folder, 80)
    elif job == "prune":
        answer |= prune(cache, work_folder)
    elif job == "limited":
        answer |= limited(cache, work_folder)
    else:
        write_forever(cache, work_folder)
    answer["findings"] = [finding.what for finding in cache.findings()]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
