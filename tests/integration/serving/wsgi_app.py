"""A WSGI application whose model gunicorn loads: in `post_fork`, or before the fork."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import aotc

model: aotc.Model | None = None


def load() -> None:
    """Load the artifact into this process."""
    global model
    model = aotc.load(os.environ["AOTC_ARTIFACT"], trust=os.environ["AOTC_TRUST"], threads=1)
    print(f"loaded by {os.getpid()}", flush=True)


if os.environ.get("LOAD") == "at import":
    load()


def app(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """The answer for ones, or the refusal."""
    assert model is not None
    try:
        found: Any = model.run({"x": np.ones((1, 16), np.float32)})["y"].tolist()
        status = "200 OK"
    except aotc.AotcError as error:
        found, status = error.to_dict(), "503 Service Unavailable"
    start(status, [("Content-Type", "application/json")])
    return [json.dumps(found).encode()]
