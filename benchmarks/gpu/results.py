"""Results as lines of JSON: each is kept at once, a later one of the same case replaces it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fresh import ROOT
from benchmarks.gpu.cases import ROWS

KEPT = ROOT / "benchmarks" / "data" / "gpu.jsonl"
# Of answers in each precision, to those of a plain session, as a share of the largest value.
BOUNDS = {"float16": 2e-2, "tf32": 5e-2, "keep": 1e-3}
# Rows that measure networks without a graph too, as they are served.
UNCAPTURED_TOO = ("calls", "kernels", "chains")
# The case of the row `overhead` that captures nothing.
WITHOUT_GRAPHS = "without graphs"
Record = dict[str, Any]
Key = tuple[str, str]


def key_of(record: Mapping[str, Any]) -> Key:
    """What is measured, and at which case."""
    return record["row"], record["case"]


def why_failed(record: Mapping[str, Any]) -> str:
    """Why a record does not count; "" if it does.

    Nothing was measured; the answers differ by more than `BOUNDS`, as a share of the largest value;
    or a call that was to replay a captured graph did not, where that is what is measured.
    """
    if "failed" in record:
        return str(record["failed"])
    difference = record.get("difference", 0.0)
    bound = BOUNDS[record["case"].split("/")[1]] if "difference" in record else math.inf
    if not difference <= bound:
        return f"the answers differ by {difference:.2g} of the largest value, more than {bound:g}"
    captured = record.get("captured", True) or record["case"] == WITHOUT_GRAPHS
    if not captured and record["row"] not in UNCAPTURED_TOO and "gpu" in record.get("machine", {}):
        return "no captured graph was replayed"
    return ""


def marked(records: Sequence[Record]) -> list[Record]:
    """The records, with a `mark` for those that do not compare with most.

    They are of other sources than the newest, which are named with the date, or of another GPU than
    most records are.
    """
    if not records:
        return []
    newest = max(records, key=lambda record: str(record["at"]))["sources"]
    ((usual, _),) = Counter(map(_gpu, records)).most_common(1)
    found = []
    for record in records:
        what = []
        if record["sources"] != newest:
            what.append(f"sources {record['sources']}, {record['at'][:10]}")
        if _gpu(record) != usual:
            what.append(_gpu(record))
        found.append({**record, "mark": f" ({', '.join(what)})"} if what else record)
    return found


def _gpu(record: Mapping[str, Any]) -> str:
    return str(record["machine"].get("gpu", "no GPU"))


def append(path: Path, record: Record) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")


def read(path: Path) -> list[Record]:
    """The lines of a file; none if there is no such file, and a torn last line is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            # A process that was killed leaves half a line; the next one may have added to it.
            print(f"{path}: line {number} is not JSON and is left out", flush=True)
    return found


def merged(records: Iterable[Record]) -> dict[Key, Record]:
    """The last record of each case that did not fail; the last failure where all failed."""
    found: dict[Key, Record] = {}
    for record in records:
        earlier = found.get(key_of(record))
        if earlier is None or not why_failed(record) or why_failed(earlier):
            found[key_of(record)] = record
    return found


def done(records: Iterable[Record], sources: str) -> set[Key]:
    """Cases that the current sources have measured."""
    return {
        key
        for key, record in merged(r for r in records if r["sources"] == sources).items()
        if not why_failed(record)
    }


def keep(files: Iterable[Path], kept: Path = KEPT) -> list[Record]:
    """Merge the lines of `files` into `kept`, sorted; returns all of them.

    What rows measured that are there no more is left out.
    """
    records = [record for path in (kept, *files) for record in read(path)]
    known = [record for record in records if record["row"] in ROWS]
    found = [record for _, record in sorted(merged(known).items())]
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(".partial")
    text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in found)
    partial.write_text(text, encoding="utf-8")
    partial.replace(kept)
    return found
