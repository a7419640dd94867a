"""Honest programs: what is made of a file is what PyTorch would load of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aotc.sources.torch_loading import load_program
from aotc.sources.torch_module import save_module

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

# Its own code warns of its own code.
pytestmark = pytest.mark.filterwarnings("ignore")

Dim = torch.export.Dim


@dataclass
class Pair:
    """A result of a class of the user's."""

    first: Any
    second: Any


class Sizes(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        rows = x.shape[0]
        return y.reshape(rows * 2, -1), x[-1:, : torch.sym_max(2, x.shape[1] - 1)], rows // 2


class Values(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        kept = x[x > 0]
        return {
            **{"kept": kept, "sum": kept.cumsum(0), "half": x.to(torch.bfloat16)},
            "masked": x.masked_fill(x > 0, float("-inf")).clamp(torch.iinfo(torch.int64).min),
        }


class Loop(torch.nn.Module):
    def forward(self, x: Any, n: Any) -> Any:
        return torch.while_loop(
            lambda i, a: i < n,
            lambda i, a: (i + 1, a * 2),
            (torch.zeros((), dtype=torch.long), x),
        )


class Each(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            return torch.vmap(lambda a, b: (a * b).sum(), in_dims=(0, None))(x, x[0])


class Record(torch.nn.Module):
    def forward(self, x: Any, *, scale: Any = 2.0, flag: Any = None) -> Any:
        return Pair(x * scale, x + 1)


def two_dims() -> Any:
    batch = Dim("batch", min=2, max=8)
    return (
        Sizes(),
        (torch.ones(3, 4), torch.ones(6, 4)),
        {},
        ({0: batch, 1: Dim.AUTO}, {0: 2 * batch}),
    )


CASES: dict[str, Callable[[], Any]] = {
    "sizes": two_dims,
    "values": lambda: (
        Values(),
        (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),),
        {},
        ({0: Dim.DYNAMIC},),
    ),
    "loop": lambda: (Loop(), (torch.ones(2, 5), torch.tensor(3)), {}, ({0: Dim.DYNAMIC}, None)),
    "each": lambda: (Each(), (torch.ones(4, 5),), {}, ({0: Dim.AUTO},)),
    "record": lambda: (Record(), (torch.ones(2, 3),), {"scale": torch.ones(3)}, None),
    "slices": lambda: (Each(), (torch.arange(40.0).reshape(4, 10)[:, ::2],), {}, None),
}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    torch.export.register_dataclass(Pair, serialized_type_name="tests.Pair")


@pytest.mark.parametrize("name", CASES)
def test_loaded_as_torch_would(name: str, tmp_path: Path) -> None:
    module, positional, named, shapes = CASES[name]()
    path = tmp_path / "program.pt2"
    saved = torch.export.export(module.eval(), positional, named, dynamic_shapes=shapes)
    torch.export.save(saved, path)
    own, read = load_program(path)
    other = torch.export.load(path)
    assert {str(k): str(v) for k, v in own.range_constraints.items()} == {
        str(k): str(v) for k, v in other.range_constraints.items()
    }
    assert [str(node.target) for node in own.graph.nodes] == [
        str(node.target) for node in other.graph.nodes
    ]
    assert list(read.guards) == other._guards_code
    leaves = torch.utils._pytree.tree_leaves
    for one, two in (
        (own.example_inputs, other.example_inputs),
        (
            own.module(check_guards=False)(*positional, **named),
            other.module(check_guards=False)(*positional, **named),
        ),
    ):
        assert len(leaves(one)) == len(leaves(two))
        for mine, theirs in zip(leaves(one), leaves(two), strict=True):
            assert type(mine) is type(theirs)
            assert torch.equal(mine, theirs) if isinstance(mine, torch.Tensor) else mine == theirs
    assert read.replaced_types == (("tests.Pair",) if name == "record" else ())


class OfPair(torch.nn.Module):
    def forward(self, pair: Pair) -> Any:
        return pair.first * 2 + pair.second


def test_a_module_whose_inputs_are_of_a_class_is_built(tmp_path: Path) -> None:
    program = torch.export.export(OfPair(), (Pair(torch.ones(2, 3), torch.ones(2, 3)),))
    path, _ = save_module(program, None, None, tmp_path)
    assert program.example_inputs is not None
    own, read = load_program(path)
    assert [each.name for each in read.inputs] == ["pair_first", "pair_second"]
    assert (own.example_inputs, read.replaced_types) == (None, ("tests.Pair",))


def test_a_program_that_torch_cannot_load_says_why(tmp_path: Path) -> None:
    from hostile_programs import PROGRAM, honest, packed
    from refusals import refusal

    files = honest()
    files[PROGRAM] = files[PROGRAM].replace(b"aten.relu.default", b"aten.rectify.default")
    path = tmp_path / "program.pt2"
    path.write_bytes(packed(files))
    error = refusal(load_program, path)
    assert error.code == "AOTC-I120"
    assert "torch 2.13.0+cpu; SerializeError" in error.found
    assert "aten.rectify.default" in error.found
