"""Functions of JAX: exported by jax2onnx, and what they answer.

A function takes arrays, or trees of them, and returns such; weights are what it closes over.  A
model of flax or equinox is such a function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import record
from aotc.sources.base import EXAMPLES, MODEL, Answers, Captured
from aotc.sources.torch_program import path_name
from aotc.sources.user_code import place_of, shown
from aotc.spec.framework_capture import CapturedDim, FrameworkCapture, StaticDim

_OPSET: Final = 23


@record
class JaxFunction:
    """A function of flat arrays, with their names, example values, and free dims by axis.

    `call` takes the arrays in order, and returns the tree that the user's function does.
    """

    call: Callable[..., Any]
    names: tuple[str, ...]
    examples: tuple[Any, ...]
    dims: tuple[Mapping[int, str], ...]


def function_of(function: Any, examples: Any, dynamic_shapes: Any) -> JaxFunction:
    """The user's function as one of flat arrays.

    `examples` are its arguments: a tuple, a mapping by name, or a single one.  `dynamic_shapes` has
    the same form, with `{axis: name}` where an array stands; names may be expressions, as
    `jax.export.symbolic_shape` takes them.
    """
    import jax
    import numpy as np

    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(examples, Mapping):
        named = dict(examples)
    else:
        positional = tuple(examples) if isinstance(examples, tuple | list) else (examples,)
        if dynamic_shapes is not None and not isinstance(examples, tuple | list):
            dynamic_shapes = (dynamic_shapes,)
    arguments = dict(zip(_parameters(function, len(positional)), positional, strict=True))
    if isinstance(dynamic_shapes, tuple | list):
        dynamic_shapes = dict(zip(arguments, dynamic_shapes, strict=False))
    leaves, tree = jax.tree_util.tree_flatten((arguments | named,))
    paths = [path[1:] for path, _ in jax.tree_util.tree_flatten_with_path((arguments | named,))[0]]

    def call(*flat: Any) -> Any:
        (values,) = jax.tree_util.tree_unflatten(tree, flat)
        return function(*[values[name] for name in arguments], **{k: values[k] for k in named})

    return JaxFunction(
        call=call,
        names=tuple(path_name(path) for path in paths),
        examples=tuple(
            np.asarray(leaf).astype(jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))
            for leaf in leaves
        ),
        dims=tuple(_dims_at(dynamic_shapes, path) for path in paths),
    )


def _parameters(function: Any, count: int) -> list[str]:
    """Names of the first parameters; `x0`, `x1` … where it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    names = [
        each.name
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ][:count]
    return [*names, *(f"x{number}" for number in range(len(names), count))]


def _dims_at(shapes: Any, path: Sequence[Any]) -> dict[int, str]:
    for key in path:
        step = getattr(key, "key", getattr(key, "idx", getattr(key, "name", None)))
        if isinstance(shapes, Mapping):
            shapes = shapes.get(step)
        elif isinstance(shapes, tuple | list) and isinstance(step, int) and step < len(shapes):
            shapes = shapes[step]
        else:
            return {}
    pairs = shapes.items() if isinstance(shapes, Mapping) else enumerate(shapes or ())
    return {
        axis: name if isinstance(name, str) else str(getattr(name, "__name__", name))
        for axis, name in pairs
        if name is not None and not isinstance(name, int)
    }


def capture_function(function: JaxFunction, folder: Path, versions: Mapping[str, str]) -> Captured:
    """Export a function to `folder`; raises AOTC-I121, at the line of the user's code.

    Inputs are called as parameters are, with the keys of trees; outputs as keys are, else `output`.
    """
    import jax
    import numpy as np
    import onnx
    from jax2onnx import to_onnx

    try:
        specs = _specs(function)
        result = jax.eval_shape(function.call, *specs)
        paths, _ = jax.tree_util.tree_flatten_with_path(result)
        model = to_onnx(
            lambda *flat: tuple(jax.tree_util.tree_leaves(function.call(*flat))),
            specs,
            model_name="model",
            opset=_OPSET,
            input_names=list(function.names),
            enable_double_precision=any(each.dtype == np.float64 for each in function.examples),
        )
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise _refusal(error) from None
    outputs = _name_outputs(model, [path_name(path) for path, _ in paths])
    large = model.ByteSize() > 1 << 30
    onnx.save(model, folder / MODEL, save_as_external_data=large, location=f"{MODEL}.data")
    np.savez(folder / EXAMPLES, **dict(zip(function.names, function.examples, strict=True)))
    dims, static = _dims(function, model)
    framework = FrameworkCapture(
        importer="jax",
        format="JAX function of a Python callable",
        source="function in memory",
        made_by=f"jax {jax.__version__}",
        versions=versions,
        exporter="jax2onnx.to_onnx",
        opset=_OPSET,
        dims=dims,
        static_dims=static,
    )
    return Captured(framework=framework, outputs=tuple(outputs), examples=EXAMPLES)


def _specs(function: JaxFunction) -> list[Any]:
    """Shapes and types of the inputs; one scope for the names of all their dims."""
    import jax

    scope = jax.export.SymbolicScope()
    specs = []
    for example, dims in zip(function.examples, function.dims, strict=True):
        shape = tuple(
            jax.export.symbolic_shape(dims[axis], scope=scope)[0] if axis in dims else size
            for axis, size in enumerate(example.shape)
        )
        specs.append(jax.ShapeDtypeStruct(shape, example.dtype))
    return specs


def _name_outputs(model: Any, wanted: Sequence[str]) -> list[str]:
    """Give the outputs these names, or similar ones that are free, and return them.

    Each becomes the value of a node of its own: one may be an input, or be there twice.
    """
    from onnx import helper

    graph = model.graph
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    taken |= {name for node in graph.node for name in node.output}
    names = []
    for value, name in zip(graph.output, wanted, strict=True):
        while name in taken:
            name += "_out"
        taken.add(name)
        names.append(name)
        graph.node.append(helper.make_node("Identity", [value.name], [name]))
        value.name = name
    return names


def _dims(
    function: JaxFunction, model: Any
) -> tuple[tuple[CapturedDim, ...], tuple[StaticDim, ...]]:
    """The free dims of the model's inputs, and those that were to be free and have one size."""
    places: dict[str, list[str]] = {}
    static = []
    values = {value.name: value for value in model.graph.input}
    for name, asked in zip(function.names, function.dims, strict=True):
        if name not in values:
            continue
        for axis, dim in enumerate(values[name].type.tensor_type.shape.dim):
            if dim.dim_param:
                places.setdefault(dim.dim_param, []).append(f"{name}.{axis}")
            elif axis in asked:
                static.append(
                    StaticDim(input=name, axis=axis, size=dim.dim_value, asked=asked[axis])
                )
    free = (
        CapturedDim(name=dim, inputs=tuple(where), min=1, symbol=dim)
        for dim, where in places.items()
    )
    return tuple(free), tuple(static)


def _refusal(error: Exception) -> AotcError:
    operator, place = _failed_operation(error)
    text = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    what = "jax2onnx cannot export the function"
    return AotcError(
        "AOTC-I121",
        f"jax2onnx cannot export {operator}" if operator else what,
        where=place or place_of(error, installed=False),
        found=f"{type(error).__name__}: {text}"[:500],
    )


def _failed_operation(error: BaseException) -> tuple[str, str]:
    """The primitive that could not be lowered, and the line of the user's code that made it."""
    from jax._src import source_info_util

    operator = place = ""
    for each in _chain(error):
        trace = each.__traceback__
        while trace is not None:
            equation = trace.tb_frame.f_locals.get("eqn")
            if equation is not None and hasattr(equation, "source_info"):
                # Calls are around it: the innermost failed, and may be of JAX's own code.
                operator = str(equation.primitive.name)
                frame = source_info_util.user_frame(equation.source_info.traceback)
                place = shown(frame.file_name, frame.start_line) if frame is not None else place
            trace = trace.tb_next
    return operator, place


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def function_answers(function: JaxFunction, outputs: Sequence[str]) -> Answers:
    """What the function answers, as JAX runs it, operation by operation."""
    import jax
    import numpy as np

    def answer(arrays: Mapping[str, Any]) -> dict[str, Any]:
        flat = (jax.numpy.asarray(arrays[name]) for name in function.names)
        leaves = jax.tree_util.tree_leaves(function.call(*flat))
        return dict(zip(outputs, map(np.asarray, leaves), strict=True))

    return answer
