"""Exported programs of PyTorch: built, proven against PyTorch, and what is refused of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal as raised
from workbench import Built, Workbench

from aotc import inspect, load
from aotc.base.errors import AotcError

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
pytest.importorskip("onnxscript", reason="the extra 'torch' is not installed")

# Its own code warns of its own code.
pytestmark = pytest.mark.filterwarnings("ignore")

Dim = torch.export.Dim


class Encoder(torch.nn.Module):
    """Two layers, a branch on values, and results by name."""

    def __init__(self) -> None:
        super().__init__()
        self.enc = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4)
        )

    def forward(self, x: Any, *, scale: Any) -> dict[str, Any]:
        y = self.enc(x)
        y = torch.cond(y.sum() > 0, lambda a: a + 1, lambda a: a - 1, (y,))
        return {"y": y * scale, "rest": (y + 1, y.mean())}


class Tail(torch.nn.Module):
    """Takes what is longer than four only."""

    def forward(self, x: Any, past: Any, mask: Any) -> Any:
        joined = torch.cat([past, x], 1) * mask
        if x.shape[1] > 4:
            return joined[:, 4:] * 2
        return joined


class Columns(torch.nn.Module):
    """Takes six columns, however many it is asked to."""

    def forward(self, x: Any) -> Any:
        return x.reshape(-1, 6) + 1


class Counting(torch.nn.Module):
    """Keeps how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return x + self.calls


class Eigenvalues(torch.nn.Module):
    """Calls an operator that ONNX lacks."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.eig(x * 2)[0].real


def saved(path: Path, module: Any, *inputs: Any, **options: Any) -> Path:
    program = torch.export.export(module.eval(), inputs, **options)
    torch.export.save(program, path)
    return path


def refusal(code: str, call: Callable[..., object], *arguments: Any, **options: Any) -> AotcError:
    error = raised(call, *arguments, **options)
    assert error.code == code, error
    return error


@pytest.fixture(scope="module")
def encoder(bench: Workbench) -> tuple[Encoder, Built]:
    torch.manual_seed(0)
    module = Encoder()
    batch = Dim("batch", min=1, max=16)
    path = saved(
        bench.folder / "encoder.pt2",
        module,
        torch.randn(2, 4),
        kwargs={"scale": torch.ones(2, 4)},
        dynamic_shapes={"x": {0: batch}, "scale": {0: batch}},
    )
    return module, bench.build(path, "encoder")


def test_answers_are_those_of_torch(bench: Workbench, encoder: tuple[Encoder, Built]) -> None:
    module, built = encoder
    with bench.load(built) as model:
        for rows in (1, 2, 5, 11, 16):
            x = torch.randn(rows, 4)
            scale = torch.rand(rows, 4)
            found = model.run({"x": x.numpy(), "scale": scale.numpy()})
            with torch.no_grad():
                expected = module(x, scale=scale)
            assert np.allclose(found["y"], expected["y"].numpy(), atol=1e-5)
            assert np.allclose(found["rest_0"], expected["rest"][0].numpy(), atol=1e-5)
            assert np.allclose(found["rest_1"], expected["rest"][1].numpy(), atol=1e-5)


def test_ranges_and_evidence_of_the_capture(encoder: tuple[Encoder, Built]) -> None:
    _, built = encoder
    dim = built.manifest.domain.dims["x_0"]
    assert (dim.min, dim.max, dim.origin) == (1, 16, "stated")
    found = built.manifest.source.framework
    assert found is not None
    assert found.format == "torch.export program"
    assert found.made_by == f"torch {torch.__version__}"
    assert found.versions["torch"] == torch.__version__
    assert [file.name for file in found.files] == ["encoder.pt2"]
    assert found.weights_sha256
    assert found.opset >= 18
    assert [dim.name for dim in found.dims] == ["x_0"]
    assert found.dims[0].inputs == ("x.0", "scale.0")
    (branch,) = found.branches
    assert branch.kind == "torch.cond"
    assert branch.place.startswith("sources/test_torch_program.py:")
    # No path of this machine is in the manifest.
    text = (built.payload / "aotc.json").read_text()
    assert str(Path(__file__).parent) not in text
    assert "site-packages" not in text


def test_golden_outputs_are_those_of_torch(encoder: tuple[Encoder, Built]) -> None:
    module, built = encoder
    fixture = built.manifest.fixtures[0]
    given = {each.name: np.load(built.payload / each.path) for each in fixture.inputs}
    golden = {each.name: np.load(built.payload / each.path) for each in fixture.outputs}
    torch.set_num_threads(1)
    with torch.no_grad():
        expected = module(torch.tensor(given["x"]), scale=torch.tensor(given["scale"]))
    assert np.array_equal(golden["y"], expected["y"].numpy())


def test_builds_are_reproducible(bench: Workbench, encoder: tuple[Encoder, Built]) -> None:
    _, built = encoder
    again = bench.build(bench.folder / "encoder.pt2", "encoder-again")
    # The name of the model is that of the source, not of the artifact.
    assert again.report.artifact_id == built.report.artifact_id


def test_debug_parity_goes_down_to_the_module(encoder: tuple[Encoder, Built]) -> None:
    from aotc.tools.debug_parity import debug_parity

    _, built = encoder
    report = debug_parity(built.path, built.source)
    assert not report.failed
    modules = {error.node: error.module for error in report.errors.nodes}
    assert modules["node_linear_1"] == "enc.2"
    assert report.exported is not None
    inside = {error.node: error for error in report.exported.nodes}
    assert inside["node_gelu"].module == "enc.1"
    assert inside["node_gelu"].place.startswith("sources/test_torch_program.py:")
    assert report.exported.first == ""


def test_guards_and_sums_bound_the_sizes(bench: Workbench) -> None:
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    path = saved(
        bench.folder / "tail.pt2",
        Tail(),
        torch.randn(2, 7),
        torch.randn(2, 5),
        torch.ones(2, 12),
        dynamic_shapes={"x": auto, "past": auto, "mask": auto},
    )
    built = bench.build(path, "tail")
    domain = built.manifest.domain
    assert domain.dims["x_1"].min >= 5
    assert [str(relation) for relation in domain.relations] == ["mask_1 = x_1 + past_1"]
    with bench.load(built) as model:
        short = {"x": (2, 3), "past": (2, 5), "mask": (2, 8)}
        given = {name: np.ones(shape, np.float32) for name, shape in short.items()}
        # There the program would answer with the other side of the branch.
        refusal("AOTC-S010", model.run, given)


def test_module_in_memory_is_exported_with_names(bench: Workbench) -> None:
    from aotc import build

    output = bench.folder / "columns.aotc"
    report = build(
        Columns(),
        (torch.randn(4, 6),),
        dynamic_shapes={"x": {0: Dim("rows", min=1, max=8), 1: Dim.AUTO}},
        output=output,
        key=bench.private,
    )
    (static,) = (each for each in report.findings if each.code == "AOTC-I124")
    assert static.what == "x.1 has the size 6 alone: Eq(x.1, 6)"
    assert static.where.startswith("sources/test_torch_program.py:")
    found = inspect(output)
    assert found.name == "Columns"
    assert found.inputs[0].shape == ("rows", 6)
    with load(output, key=bench.public, store=bench.folder / "store") as model:
        x = np.ones((3, 6), np.float32)
        assert np.array_equal(model.run({"x": x})["output"], x + 1)


def test_program_in_memory_is_built(bench: Workbench) -> None:
    from aotc import build

    program = torch.export.export(
        Columns(), (torch.randn(4, 6),), dynamic_shapes={"x": {0: Dim("rows", max=4)}}
    )
    output = bench.folder / "program.aotc"
    build(program, output=output, key=bench.private)
    assert inspect(output).inputs[0].shape == ("x_0", 6)


def test_module_needs_example_inputs() -> None:
    from aotc import build

    error = refusal("AOTC-I027", build, Columns())
    assert error.what == "a torch.nn.Module is exported with example inputs, and there are none"


def test_branch_on_values_names_the_line() -> None:
    from aotc import build

    class Branching(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    error = refusal("AOTC-I121", build, Branching(), (torch.randn(2),))
    assert error.what == "torch.export.export cannot capture the module"
    assert error.where.startswith("sources/test_torch_program.py:")


def test_buffers_that_change_are_refused(bench: Workbench) -> None:
    path = saved(bench.folder / "counting.pt2", Counting(), torch.randn(3))
    error = refusal("AOTC-I125", bench.build, path, "counting")
    assert error.what == "a call changes calls, which later calls would read"
    assert error.where.startswith("sources/test_torch_program.py:")


def test_operator_without_conversion_names_the_line(bench: Workbench) -> None:
    path = saved(bench.folder / "eig.pt2", Eigenvalues(), torch.randn(3, 3))
    error = refusal("AOTC-I121", bench.build, path, "eig")
    assert error.what == "torch.onnx.export cannot export aten.linalg_eig.default"
    assert error.where.startswith("sources/test_torch_program.py:")
    assert error.fix.startswith(f"Change the code at {error.where} ")


def test_program_without_free_dims_is_a_finding(bench: Workbench) -> None:
    path = saved(bench.folder / "fixed.pt2", Columns(), torch.randn(2, 6))
    built = bench.build(path, "fixed")
    assert built.finding("AOTC-I123") == "fixed.pt2: every dim of the inputs has one size"


def rewritten(path: Path, to: Path, **changes: Any) -> Path:
    """A copy of an archive, with other values in the description of its program."""
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(to, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            if name.endswith("models/model.json"):
                data = json.dumps({**json.loads(data), **changes}).encode()
            made.writestr(name, data)
    return to


def test_program_of_a_newer_torch_is_refused(bench: Workbench) -> None:
    path = saved(bench.folder / "new.pt2", Columns(), torch.randn(2, 6))
    newer = rewritten(
        path,
        bench.folder / "newer.pt2",
        torch_version="9.1.0",
        schema_version={"major": 99, "minor": 1},
    )
    error = refusal("AOTC-I133", bench.build, newer, "newer")
    assert error.found == "99.1, of PyTorch 9.1.0"


def test_program_for_cuda_is_refused(bench: Workbench) -> None:
    path = saved(bench.folder / "here.pt2", torch.nn.Linear(2, 2), torch.randn(2, 2))
    there = bench.folder / "there.pt2"
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(there, "w") as made:
        for name in given.namelist():
            data = given.read(name)
            if name.endswith(".json"):
                data = data.replace(
                    b'"device": {"type": "cpu", "index": null}',
                    b'"device": {"type": "cuda", "index": 0}',
                )
            made.writestr(name, data)
    error = refusal("AOTC-I122", bench.build, there, "there")
    assert error.what == "the program is for the device cuda"
    assert "move_to_device_pass" in error.fix
