"""From a store that the loading user cannot write to the first answer, and a plain session.

The artifact is installed by root; it was verified then and is not hashed again.  Each sample is a
fresh process that has imported all modules, and has become a user without any files, before its
clock starts; the plain session on the original runs in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.fresh import import_all, run_fresh
from benchmarks.result import Result, Row, at_most, milliseconds, ratio_of_medians, unjudged
from benchmarks.rows.load import inputs, plain_times, signed_times
from benchmarks.workshop import Workshop

ASKED: Mapping[str, float] = {"resnet50": 0.45, "bert": 0.75}
ROUNDS = 9
# The user and group `nobody`, who owns no file.
NOBODY = 65534


def run(workshop: Workshop) -> Result:
    """Measure the plain session, the system-wide store and the user's store alternately."""
    if os.geteuid() != 0:
        row = Row(what="store that the loading user cannot write", measured="needs root to install")
        return Result(rows=(row,))
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    for name, limit in ASKED.items():
        found = _measure(workshop, name)
        samples |= {f"{name} {what}": values for what, values in found.items()}
        rows += _rows(workshop.model(name).title, found, limit)
    return Result(rows=tuple(rows), samples=samples)


def _measure(workshop: Workshop, name: str) -> dict[str, list[float]]:
    from aotc.runtime.store.installing import install
    from aotc.runtime.store.pruning import prune
    from aotc.trust.key_loading import load_public

    model = workshop.model(name)
    system = workshop.folder / "system-store"
    public = workshop.key()[1]
    workshop.progress(f"install {model.title}")
    installed = install(
        workshop.artifact(name, "server-cpu"), load_public(public), store=system
    ).folder
    request: dict[str, Any] = {
        "artifact": installed,
        "key": str(public),
        "model": str(model.path),
        "name": name,
        "smoke": workshop.smoke,
        "modules": [],
    }
    request["modules"] = run_fresh("rows.system_store:modules", request, store=workshop.store)
    found: dict[str, list[float]] = {}
    # Round 0 fills the page cache, and is not counted.
    for index in range(workshop.rounds(ROUNDS) + 1):
        workshop.progress(f"{model.title}, round {index}")
        for side, store in (("plain", None), ("system", system), ("user", workshop.store)):
            function = "rows.system_store:plain" if store is None else "rows.system_store:signed"
            seconds = run_fresh(function, request | {"nobody": side != "user"}, store=store)
            for what, value in seconds.items() if index else ():
                found.setdefault(f"{side} {what}", []).append(value)
    prune(system, limit=0)
    return found


def _rows(title: str, found: Mapping[str, list[float]], limit: float) -> list[Row]:
    def detail(side: str) -> str:
        ours, theirs = (median(found[f"{name} total"]) for name in (side, "plain"))
        parts = ", ".join(
            f"{part} {milliseconds(median(found[f'{side} {part}']))}"
            for part in ("verify", "session", "warm-up", "run")
        )
        return f"{milliseconds(ours)} to {milliseconds(theirs)}; {parts}"

    def ratio(side: str) -> float:
        return ratio_of_medians(found[f"{side} total"], found["plain total"])

    return [
        at_most(
            f"{title}: store that this user cannot write to first answer",
            ratio("system"),
            limit,
            detail("system"),
        ),
        unjudged(
            f"{title}: the same from this user's own store, hashed again",
            ratio("user"),
            detail("user"),
        ),
    ]


def modules(request: dict[str, Any]) -> list[str]:
    """In a fresh process: the modules that a load and a run import."""
    import sys

    signed(request | {"nobody": False})
    plain(request | {"nobody": False})
    return [name for name in sys.modules if name != "__main__"]


def plain(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: a session with ONNX Runtime's defaults, and its first run."""
    return plain_times(request["model"], _prepare(request))


def signed(request: dict[str, Any]) -> dict[str, float]:
    """In a fresh process: load from the store, and the first run."""
    given = _prepare(request)
    options = {"key": request["key"], "variant": "native", "store": os.environ["AOTC_STORE"]}
    seconds, hashed = signed_times(request["artifact"], given, options)
    if hashed is request["nobody"]:
        raise RuntimeError("the digests were checked where they should not be, or not")
    return seconds


def _prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Import, make the inputs, and become nobody if requested."""
    import_all(request["modules"])
    from aotc.providers.ort import import_onnxruntime

    import_onnxruntime()
    given = inputs(request)
    if request["nobody"]:
        os.environ["HOME"] = "/nonexistent"
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    return given
