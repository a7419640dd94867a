"""The stages of aotc's first answer, as its process tells them."""

from __future__ import annotations

STAGES = ("Python", "imports", "verify", "waits", "session", "warm-up", "call")


def label(stage: str) -> str:
    """The name of a stage's samples."""
    return f"aotc: {stage}"
