"""What jobs of these tests do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from aotc.base.errors import AotcError


def echo(request: Any) -> Any:
    """Say and leave what was given."""
    print("says", request["text"], flush=True)
    Path("out/below").mkdir()
    Path("out/below/text").write_text(request["text"])
    Path("out/empty").write_bytes(b"")
    return {"text": request["text"], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}


def size(request: Any) -> Any:
    """The size of a file that was carried here."""
    return Path(request["file"]).stat().st_size


def refuse(request: Any) -> Any:
    """End in an error of the job's own."""
    with Path(request["runs"]).open("a") as runs:
        runs.write("x")
    raise AotcError("AOTC-N001", "the gate fails", where="here")


def limit(request: Any) -> Any:
    """The bytes of memory that this process may take."""
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def end() -> None:
    """End the process of Ray's that this is called in."""
    os._exit(1)


def wait(request: Any) -> Any:
    """Tell where this runs, and wait for a file."""
    folder = Path(request["folder"])
    (folder / f"{request['name']}-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return os.getpid()


def fill(request: Any) -> Any:
    """Write more than a small disk takes."""
    with Path("out/large").open("wb") as file:
        for _ in range(request["mib"]):
            file.write(bytes(1 << 20))
    return "written"
