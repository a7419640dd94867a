"""An application that serves a model, for gunicorn (`wsgi`) and for uvicorn (`asgi`).

`/` answers a call, and says in which process; `/metrics` is what Prometheus scrapes; `/inherited`
uses a model of the process that this one was forked from ($PRELOAD says that there is one).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import numpy as np

import aotc

ARTIFACT, KEY = os.environ["SERVED_ARTIFACT"], os.environ["SERVED_KEY"]
metrics = aotc.PrometheusMetrics()
inherited = aotc.load(ARTIFACT, key=KEY, name="parent") if "PRELOAD" in os.environ else None
CALL = {"image": np.zeros((1, 1, 8, 8), np.float32)}
_models: list[aotc.Model] = []
_loading = threading.Lock()


def loaded() -> aotc.Model:
    """The model of this process, which its first request loads."""
    with _loading:
        if not _models:
            _models.append(aotc.load(ARTIFACT, key=KEY))
    return _models[0]


def answer(path: str) -> str:
    """The text of a response."""
    if path == "/metrics":
        return metrics.text()
    model = loaded() if path == "/" else inherited
    assert model is not None
    try:
        model.run(CALL)
    except aotc.AotcError as error:
        return f"{error.code} {error.fix}"
    return str(os.getpid())


def wsgi(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    """For gunicorn."""
    body = answer(environ["PATH_INFO"]).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """For uvicorn."""
    assert scope["type"] == "http"
    body = answer(scope["path"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
