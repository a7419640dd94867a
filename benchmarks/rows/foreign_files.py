"""What the care for files of others costs: counting a model before it is parsed, and junk.

Counting is compared with the stage of a build that imports the model; of junk, it is the processor
time that the check of one more file takes, of this process and of those that it starts.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from aotc.fleet.check_models import check_models
from aotc.graph.wire_count import refuse_costly
from benchmarks.fresh import run_fresh
from benchmarks.result import Result, Row, at_most
from benchmarks.workshop import Workshop

BUILDS, ROUNDS = 3, 15
MODELS = ("squeezenet", "bert")
SHARE_LIMIT = 0.02
# Seconds of a file that is no model, beyond the start.
JUNK, JUNK_LIMIT = 100, 0.03


def run(workshop: Workshop) -> Result:
    """Each model's count and import in turn; then folders with one file and with many."""
    samples: dict[str, list[float]] = {}
    rows = [_counted(name, workshop, samples) for name in MODELS]
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_junk(Path(folder) / str(count), count) for count in (1, JUNK + 1))
        for _ in range(workshop.rounds(ROUNDS)):
            seconds = [_checked(each) for each in (few, many)]
            samples.setdefault("a file of junk", []).append((seconds[1] - seconds[0]) / JUNK)
    each = median(samples["a file of junk"])
    detail = f"{each * 1e3:.1f} ms"
    rows.append(at_most("check-models: a file of junk, in seconds", each, JUNK_LIMIT, detail))
    return Result(rows=tuple(rows), samples=samples)


def _counted(name: str, workshop: Workshop, samples: dict[str, list[float]]) -> Row:
    model = workshop.model(name)
    data = model.path.read_bytes()
    counts, imports = (samples.setdefault(f"{name}: {what}", []) for what in ("count", "import"))
    for _ in range(workshop.rounds(BUILDS)):
        report = run_fresh("workshop:build", workshop.build_request(name, "edge"))
        imports.append(report["stages"]["import"])
        started = time.process_time()
        refuse_costly(data, name)
        counts.append(time.process_time() - started)
    share = median(count / whole for count, whole in zip(counts, imports, strict=True))
    detail = f"{median(counts) * 1e3:.2f} of {median(imports) * 1e3:.0f} ms"
    return at_most(f"Counting {model.title}, of its import", share, SHARE_LIMIT, detail)


def _junk(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        content = (b"", b"<html></html>", os.urandom(5000), b"\x08\x07" * 1000)[number % 4]
        (folder / f"{number}.onnx").write_bytes(content)
    return folder


def _checked(folder: Path) -> float:
    def used() -> float:
        both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(each.ru_utime + each.ru_stime for each in both)

    before = used()
    check_models(folder)
    return used() - before
