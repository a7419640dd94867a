"""Costs of runs, where memory ends before a run of the profiled session does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from model_parts import info, model_of, node

from aotc.base.errors import AotcError
from aotc.graph.symbols import Symbols
from aotc.session import sessions
from aotc.sizes import reference as references
from aotc.sizes.reference import Reference
from aotc.spec.payload import Value


def test_a_run_that_has_no_memory_has_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is planted is the message of a session that shares the memory with another."""
    monkeypatch.chdir(tmp_path)
    model = model_of(
        [node("Relu", "x", "y")], [info("x", ["n"])], [info("y", ["n"])], opset=17, ir_version=9
    )
    path = tmp_path / "relu.onnx"
    path.write_bytes(model.SerializeToString())
    value: dict[str, Any] = {"kind": "tensor", "dtype": "float32", "shape": ("n",)}
    reference = Reference(
        model=path,
        graph=path,
        weights=tmp_path,
        symbols=Symbols(declared=(Value(name="x", **value),)),
        outputs=(Value(name="y", **value),),
        hints={},
        seed=1,
    )
    real = sessions.run

    def run(session: Any, inputs: Mapping[str, Any], **options: Any) -> Any:
        if (
            inputs["x"].shape == (8,)
            and "cost" in session.get_session_options().profile_file_prefix
        ):
            raise AotcError("AOTC-R005", "failed", found="Failed to allocate memory")
        return real(session, inputs, **options)

    monkeypatch.setattr(references, "run", run)
    small, large, after = reference.run_costs([{"n": 4}, {"n": 8}, {"n": 2}])
    assert small is not None
    assert small.activation_bytes == 16
    assert (large, after) == (None, None)
