"""`aotc pull` into a store, and curl and then sha256sum of the same blobs, by turns.

    python -m benchmarks.registry.pull [--form modelpack] [--rounds 5] [--smoke]
    python -m benchmarks.registry.pull --artifact ARTIFACT --key PUBLIC-KEY ...

The registry is Debian's docker-registry on loopback, and its files are in the page cache.  A pull
verifies the signature and all digests, and writes all of it to the disk before the entry has its
name; curl leaves that to the system, so the same followed by `sync` stands beside.  Some builds of
sha256sum do not use the processor's SHA instructions: openssl, which does, stands beside as well.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import table
from benchmarks.fresh import AOTC, ROOT
from benchmarks.result import Result, Row, at_most, ratio_of_medians, unjudged
from benchmarks.workshop import Progress, Workshop

TIME_LIMIT = 1.25
MEMORY_LIMIT = 80_000_000
_NAME = "bench/model"


@dataclass(frozen=True, slots=True)
class _Ran:
    seconds: float
    peak: int
    """The maximum resident set size in bytes."""


def measure(
    artifact: Path, public: Path, form: str, rounds: int, folder: Path, progress: Progress
) -> Result:
    """Seconds of each side by round, and the peak of the pulls; all files are below `folder`."""
    payload = (artifact / "payload").rglob("*")
    size = sum(path.stat().st_size for path in payload if path.is_file())
    samples: dict[str, list[float]] = {
        side: [] for side in ("pull", "curl, sha256sum", "curl, sha256sum, sync", "curl, openssl")
    }
    samples["memory"] = []
    with (
        tempfile.TemporaryDirectory(prefix="registry-", dir=folder) as name,
        _registry(Path(name)) as host,
    ):
        reference = f"oci://{host}/{_NAME}:1"
        progress("push")
        _timed([[str(AOTC), "push", str(artifact), reference, "--form", form, "--json"]])
        urls = _blobs(host)
        for index in range(rounds + 1):
            progress(f"round {index}")
            sides = ["pull", "curl"][:: 1 if index % 2 else -1]
            for side in sides:
                found = (
                    _pull(reference, public, Path(name) / "store")
                    if side == "pull"
                    else _curl(urls, Path(name) / "files")
                )
                # The first round fills the page cache.
                for what, value in found.items() if index else ():
                    samples[what].append(value)
    return Result(rows=tuple(_rows(samples, f"{size / 1e9:.1f} GB")), samples=samples)


def _pull(reference: str, public: Path, store: Path) -> dict[str, float]:
    # What the other side left to the system is no load of this one.
    os.sync()
    words = ["--key", str(public), "--store", str(store), "--json"]
    ran = _timed([[str(AOTC), "pull", reference, *words]])
    for each in (store, *store.rglob("*")):
        if each.is_dir():
            each.chmod(0o700)
    shutil.rmtree(store)
    return {"pull": ran.seconds, "memory": float(ran.peak)}


def _curl(urls: Sequence[str], folder: Path) -> dict[str, float]:
    os.sync()
    folder.mkdir()
    files = [str(folder / str(number)) for number in range(len(urls))]
    words = [word for pair in zip(files, urls, strict=True) for word in ("-o", *pair)]
    fetched = _timed([["curl", "--silent", "--show-error", "--fail", *words]])
    summed = _timed([["sha256sum", "--binary", *files]])
    synced = _timed([["sync", "--file-system", str(folder)]])
    openssl = _timed([["openssl", "dgst", "-sha256", *files]])
    shutil.rmtree(folder)
    plain = fetched.seconds + summed.seconds
    return {
        "curl, sha256sum": plain,
        "curl, sha256sum, sync": plain + synced.seconds,
        "curl, openssl": fetched.seconds + openssl.seconds,
    }


def _timed(commands: Sequence[list[str]]) -> _Ran:
    started = time.perf_counter()
    peak = 0
    for command in commands:
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        # Linux counts kilobytes.
        peak = max(peak, used.ru_maxrss * 1024)
    return _Ran(time.perf_counter() - started, peak)


def _blobs(host: str) -> list[str]:
    """The addresses of all layers of what was pushed."""
    base = f"http://{host}/v2/{_NAME}"
    accept = "Accept: application/vnd.oci.image.manifest.v1+json"
    printed = subprocess.run(
        ["curl", "--silent", "--fail", "-H", accept, f"{base}/manifests/1"],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return [f"{base}/blobs/{layer['digest']}" for layer in json.loads(printed)["layers"]]


@contextmanager
def _registry(folder: Path) -> Iterator[str]:
    """The address of a registry whose files are in `folder`."""
    stated = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": "127.0.0.1:0"},
    }
    # JSON is YAML.
    (folder / "registry.yml").write_text(json.dumps(stated))
    log = folder / "registry.log"
    with (
        log.open("wb") as written,
        subprocess.Popen(
            ["docker-registry", "serve", str(folder / "registry.yml")],
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        ) as process,
    ):
        try:
            while not (found := re.search(r"listening on (127\.0\.0\.1:\d+)", log.read_text())):
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.01)
            yield found[1]
        finally:
            process.kill()


def _rows(samples: dict[str, list[float]], title: str) -> Iterator[Row]:
    for side, limit in (
        ("curl, sha256sum", TIME_LIMIT),
        ("curl, sha256sum, sync", None),
        ("curl, openssl", None),
    ):
        what = f"{title}: seconds of aotc pull into a store to {side}"
        ratio = ratio_of_medians(samples["pull"], samples[side])
        detail = " to ".join(f"{median(samples[each]):.2f} s" for each in ("pull", side))
        yield at_most(what, ratio, limit, detail) if limit else unjudged(what, ratio, detail)
    peak = max(samples["memory"])
    yield Row(
        what=f"{title}: resident memory of aotc pull, at most",
        asked=f"≤ {MEMORY_LIMIT / 1e6:.0f} MB",
        measured=f"{peak / 1e6:.0f} MB",
        held=peak <= MEMORY_LIMIT,
    )


def main() -> int:
    """0 if all limits were met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, help="in place of the one that is built: 4.3 GB")
    parser.add_argument("--key", type=Path, help="the public key of who signed it")
    parser.add_argument("--form", default="modelpack", choices=("modelpack", "image"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="a small model, to try the program")
    given = parser.parse_args()
    folder = ROOT / "build" / ("bench-smoke" if given.smoke else "bench")
    workshop = Workshop(folder, given.smoke, lambda text: print(f"   … {text}", flush=True))
    folder.mkdir(parents=True, exist_ok=True)
    artifact = given.artifact or workshop.artifact("dense4", "edge")
    result = measure(
        artifact,
        given.key or workshop.key()[1],
        given.form,
        given.rounds,
        workshop.folder,
        workshop.progress,
    )
    table.keep_result(folder / "results", f"pull-{given.form}", "Pulling", result)
    for row in result.rows:
        verdict = {True: "yes", False: "NO ", None: "   "}[row.held]
        print(f"{verdict} {row.what}: {row.measured} {row.asked}", flush=True)
    return 0 if all(row.held is not False for row in result.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
