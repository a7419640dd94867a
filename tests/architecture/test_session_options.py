"""Options of sessions are made in one place, which registers libraries of custom operators."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from repository import ROOT

PACKAGE = ROOT / "toolchain" / "aotc"
# It asks whether a provider can be added, and creates no session.
ASKS = "providers/cuda.py"


def calls(ending: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of what is written with this ending, and their modules."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if ending not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(ending):
                yield path.relative_to(PACKAGE).as_posix(), node


def test_no_other_options_are_made() -> None:
    """Use `aotc.providers.ort.new_session_options`."""
    assert {module for module, _ in calls("SessionOptions")} == {"providers/ort.py", ASKS}


def test_no_session_is_made_without_options() -> None:
    for module, call in calls(".InferenceSession"):
        words = {word.arg for word in call.keywords}
        assert len(call.args) > 1 or "sess_options" in words, module
