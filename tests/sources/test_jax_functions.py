"""Functions of JAX, models of flax and equinox among them, as jax2onnx exports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from refusals import refusal
from workbench import Workbench

from aotc.sources.jax_functions import capture_function, function_answers, function_of

jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
pytest.importorskip("jax2onnx", reason="the extra 'jax' is not installed")
# Those of jax2onnx's own imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def flax_mlp() -> tuple[Any, ...]:
    from flax import nnx

    class Perceptron(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.hidden = nnx.Linear(8, 16, rngs=rngs)
            self.norm = nnx.LayerNorm(16, rngs=rngs)
            self.last = nnx.Linear(16, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.last(nnx.gelu(self.norm(self.hidden(x))))

    return Perceptron(nnx.Rngs(0)), (np.zeros((2, 8), np.float32),), ({0: "batch"},)


def linen_convolutions() -> tuple[Any, ...]:
    from flax import linen

    class Convolutions(linen.Module):
        @linen.compact
        def __call__(self, image: Any) -> Any:
            x = linen.relu(linen.Conv(8, (3, 3))(image))
            x = linen.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
            return linen.Dense(10)(x.reshape((x.shape[0], -1)))

    model, image = Convolutions(), np.zeros((1, 8, 8, 1), np.float32)
    weights = model.init(jax.random.PRNGKey(0), image)
    return (
        lambda image: {"logits": model.apply(weights, image)},
        {"image": image},
        {"image": {0: "b"}},
    )


def equinox_mlp() -> tuple[Any, ...]:
    import equinox

    model = equinox.nn.MLP(8, 3, 16, 2, key=jax.random.PRNGKey(1))
    return jax.vmap(model), (np.zeros((2, 8), np.float32),), ({0: "rows"},)


def plain_attention() -> tuple[Any, ...]:
    drawn = np.random.default_rng(0)
    table = drawn.standard_normal((50, 8)).astype(np.float32)
    weights = drawn.standard_normal((8, 3)).astype(np.float32)

    def attend(tokens: Any, mask: Any) -> Any:
        values = jax.numpy.asarray(table)[tokens]
        scores = jax.numpy.where(mask > 0, values.sum(-1), -1e9)
        return jax.numpy.einsum("bs,bsd->bd", jax.nn.softmax(scores, -1), values) @ weights

    ids = np.zeros((2, 7), np.int32)
    dims = {0: "batch", 1: "length"}
    return attend, {"tokens": ids, "mask": np.ones_like(ids)}, {"tokens": dims, "mask": dims}


@pytest.mark.parametrize(
    ("make", "dims", "output"),
    [
        (flax_mlp, ["batch"], "output"),
        (linen_convolutions, ["b"], "logits"),
        (equinox_mlp, ["rows"], "output"),
        (plain_attention, ["batch", "length"], "output"),
    ],
)
def test_model_answers_as_its_function_at_several_sizes(
    make: Callable[[], tuple[Any, ...]], dims: list[str], output: str, tmp_path: Path
) -> None:
    function = function_of(*make())
    captured = capture_function(function, tmp_path, {"jax": jax.__version__})
    assert [dim.name for dim in captured.framework.dims] == dims
    assert captured.framework.static_dims == ()
    assert captured.outputs == (output,)
    session = ort.InferenceSession(tmp_path / captured.model)
    assert [value.name for value in session.get_inputs()] == list(function.names)
    answer = function_answers(function, captured.outputs)
    drawn = np.random.default_rng(1)
    for sizes in ([1, 3], [2, 7], [5, 4]):
        size = dict(zip(dims, sizes, strict=False))
        given = {}
        for name, example, free in zip(
            function.names, function.examples, function.dims, strict=True
        ):
            shape = [size[free[i]] if i in free else n for i, n in enumerate(example.shape)]
            values = drawn.integers(0, 50, shape) if name == "tokens" else drawn.random(shape)
            given[name] = (
                np.ceil(values).astype(example.dtype)
                if name == "mask"
                else values.astype(example.dtype)
            )
        (exported,) = session.run(None, given)
        np.testing.assert_allclose(exported, answer(given)[output], rtol=1e-4, atol=1e-5)


def test_trees_of_inputs_and_outputs_are_named_by_their_keys(tmp_path: Path) -> None:
    def function(batch: Any, scale: Any) -> Any:
        return {"sum": batch["a"] + batch["b"] * scale, "parts": [batch["a"], batch["b"] * 2]}

    example = np.ones((3, 4), np.float32)
    examples = ({"a": example, "b": example}, np.float32(2))
    flat = function_of(function, examples, ({"a": {0: "n"}, "b": {0: "n"}}, None))
    captured = capture_function(flat, tmp_path, {})
    assert flat.names == ("batch_a", "batch_b", "scale")
    assert captured.outputs == ("parts_0", "parts_1", "sum")
    (dim,) = captured.framework.dims
    assert (dim.name, dim.inputs) == ("n", ("batch_a.0", "batch_b.0"))


def test_operation_that_cannot_be_exported_is_refused_at_its_line(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return jax.numpy.linalg.svd(x)[1]

    error = refusal(capture_function, function_of(function, np.eye(4, 8), None), tmp_path, {})
    line = function.__code__.co_firstlineno + 1
    assert error.code == "AOTC-I121"
    assert error.what == "jax2onnx cannot export svd"
    assert error.where == f"sources/test_jax_functions.py:{line}"


def test_branch_on_values_is_refused_at_its_line(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x

    error = refusal(capture_function, function_of(function, np.ones(4), None), tmp_path, {})
    line = function.__code__.co_firstlineno + 1
    assert error.code == "AOTC-I121"
    assert error.where == f"sources/test_jax_functions.py:{line}"
    assert error.found.startswith("TracerBoolConversionError: ")


def test_callable_that_returns_a_function_is_built(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.py").write_text(
        "import jax, numpy as np\n"
        "def make():\n"
        "    weights = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)\n"
        "    return lambda x: jax.nn.tanh(x @ weights), (np.ones((2, 8), 'f4'),), ({0: 'n'},)\n"
    )
    built = bench.build(Path("rows:make"), "rows", trust_source=True)
    framework = built.manifest.source.framework
    assert framework is not None
    assert (framework.importer, framework.exporter) == ("python", "jax2onnx.to_onnx")
    assert built.manifest.domain.dims["n"].min <= 1
