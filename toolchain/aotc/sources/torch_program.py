"""PyTorch's exported programs: `.pt2` files, as `torch.export.save` writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.sources.base import (
    EXAMPLES,
    MODEL,
    MODULES,
    Answers,
    Captured,
    CaptureRequest,
    Importer,
)
from aotc.sources.pt2_archive import looks_like_pt2
from aotc.sources.torch_loading import load_program
from aotc.sources.torch_module import own_place, with_asked
from aotc.spec.codec import Json
from aotc.spec.conditions import quoted_dim, read_condition
from aotc.spec.framework_capture import CapturedBranch, CapturedDim, FrameworkCapture
from aotc.spec.relations import quoted
from aotc.spec.shapes import DimRange

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

# Protobuf knows no messages of 2 GiB; nor is one read twice that has its weights inside.
_MAX_PLAIN_BYTES: Final = 1 << 30
_SUFFIX: Final = ".pt2"
# What torch.export assumes of every dim that it makes dynamic, whether or not the program needs it.
_ASSUMED_MIN: Final = 2
_SYMBOL: Final = re.compile(r"[A-Za-z_]\w*")
_SUM: Final = re.compile(r"(?:\d+\*)?\w+(?: [+-] (?:\d+\*)?\w+)*")
_SIZE: Final = re.compile(r"L\['(\w+)'\]((?:\['?\w+'?\])*)\.size\(\)\[(\d+)\]")
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in ')
_FAILED_NODE: Final = re.compile(r"translating node %(\w+) .*?target=([\w.]+)\]")
# Domains of operators that torch itself has.
_OWN: Final = frozenset({"aten", "prims", "prim", "higher_order", "_operator", "math", "builtins"})


class TorchProgram(Importer):
    """An exported program in a file."""

    name: ClassVar[str] = "torch"
    extra: ClassVar[str] = "torch"
    title: ClassVar[str] = "a PyTorch program (.pt2)"
    modules: ClassVar[tuple[str, ...]] = ("torch", "onnxscript", "onnx_ir", "onnx", "numpy")
    distributions: ClassVar[tuple[str, ...]] = ("torch", "onnxscript", "onnx-ir", "onnx", "numpy")

    def recognizes(self, source: str) -> bool:
        """A name that ends in .pt2, or an archive of PyTorch's."""
        return source.lower().endswith(_SUFFIX) or looks_like_pt2(Path(source))

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """Load the program with weights only, and export it."""
        path = Path(request.source)
        program, read = load_program(path, digest=True)
        captured = capture_program(
            program,
            folder,
            source=path,
            versions=self.versions(),
            options=request.options,
            weights_sha256=read.weights_sha256,
        )
        framework = replace(captured.framework, made_by=f"torch {read.torch_version}")
        return replace(captured, framework=framework)

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """The program's graph, run by PyTorch operator by operator."""
        program, _ = load_program(Path(request.source))
        return eager_answers(program, captured.outputs)

    def inside(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """The exporter's own program: the exported model has the names of its values."""
        program, _ = load_program(Path(request.source))
        _drop_derived_constraints(program)
        return inner_values(export(program).exported_program, captured.outputs)


# From a program in memory to the files of a capture.


def capture_program(
    program: ExportedProgram,
    folder: Path,
    *,
    source: Path | None,
    versions: Mapping[str, str],
    options: Mapping[str, Json],
    weights_sha256: str | None = None,
) -> Captured:
    """Export `program` into `folder`: the model without metadata, examples, and what was found.

    `source` is the file that it is from; None: it is from memory.  `options` say what the user
    asked of its dims: what `torch_module.save_module` gives.  `weights_sha256` is the digest of its
    weights, if it is known.
    Raises AOTC-I121 (exporter), I122 (device) and I125 (buffers).
    """
    import torch

    refuse_devices(program)
    _drop_derived_constraints(program)
    exported = export(program)
    refuse_mutation(exported.exported_program)
    model = exported.model
    inputs = {value.name: value for value in model.graph.inputs}
    names = options.get("asked", {}).get("names", {})
    renamed, captured_dims, ranges = name_dims(program, model, names)
    rename_symbols(model, renamed)
    guards = tuple(getattr(program, "_guards_code", None) or ())
    outputs = name_outputs(program, model)
    modules = take_modules(model)
    (folder / MODULES).write_text(json.dumps(modules))
    exported.save(folder / MODEL, external_data=_is_large(model))
    examples = example_inputs(program, list(inputs))
    if examples:
        import numpy as np

        np.savez(folder / EXAMPLES, **examples)
    framework = FrameworkCapture(
        importer="torch",
        format="torch.export program",
        source=source.name if source is not None else "program in memory",
        made_by=f"torch {torch.__version__}",
        versions=versions,
        exporter="torch.onnx.export(dynamo=True)",
        opset=model.opset_imports.get("", 0),
        decomposed=decomposed(program, exported.exported_program),
        dims=captured_dims,
        guards=guards,
        weights_sha256=weights_sha256 or weights_digest(program),
        branches=tuple(branches(program)),
        custom_operators=custom_operators(program),
        modules=len({path for path, _ in modules.values() if path}),
    )
    captured = Captured(
        framework=framework,
        outputs=outputs,
        dims=ranges,
        relations=tuple(relations(captured_dims)),
        conditions=tuple(dict.fromkeys(conditions(guards, captured_dims, model))),
        examples=EXAMPLES if examples else "",
        modules=MODULES,
    )
    shapes = {value.name: tuple(value.shape or ()) for value in model.graph.inputs}
    return with_asked(captured, options, shapes)


def refuse_devices(program: ExportedProgram) -> None:
    """Raise AOTC-I122 if a weight or constant of the program is on another device than the CPU."""
    held = {**program.state_dict, **program.constants}
    for name, value in held.items():
        device = getattr(value, "device", None)
        if device is not None and device.type not in ("cpu", "meta"):
            raise AotcError(
                "AOTC-I122",
                f"the program is for the device {device}",
                where=name,
                expected="weights on the CPU",
                found=str(device),
            )


def refuse_mutation(program: ExportedProgram) -> None:
    """Raise AOTC-I125 if a call changes buffers or inputs, which an ONNX model cannot.

    `program` is the exporter's, in which what changes is an output.
    """
    signature = program.graph_signature
    changed = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if not changed:
        return
    nodes = {node.name: node for node in program.graph.nodes}
    places = (place_in_code(nodes[name].meta.get("stack_trace") or "") for name in changed)
    names = list(dict.fromkeys(changed.values()))
    raise AotcError(
        "AOTC-I125",
        f"a call changes {listed(names)}, which later calls would read",
        where=", ".join(dict.fromkeys(filter(None, places))) or listed(names),
        expected="a program whose calls change nothing",
    )


def _drop_derived_constraints(program: ExportedProgram) -> None:
    """Programs that are loaded have constraints of sums, such as 2*s0, on which torch itself ends.

    That of their symbols stands beside.
    """
    held = [program.range_constraints]
    for node in program.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            held.append(mode.shape_env.var_to_range)
            break
    for constraints in held:
        for key in [key for key in constraints if not getattr(key, "is_symbol", False)]:
            del constraints[key]


def export(program: ExportedProgram) -> Any:
    """PyTorch's own export, of an `ONNXProgram`; raises AOTC-I121."""
    import logging
    import warnings

    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    except Exception as error:
        raise _export_failed(error, program) from None


def _export_failed(error: BaseException, program: ExportedProgram) -> AotcError:
    """The refusal, with the operator and the line of the user's code, where the errors name one."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    texts = [re.sub(r"\x1b\[\d+m", "", str(each)).strip() for each in chain]
    named = _FAILED_NODE.search("\n".join(texts))
    operator = str(named[2]).removeprefix("torch.ops.") if named is not None else ""
    place = ""
    if named is not None:
        place = next(
            (
                place_in_code(node.meta.get("stack_trace") or "")
                for node in _calls(program)
                if node.name == named[1] or str(node.target) == operator
            ),
            "",
        )
    last = next((line for line in texts[-1].splitlines() if line.strip()), "no message")
    what = f"torch.onnx.export cannot export {operator}" if operator else "torch.onnx.export failed"
    return AotcError(
        "AOTC-I121",
        what,
        where=place,
        found=f"{type(chain[-1]).__name__}: {last}"[:400],
        fix=f"Change the code at {place} so that it does without {operator}, or install a newer "
        "torch and onnxscript, which may have it."
        if place
        else "",
    )


def _is_large(model: ir.Model) -> bool:
    held = (value.const_value for value in model.graph.initializers.values())
    return sum(tensor.nbytes for tensor in held if tensor is not None) > _MAX_PLAIN_BYTES


# Dims: their names, ranges, and expressions.


def name_dims(
    program: ExportedProgram, model: ir.Model, names: Mapping[str, Mapping[str, str]]
) -> tuple[dict[str, str], tuple[CapturedDim, ...], dict[str, DimRange]]:
    """New names of the symbols in shapes, the free dims of inputs, and the ranges they have.

    A symbol is called as the user does, else by the first input and axis that has it.
    """
    places: dict[str, list[str]] = {}
    called: dict[str, str] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            text = getattr(dim, "value", None)
            if not isinstance(text, str):
                continue
            places.setdefault(text, []).append(f"{value.name}.{axis}")
            own = names.get(str(value.name), {}).get(str(axis))
            if own:
                called[text] = own
    constraints = {str(symbol): found for symbol, found in program.range_constraints.items()}
    renamed, dims, ranges = {}, [], {}
    for text, where in places.items():
        name = renamed[text] = called.get(text) or where[0].replace(".", "_")
        low, high = _bounds(constraints.get(text))
        dims.append(CapturedDim(name=name, inputs=tuple(where), min=low, max=high, symbol=text))
        if high is not None:
            ranges[name] = DimRange(min=max(low or 0, 1), max=high)
        elif (step := _multiple(text)) or low is not None:
            # What is probed is enforced then, as sizes below answer otherwise than the framework.
            ranges[name] = DimRange.from_json({"multiple_of": step or 1})
    return renamed, tuple(dims), ranges


def _bounds(constraint: Any) -> tuple[int | None, int | None]:
    """The bounds that a program states of a symbol, without those that torch gives every one."""
    if constraint is None:
        return None, None
    low, high = constraint.lower, constraint.upper
    top = int(high) if getattr(high, "is_number", True) and str(high).isdecimal() else None
    bottom = int(low) if str(low).isdecimal() else None
    if bottom is not None and top is None and bottom <= _ASSUMED_MIN:
        bottom = None
    return bottom, top


def _multiple(expression: str) -> int:
    """Of `4*s0`, the 4; 0 for other texts."""
    match = re.fullmatch(r"(\d{1,6})\*[A-Za-z_]\w*", expression)
    return int(match[1]) if match else 0


def relations(dims: Sequence[CapturedDim]) -> Iterator[str]:
    """Of dims that are sums of others, such as `s0 + 1`: the relation, as a profile has it."""
    called = {dim.symbol: dim.name for dim in dims if _SYMBOL.fullmatch(dim.symbol)}
    for dim in dims:
        if dim.symbol in called or not _SUM.fullmatch(dim.symbol):
            continue
        symbols = set(_SYMBOL.findall(dim.symbol))
        if symbols and symbols <= called.keys():
            total = _SYMBOL.sub(lambda found: quoted(called[found[0]]), dim.symbol)
            yield f"{quoted(dim.name)} = {total}"


def conditions(
    guards: Sequence[str], dims: Sequence[CapturedDim], model: ir.Model
) -> Iterator[str]:
    """Guards and smallest sizes of a program, as conditions on the model's dims."""
    for dim in dims:
        if dim.min is not None and dim.max is None:
            yield f"{quoted_dim(dim.name)} >= {dim.min}"
    shapes = {value.name: tuple(value.shape or ()) for value in model.graph.inputs}

    def size_of(found: re.Match[str]) -> str:
        name = "_".join([found[1], *re.findall(r"\w+", found[2])])
        axis = int(found[3])
        size = shapes[name][axis]
        return str(size) if isinstance(size, int) else quoted_dim(str(size.value))

    for guard in guards:
        try:
            text = _SIZE.sub(size_of, guard)
        except (KeyError, IndexError):
            continue
        found = read_condition(text)
        sides = text.split(" == ")
        if found is not None and not (len(sides) == 2 and sides[0] == sides[1]):
            yield text


def rename_symbols(model: ir.Model, renamed: Mapping[str, str]) -> None:
    """Give symbols their names, in all shapes and in sums of them."""
    import onnx_ir as ir

    def text_of(text: str) -> str:
        if text in renamed:
            return renamed[text]
        return _SYMBOL.sub(lambda found: renamed.get(found[0], found[0]), text)

    def rename(value: ir.Value) -> None:
        shape = value.shape
        if shape is None:
            return
        for axis, dim in enumerate(shape):
            text = getattr(dim, "value", None)
            if isinstance(text, str) and (new := text_of(text)) != text:
                shape[axis] = ir.SymbolicDim(new)

    for value in model.graph.inputs:
        rename(value)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            rename(value)


# What is known of the program besides.


def take_modules(model: ir.Model) -> dict[str, tuple[str, str]]:
    """Take the metadata off the model: by node, its module's path and the place in user's code."""
    found: dict[str, tuple[str, str]] = {}
    for node in model.graph.all_nodes():
        scopes = node.metadata_props.get("pkg.torch.onnx.name_scopes", "")
        path = module_path(scopes)
        place = place_in_code(node.metadata_props.get("pkg.torch.onnx.stack_trace", ""))
        if node.name and (path or place):
            found[node.name] = (path, place)
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    return found


def module_path(scopes: str) -> str:
    """The path of the innermost module in a list of scopes, whose last names the operator."""
    names = re.findall(r"'([^']*)'", scopes)
    return next((name for name in reversed(names[:-1]) if name), "")


def place_in_code(trace: str) -> str:
    """The innermost place in code that is not torch's own, as `folder/file.py:12`; empty: none."""
    places = (own_place(path, int(line)) for path, line in _FRAME.findall(trace))
    return next((place for place in reversed([*places]) if place), "")


def weights_digest(program: ExportedProgram) -> str:
    """The sha256 of all weights and constants, by name: each its name, type, shape and bytes."""
    import hashlib

    import torch

    digest = hashlib.sha256()
    held = {**program.state_dict, **program.constants}
    for name in sorted(held):
        value = held[name]
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\0".encode())
            flat = value.detach().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
    return digest.hexdigest()


def decomposed(before: ExportedProgram, after: Any) -> dict[str, int]:
    """Operators of the program that the exporter's own program has no more, with their number."""
    if after is None:
        return {}
    left = {str(node.target) for node in _calls(after)}
    counts: dict[str, int] = {}
    for node in _calls(before):
        name = str(node.target)
        if name not in left:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def branches(program: ExportedProgram) -> Iterator[CapturedBranch]:
    """Control flow that the program kept."""
    for node in _calls(program):
        name = str(node.target)
        if name in ("cond", "while_loop", "map_impl", "scan", "associative_scan"):
            yield CapturedBranch(
                kind=f"torch.{name}",
                what="kept: both sides are in the program"
                if name == "cond"
                else "kept: it is a loop of the program",
                place=place_in_code(node.meta.get("stack_trace") or ""),
            )


def custom_operators(program: ExportedProgram) -> tuple[str, ...]:
    """Operators of other libraries than torch."""
    found = set()
    for node in _calls(program):
        namespace = getattr(node.target, "namespace", None)
        if namespace is not None and namespace not in _OWN:
            found.add(str(node.target))
    return tuple(sorted(found))


def _calls(program: Any) -> Iterator[Any]:
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        if graph is not None:
            yield from (node for node in graph.nodes if node.op == "call_function")


def example_inputs(program: ExportedProgram, names: Sequence[str]) -> dict[str, Any]:
    """The inputs that the program was captured with; empty if it has not all of them."""
    if program.example_inputs is None:
        return {}
    import torch
    from torch.utils import _pytree

    flat = _pytree.tree_leaves(program.example_inputs)
    given = dict(zip(program.graph_signature.user_inputs, flat, strict=False))
    found = {
        name: value.detach().cpu().numpy()
        for name in names
        if isinstance(value := given.get(name), torch.Tensor)
        and value.dtype not in (torch.bfloat16,)
    }
    return found if len(found) == len(names) else {}


# The framework's own answers.


def eager_answers(program: ExportedProgram, outputs: Sequence[str]) -> Answers:
    """What answers as PyTorch does, operator by operator, on one thread and without gradients.

    `outputs` are the names of its tensors, in order.
    """
    import torch
    from torch.utils import _pytree

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    module = program.module(check_guards=False)
    names = program.graph_signature.user_inputs
    spec = program.call_spec.in_spec

    def answer(given: Mapping[str, Any]) -> dict[str, Any]:
        # What is not named is a constant of the call: None, a number or a text.
        flat = [
            torch.from_numpy(given[name].copy())
            if isinstance(name, str) and name in given
            else None
            if isinstance(name, str)
            else name
            for name in names
        ]
        args, kwargs = _pytree.tree_unflatten(flat, spec)
        with torch.no_grad():
            result = module(*args, **kwargs)
        tensors = [each for each in _pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        found = (each.detach().cpu().numpy() for each in tensors)
        return dict(zip(outputs, found, strict=True))

    return answer


def inner_values(program: ExportedProgram, outputs: Sequence[str]) -> Answers:
    """What runs the program operator by operator, and gives every tensor on the way.

    `outputs` are the names of its results that are tensors, in order.
    """
    import torch
    from torch.utils import _pytree

    torch.set_num_threads(1)
    module = program.module(check_guards=False)
    order = [node.target for node in module.graph.nodes if node.op == "placeholder"]

    def answer(given: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}

        class Noting(torch.fx.Interpreter):  # type: ignore[misc]
            def run_node(self, n: Any) -> Any:
                value = super().run_node(n)
                if n.op == "call_function" and isinstance(value, torch.Tensor):
                    found[n.name] = value.detach().cpu().numpy()
                return value

        arguments = [
            torch.from_numpy(given[name].copy()) if name in given else None for name in order
        ]
        with torch.no_grad():
            result = Noting(module).run(*arguments, enable_io_processing=False)
        leaves = [each for each in _pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        answers = (each.detach().cpu().numpy() for each in leaves)
        return {**found, **dict(zip(outputs, answers, strict=True))}

    return answer


def name_outputs(program: ExportedProgram, model: ir.Model) -> tuple[str, ...]:
    """Name the model's outputs as the program's result has them, and return their names in order.

    A value of a mapping has its key's name, further ones their positions; a single one is `output`.
    """
    from torch.utils import _pytree

    spec = program.call_spec.out_spec
    count = spec.num_leaves
    paths, _ = _pytree.tree_flatten_with_path(_pytree.tree_unflatten(range(count), spec))
    arguments = program.graph_signature.user_outputs
    wanted = [
        path_name(path)
        for (path, _), argument in zip(paths, arguments, strict=True)
        if isinstance(argument, str)
    ]
    values = model.graph.outputs
    taken = {value.name for value in model.graph.inputs}
    taken |= set(model.graph.initializers)
    taken |= {value.name for node in model.graph.all_nodes() for value in node.outputs}
    if len(wanted) == len(values):
        for value, name in zip(values, wanted, strict=True):
            plain = value.producer() is not None and list(values).count(value) == 1
            if plain and name not in taken:
                value.name = name
                taken.add(name)
    return tuple(str(value.name) for value in values)


def path_name(path: Sequence[Any]) -> str:
    """The name of an output at a path of keys of a tree, of PyTorch's or JAX's."""
    parts = [
        str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path
    ]
    if not parts or parts[0].isdecimal():
        parts.insert(0, "output")
    return re.sub(r"[^\w.-]", "_", "_".join(parts))
