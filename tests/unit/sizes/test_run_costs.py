"""Costs of runs, where memory ends before a run of the profiled session does; kept inputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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


def relu(folder: Path) -> Reference:
    """A model of one node and one dim."""
    model = model_of(
        [node("Relu", "x", "y")], [info("x", ["n"])], [info("y", ["n"])], opset=17, ir_version=9
    )
    path = folder / "relu.onnx"
    path.write_bytes(model.SerializeToString())
    value: dict[str, Any] = {"kind": "tensor", "dtype": "float32", "shape": ("n",)}
    return Reference(
        model=path,
        graph=path,
        weights=folder,
        symbols=Symbols(declared=(Value(name="x", **value),)),
        outputs=(Value(name="y", **value),),
        hints={},
        seed=1,
    )


def test_a_run_that_has_no_memory_has_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is planted is the message of a session that shares the memory with another."""
    monkeypatch.chdir(tmp_path)
    reference = relu(tmp_path)
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


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("room", [0, 1 << 10, 1 << 20])
def test_inputs_are_given_to_all_threads_that_ask_for_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Whether they are kept, or make room for those of other sizes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(references, "_MAX_MADE", room)
    reference = relu(tmp_path)
    sizes = [1 + number % 40 for number in range(800)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: reference.inputs_at({"n": n})["x"], sizes))
    assert [each.shape for each in made] == [(n,) for n in sizes]
    firsts = {n: reference.inputs_at({"n": n})["x"] for n in sizes}
    assert all((each == firsts[n]).all() for n, each in zip(sizes, made, strict=True))
