"""PyTorch modules in memory: exported with what they were asked to be, and saved as `.pt2`.

This runs where the module is: in the user's own process, or in one that runs trusted code.  What
torch decides for good while it exports, by sizes, is read from its own log of guards, which names
the lines of the user's code.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.sources.base import Captured
from aotc.spec.codec import Json, decode, encode
from aotc.spec.framework_capture import CapturedBranch, StaticDim

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LOGGER: Final = "torch.fx.experimental.symbolic_shapes"
_GUARD: Final = re.compile(r"eval (.+?) \[guard added\]")
_SYMBOL: Final = re.compile(r"create_symbol (\w+) = -?\d+ for L\['(\w+)'\](.*?)\.size\(\)\[(\d+)\]")
_ONE_SIZE: Final = re.compile(r"set_replacement (\w+) = (\d+) ")
_STANDARD: Final = f"{sysconfig.get_paths()['stdlib']}/"
_AOTC: Final = f"{Path(__file__).parents[1]}/"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


@record
class AskedDims:
    """What a user asked of dims, and what torch decided: by input and axis.

    `names` are those that the user gave; `asked` are dims that were to be dynamic, with their
    names or an empty text.  `guards` are conditions with the places of code that decided by them.
    """

    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    asked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    guards: tuple[CapturedBranch, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)


def is_torch_module(model: object) -> bool:
    """Whether it is a `torch.nn.Module` or an `ExportedProgram`; imports nothing."""
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(model).__mro__}
    return not names.isdisjoint(
        ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")
    )


def export_module(
    module: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> tuple[ExportedProgram, AskedDims]:
    """Export a module as `torch.export.export` does, with what was asked of dims.

    An `ExportedProgram` is given back as it is.  Raises AOTC-I121, at the line of the user's code.
    """
    import torch

    if isinstance(module, torch.export.ExportedProgram):
        return module, AskedDims()
    with decisions() as messages:
        try:
            with torch.no_grad():
                program = torch.export.export(
                    module, tuple(arguments), dict(keywords or {}), dynamic_shapes=dynamic_shapes
                )
        except Exception as error:
            told = [place for _, place in messages if place]
            raise _refusal(error, told[-1] if told else "") from None
    names, asked = _asked(program, tuple(arguments), dict(keywords or {}), dynamic_shapes)
    guards, reasons = decided(messages)
    return program, AskedDims(names=names, asked=asked, guards=guards, reasons=reasons)


def arguments_of(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments from example inputs: a tuple, a mapping, or one value."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple | list):
        return tuple(example), {}
    return (example,), {}


def save_module(
    module: Any, example: Any, dynamic_shapes: Any, folder: Path
) -> tuple[Path, dict[str, Json]]:
    """Export a module of this process to a `.pt2` in `folder`, with options for its capture.

    Raises AOTC-I121 (torch cannot export it) and I027 (there are no example inputs).
    """
    import torch

    if example is None and not isinstance(module, torch.export.ExportedProgram):
        raise AotcError(
            "AOTC-I027",
            "a torch.nn.Module is exported with example inputs, and there are none",
            where="aotc.build",
            expected="example_inputs: a tuple of tensors, or a mapping of names to them",
        )
    positional, named = arguments_of(() if example is None else example)
    program, asked = export_module(module, positional, named, dynamic_shapes)
    path = folder / f"{module_name(module)}.pt2"
    example = program.example_inputs
    try:
        if not _is_plain(example):
            # Objects would be pickled, and no pickle is read.
            program.example_inputs = None
        torch.export.save(program, path)
    except Exception as error:
        raise _refusal(error) from None
    finally:
        program.example_inputs = example
    return path, {"asked": encode(asked)}


def _is_plain(value: Any) -> bool:
    """Whether a value is made of tensors, numbers, texts and Python's own containers alone."""
    import torch

    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(type(key) in (str, int) and _is_plain(value[key]) for key in value)
    kinds = (torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None))
    return type(value) in kinds


def module_name(module: object) -> str:
    """The name of a model that is in memory: that of its class; of a program, `model`."""
    name = type(module).__name__
    return "model" if name == "ExportedProgram" else name


def with_asked(captured: Captured, options: Mapping[str, Json], shapes: Any) -> Captured:
    """The capture with what the user asked of dims, from the options that `save_module` gives.

    `shapes` are those of the exported model's inputs, by name.
    """
    if "asked" not in options:
        return captured
    told = decode(AskedDims, options["asked"])
    static = tuple(
        StaticDim(
            input=name,
            axis=int(axis),
            size=shapes[name][int(axis)],
            asked=called,
            **_why(told.reasons.get(f"{name}.{axis}", "")),
        )
        for name, axes in told.asked.items()
        for axis, called in axes.items()
        if name in shapes and isinstance(shapes[name][int(axis)], int)
    )
    framework = captured.framework
    return replace(
        captured,
        framework=replace(
            framework, static_dims=static, branches=(*framework.branches, *told.guards)
        ),
    )


def _why(reason: str) -> dict[str, str]:
    what, _, place = reason.partition("\n")
    return {"why": what, "place": place}


# What torch tells while it exports.


@contextmanager
def decisions() -> Iterator[list[tuple[str, str]]]:
    """The messages of torch's own log of symbols and guards, with the line of the user's code that
    runs; nothing of it is printed.
    """
    messages: list[tuple[str, str]] = []

    class Kept(logging.Handler):
        def emit(self, entry: logging.LogRecord) -> None:
            frame = sys._getframe()
            place = ""
            while frame is not None and not place:
                place = own_place(frame.f_code.co_filename, frame.f_lineno)
                frame = frame.f_back  # type: ignore[assignment]
            messages.append((entry.getMessage(), place))

    logger, kept = logging.getLogger(_LOGGER), Kept()
    level, handlers, passes = logger.level, logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [kept], False
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = handlers, passes
        logger.setLevel(level)


def decided(
    messages: Sequence[tuple[str, str]],
) -> tuple[tuple[CapturedBranch, ...], dict[str, str]]:
    """Decisions in the user's code, and why dims have one size: `what`, a line break, the place."""
    dims: dict[str, str] = {}
    guards: dict[tuple[str, str], CapturedBranch] = {}
    last: dict[str, tuple[str, str]] = {}
    reasons: dict[str, str] = {}

    def in_dims(text: str) -> str:
        return _IDENTIFIER.sub(lambda found: dims.get(found[0], found[0]), text)

    for message, place in messages:
        if found := _SYMBOL.match(message):
            name = "_".join([found[2], *re.findall(r"\w+", found[3])])
            dims[found[1]] = f"{name}.{found[4]}"
        elif found := _GUARD.match(message):
            if place:
                what = f"taken for good where {in_dims(found[1])}"
                guards[found[1], place] = CapturedBranch(kind="guard", what=what, place=place)
            for symbol in _IDENTIFIER.findall(found[1]):
                last[symbol] = found[1], place
        elif (found := _ONE_SIZE.match(message)) and found[1] in dims:
            condition, by = last.get(found[1], ("", ""))
            reasons[dims[found[1]]] = f"{in_dims(condition)}\n{by}" if condition else ""
    return tuple(guards.values()), reasons


def _asked(
    program: ExportedProgram,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    dynamic_shapes: Any,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The names of dims, and those that were to be dynamic, by input and axis."""
    import torch
    from torch.utils import _pytree

    if not dynamic_shapes:
        return {}, {}
    flat = _pytree.tree_leaves((arguments, keywords))
    inputs = list(zip(program.graph_signature.user_inputs, flat, strict=False))
    names: dict[str, dict[str, str]] = {}
    asked: dict[str, dict[str, str]] = {}

    def note(path: Any, value: Any, shape: Any) -> None:
        if not isinstance(value, torch.Tensor) or shape is None:
            return
        own = next((name for name, each in inputs if each is value), None)
        pairs = shape.items() if isinstance(shape, Mapping) else enumerate(shape)
        for axis, dim in pairs:
            if own is None or dim is None or isinstance(dim, int):
                continue
            called = getattr(dim, "__name__", "")
            if "STATIC" in str(getattr(dim, "type", "")):
                continue
            plain = called if isinstance(called, str) and _IDENTIFIER.fullmatch(called) else ""
            asked.setdefault(str(own), {})[str(axis)] = plain
            if plain:
                names.setdefault(str(own), {})[str(axis)] = plain

    try:
        from torch.export.dynamic_shapes import _combine_args, _tree_map_with_path

        module = program.module()
        combined = _combine_args(module, arguments, keywords)
        shapes = dynamic_shapes
        if isinstance(shapes, tuple | list):
            shapes = dict(zip(combined, shapes, strict=False))
        _tree_map_with_path(note, combined, shapes, tree_name="inputs")
    except Exception:
        # Names and evidence alone depend on it; torch itself took the shapes.
        return names, asked
    return names, asked


def own_place(file: str, line: int) -> str:
    """`folder/file.py:12` of a place in the user's code; empty for one in torch, aotc or Python."""
    _, installed, below = file.rpartition("/site-packages/")
    if installed:
        foreign = below.startswith(("torch/", "aotc/", "functorch/", "transformers/exporters/"))
    else:
        foreign = file.startswith(("<", _STANDARD, _AOTC))
    return "" if foreign else f"{'/'.join(Path(file).parts[-2:]).lstrip('/')}:{line}"


def _refusal(error: Exception, last: str = "") -> AotcError:
    """The refusal of a module that torch does not export, at the innermost line of its own code.

    Where the error has none, that is the `last` line at which torch decided something for good.
    """
    import traceback

    place = last
    for frame in traceback.extract_tb(error.__traceback__):
        place = own_place(frame.filename, frame.lineno or 0) or place
    text = re.sub(r"\x1b\[\d+m", "", inspect.cleandoc(str(error)))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return AotcError(
        "AOTC-I121",
        "torch.export.export cannot capture the module",
        where=place,
        found=f"{type(error).__name__}: {' '.join(lines[:3])}"[:500],
    )
