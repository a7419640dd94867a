"""Exported programs from files into PyTorch: of what was read and recognized, and nothing else."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.sources.plain_pickle import PlainTensor, PlainValues, leaves_of
from aotc.sources.pt2_archive import ExportedArchive, Pt2File

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram

# Modules that register the operators of a library.
_REGISTERED_BY: Final = {"torchvision": "torchvision", "onnx": "torch.onnx.ops"}


def load_program(path: Path, *, digest: bool = False) -> tuple[ExportedProgram, ExportedArchive]:
    """The program in `path`, of whose file no code is run, and what the file says of it.

    With `digest`, the second has that of the weights, for which all of them are read once more.
    Its guards are given to it when it is loaded, as loading is to compile none.
    Raises AOTC-I120 (PyTorch cannot load it), I122 (for another device), I130 to I137.
    """
    with Pt2File(path) as file:
        _require_cpu(file.content, path)
        # Nothing is left that it would be for; should something be, it has the last word.
        os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
        import torch

        _register(file.content, path)
        try:
            with _first_errors() as errors:
                program = torch.export.load(file.rewritten())
        except Exception as error:
            # PyTorch logs what went wrong, and raises that something did.
            cause = errors[0] if errors else error
            raise AotcError(
                "AOTC-I120",
                "torch cannot load the program",
                where=path.name,
                expected=f"a program of torch {torch.__version__} or older",
                found=f"torch {file.content.torch_version}; {_in_short(cause)}",
            ) from None
        program.example_inputs = _examples(file.samples)
        program._guards_code = list(file.content.guards)
        read = file.content
        if digest:
            read = replace(read, weights_sha256=file.weights_sha256())
        return program, read


def _require_cpu(content: ExportedArchive, path: Path) -> None:
    others = [device for device in content.devices if device not in ("cpu", "meta")]
    if others:
        raise AotcError(
            "AOTC-I122",
            f"the program is for the device {listed(others)}",
            where=path.name,
            expected="tensors on the CPU",
            found=listed(content.devices),
        )


def _register(content: ExportedArchive, path: Path) -> None:
    from importlib import import_module

    for library, module in _REGISTERED_BY.items():
        if not any(name.startswith(f"torch.ops.{library}.") for name in content.operators):
            continue
        try:
            import_module(module)
        except ModuleNotFoundError:
            raise AotcError(
                "AOTC-I136",
                f"the program needs operators of {library}, which is not installed",
                where=path.name,
                fix=f"Install it: pip install {library}.",
            ) from None


@contextmanager
def _first_errors() -> Iterator[list[BaseException]]:
    """The exceptions that PyTorch logs where it tries another format after a failure."""
    found: list[BaseException] = []

    class _Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                found.append(record.exc_info[1])

    handler, logger = _Kept(logging.WARNING), logging.getLogger("torch.export")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


def _in_short(error: BaseException) -> str:
    # Of a node that fails PyTorch prints all, and then the exception's own trace.
    text = str(error).strip()
    last = text.rsplit("\n", 1)[-1] if "Original exception" in text else text.split("\n", 1)[0]
    return f"{type(error).__name__}: {last}"[:300]


def _examples(samples: PlainValues | None) -> Any:
    """Positional arguments and those by name, as tensors; None where values were not saved."""
    if samples is None:
        return None
    value = samples.value
    if not (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)):
        return None
    if any(isinstance(leaf, PlainTensor) and not leaf.key for leaf in leaves_of(value, "")):
        return None
    return _made(samples, value)


def _made(samples: PlainValues, value: Any) -> Any:
    if isinstance(value, PlainTensor):
        return _tensor(samples, value)
    if isinstance(value, Mapping):
        return {key: _made(samples, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_made(samples, item) for item in value)
    return value


def _tensor(samples: PlainValues, value: PlainTensor) -> Tensor:
    import torch

    data, dtype = bytearray(samples.storage(value)), getattr(torch, value.dtype)
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.as_strided(value.shape, value.strides, value.offset).clone()
