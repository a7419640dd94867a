"""An ONNX Runtime whose answers were changed: as a new release that computes otherwise."""

from __future__ import annotations

from pathlib import Path

# Python imports it at its start, and so does a command that is forked ready.  The class is what
# everything runs through.
_CHANGES = """\
from onnxruntime.capi.onnxruntime_inference_collection import Session

answer = Session.run


def run(*arguments, **named):
    answers = answer(*arguments, **named)
    return [{change} if getattr(o, "dtype", None) is not None else o for o in answers]


Session.run = run
"""


def changed_runtime(folder: Path, change: str) -> str:
    """A value for PYTHONPATH with which ONNX Runtime answers `change`, an expression of `o`.

    `o` is each answer that is an array.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_CHANGES.format(change=change), "utf-8")
    return str(folder)
