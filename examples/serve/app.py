"""A server of one artifact, which takes a new one without a restart.

    AOTC_ARTIFACT=digits.aotc AOTC_TRUST=release.pub uvicorn app:app --workers 2

Each worker loads the artifact after it was started, and looks every second whether another one
lies at that path, or other keys at that of the trust. What has changed is loaded and warmed beside
the one that answers, and takes its place; what is refused is told in the log, and changes nothing.

    POST /predict          {"inputs": {NAME: ARRAY, …}, "outputs": [NAME, …]}
    GET  /healthz/live     200 as long as the process answers
    GET  /healthz/ready    200 once a model answers; 503 before, and where none could be loaded
    GET  /metrics          for Prometheus, of all workers where PROMETHEUS_MULTIPROC_DIR names an
                           empty folder

AOTC_ARTIFACT  a folder, a link to one, a packed file, or `sha256-<id>` of an artifact in a store
AOTC_TRUST     a public key or a trust policy; without it, this user's development key
AOTC_NAME      what logs and metrics call the model (default: the artifact's name)
AOTC_THREADS   threads of one operator (default 1)
AOTC_CALLS     calls at once in each worker (default 4); others wait
AOTC_BODY      bytes of the largest request (default 16 MiB); a larger one is 413
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import multiprocess
from pydantic import BaseModel

import aotc

ARTIFACT = os.environ.get("AOTC_ARTIFACT", "model.aotc")
TRUST = os.environ.get("AOTC_TRUST") or None
NAME = os.environ.get("AOTC_NAME") or None
THREADS = int(os.environ.get("AOTC_THREADS", "1"))
CALLS = int(os.environ.get("AOTC_CALLS", "4"))
BODY = int(os.environ.get("AOTC_BODY", str(16 << 20)))
# Seconds between two looks at the artifact, and between two loads while no model answers.
LOOK, RETRY = 1.0, 10.0
# What `run` refuses for reasons of the host. Everything else is about the caller's inputs.
OURS = {"AOTC-M004", "AOTC-R005", "AOTC-R024", "AOTC-R026"}

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(process)d %(name)s: %(message)s")
log = logging.getLogger("serve")


class Served:
    """The model that answers, and how another takes its place."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="artifact")
        self._model: aotc.Model | None = None
        self._calls: dict[int, int] = {}
        self.refusal: aotc.AotcError | None = None

    @property
    def ready(self) -> bool:
        """Whether a model answers."""
        model = self._model
        return model is not None and model.ready

    @contextmanager
    def model(self) -> Iterator[aotc.Model]:
        """The model that answers, which stays open meanwhile; raises NotReady if there is none."""
        with self._changed:
            model = self._model
            if model is None:
                raise NotReady
            self._calls[id(model)] = self._calls.get(id(model), 0) + 1
        try:
            yield model
        finally:
            with self._changed:
                self._calls[id(model)] -= 1
                self._changed.notify_all()

    def start(self) -> None:
        """Load the artifact, and follow what lies at its path, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after a load that has begun, and close the model after its last call."""
        self._stopped.set()
        self._thread.join()
        self._swap(None)

    def _watch(self) -> None:
        tried, again, before = None, 0.0, state_of(ARTIFACT, TRUST)
        while not self._stopped.is_set():
            seen = state_of(ARTIFACT, TRUST)
            due = seen != tried or (not self.ready and time.monotonic() >= again)
            # At rest: nobody is copying it any more.
            if due and seen == before:
                self._load()
                tried, again = seen, time.monotonic() + RETRY
            before = seen
            self._stopped.wait(LOOK)

    def _load(self) -> None:
        """Verify, load and warm the artifact beside the model that answers, and swap them."""
        try:
            model = aotc.load(ARTIFACT, trust=TRUST, name=NAME, threads=THREADS)
        except aotc.AotcError as error:
            self.refusal = error
            for each in (error, *error.also):
                log.error("refused: %s", each.line())
            log.error("%s", "the model before answers on" if self.ready else "no model answers")
            return
        except Exception:
            # This thread has to live on: no other follows the artifact.
            log.exception("the artifact could not be loaded")
            return
        self.refusal = None
        self._swap(model)
        log.info("%s answers from now on", model)

    def _swap(self, model: aotc.Model | None) -> None:
        with self._changed:
            old, self._model = self._model, model
            if old is None:
                return
            self._changed.wait_for(lambda: not self._calls.get(id(old)))
            self._calls.pop(id(old), None)
        old.close()


class NotReady(Exception):
    """No model answers yet."""


def state_of(*paths: str | None) -> list[tuple[str, int, int, int]]:
    """What differs once other files lie at `paths`, or behind links there; they are not read."""
    found = []
    for place in filter(None, paths):
        # What vanishes meanwhile is passed over.
        files = (Path(top, name) for top, _, names in os.walk(place) for name in names)
        for each in (Path(place), *files):
            with suppress(OSError):
                stat = each.stat()
                found.append((str(each), stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


class Call(BaseModel):
    """The body of a request."""

    inputs: dict[str, Any]
    outputs: list[str] | None = None


class Answer(BaseModel):
    """The arrays of the outputs; what is no number in JSON (NaN, infinities) is null."""

    outputs: dict[str, Any]


def arrays(model: aotc.Model, given: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs as arrays of the model's types; raises AOTC-R002 for what is no array of one."""
    dtypes = {value.name: value.dtype for value in model.inputs}
    found = {}
    for name, value in given.items():
        dtype = dtypes.get(name)
        try:
            found[name] = np.asarray(value, object if dtype == "string" else dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise aotc.AotcError(
                "AOTC-R002",
                f"input {name!r} is no array of the model's type",
                where=f"input {name}",
                expected=f"{dtype} array",
                found=str(error),
            ) from None
    return found


metrics = aotc.PrometheusMetrics()
served = Served()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """In each worker, after it was forked or started: load meanwhile, and answer `not ready`."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = CALLS
    served.start()
    yield
    # The server has answered what it took.
    served.stop()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        # Of a worker that has ended, what it counted remains, and what it was does not.
        multiprocess.mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]


app = FastAPI(title="aotc", lifespan=lifespan, max_body_size=BODY)


@app.post("/predict")
def predict(call: Call) -> Answer:
    """Run the model, in one of CALLS threads: `run` blocks, and releases the interpreter."""
    with served.model() as model:
        outputs = model.run(arrays(model, call.inputs), call.outputs)
    return Answer(outputs={name: value.tolist() for name, value in outputs.items()})


@app.get("/healthz/live")
async def live() -> Response:
    """The process answers; it says nothing of the model."""
    return JSONResponse({"live": True})


@app.get("/healthz/ready")
async def ready() -> Response:
    """Whether requests may come; what was refused last is told in either case."""
    refusal = served.refusal
    told = {} if refusal is None else {"refused": refusal.to_dict()}
    if not served.ready:
        return JSONResponse({"ready": False, **told}, 503)
    with served.model() as model:
        return JSONResponse({"ready": True, "artifact": model.report.artifact_id, **told})


@app.get("/metrics")
async def scraped() -> Response:
    """The metrics of all workers that share $PROMETHEUS_MULTIPROC_DIR, or of this one."""
    return Response(metrics.text(), media_type="text/plain; version=0.0.4")


@app.exception_handler(NotReady)
async def not_ready(_: Request, __: NotReady) -> Response:
    """A load balancer asks elsewhere."""
    return JSONResponse({"ready": False}, 503, {"Retry-After": "1"})


@app.exception_handler(aotc.AotcError)
async def refused(_: Request, error: aotc.AotcError) -> Response:
    """The code, what was expected, and what was found."""
    if error.code in OURS:
        log.error("%s", error.line())
    return JSONResponse(error.to_dict(), 503 if error.code in OURS else 422)
