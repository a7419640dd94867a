"""Options of sessions are made in one place, which registers libraries of custom operators."""

from __future__ import annotations

import ast

from repository import ROOT

PACKAGE = ROOT / "toolchain" / "aotc"
# It asks whether a provider can be added, and creates no session.
ASKS = "providers/cuda.py"


def test_no_other_options_are_made() -> None:
    """Use `aotc.providers.ort.new_session_options`."""
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("SessionOptions")
    }
    assert makers == {"providers/ort.py", ASKS}


def test_no_session_is_made_without_options() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".InferenceSession"):
                words = {word.arg for word in node.keywords}
                assert len(node.args) > 1 or "sess_options" in words, path
