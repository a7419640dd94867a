"""Calling the user's own Python code: what it raises, prints, starts and leaves behind.

It runs in a sandboxed process, whose standard output and error are a log, and whose processes all
end with it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Literal

from aotc.base.errors import AotcError, install_extra
from aotc.base.files.reading import file_sha256
from aotc.base.text import did_you_mean
from aotc.spec.framework_capture import SourceFile
from aotc.spec.payload import Finding

# prctl(2): orphans below become children of this process.
_PR_SET_CHILD_SUBREAPER: Final = 36
_EXTRAS: Final = {"torch": "torch", "jax": "jax", "jax2onnx": "jax", "sklearn": "sklearn"}


class Called:
    """A call of the user's callable: its `value`, the `files` of its code, what it did besides."""

    def __init__(self, source: str, directory: str) -> None:
        """Call `package.module:callable` in `directory`, whose modules are imported first.

        Raises AOTC-I150 (there is none), I151 (it raised), I152 (it ends the process), and I019
        (it imports a framework that is not installed).
        """
        self.source = source
        self._printed = self._left = False
        with _in_folder(directory):
            self.value = self._call()
        self.files = _own_files(source)

    def findings(self) -> tuple[Finding, ...]:
        """What is told of the call."""
        found = []
        if self._left:
            what = "the callable left processes or threads, which were ended"
            found.append(Finding(code="AOTC-I154", what=what, where=self.source))
        if self._printed:
            what = "the callable prints, which is left out"
            found.append(Finding(code="AOTC-I155", what=what, where=self.source))
        return tuple(found)

    def _call(self) -> Any:
        process, threads = os.getpid(), set(threading.enumerate())
        _adopt_orphans()
        before = _written()
        failure: BaseException | None = None
        value = None
        try:
            function = _callable_named(self.source)
            _seed()
            value = function()
        # SystemExit and KeyboardInterrupt too: it is the user's code that raised them.
        except BaseException as error:
            failure = error
        if os.getpid() != process:
            # A copy of this process that came back from the user's code: its result is nobody's.
            os._exit(0)
        self._left = _end_children() or not threads.issuperset(
            thread for thread in threading.enumerate() if thread.is_alive()
        )
        self._printed = _written() > before
        if failure is not None:
            raise _refusal(failure, self.source) from None
        return value


@contextlib.contextmanager
def _in_folder(directory: str) -> Iterator[None]:
    """In the user's working directory, whose modules are imported, as `python -m` has it."""
    here = Path.cwd()
    if directory:
        sys.path.insert(0, directory)
        os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(here)


def _callable_named(source: str) -> Callable[[], Any]:
    module_name, _, name = source.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise AotcError(
            "AOTC-I150",
            f"there is no module {error.name}",
            where=source,
            expected="a module of the working directory, of PYTHONPATH, or an installed one",
        ) from None
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AotcError(
                "AOTC-I150",
                f"{module_name} has no {part}",
                where=source,
                found=did_you_mean(part, [each for each in vars(found) if each[0] != "_"])
                if hasattr(found, "__dict__")
                else "",
            ) from None
    if not callable(found):
        raise AotcError(
            "AOTC-I150",
            f"{name} of {module_name} cannot be called",
            where=source,
            expected="a function without arguments",
            found=type(found).__name__,
        )
    function: Callable[[], Any] = found
    return function


def _seed() -> None:
    """The same random numbers at each call, where the user's code does not seed for itself."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def _refusal(error: BaseException, source: str) -> BaseException:
    if isinstance(error, AotcError):
        return error
    place = place_of(error)
    if isinstance(error, SystemExit):
        return AotcError(
            "AOTC-I152",
            "the callable ends the process",
            where=place or source,
            found=f"SystemExit: {error.code}",
        )
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        top = error.name.partition(".")[0]
        if top in _EXTRAS:
            return AotcError(
                "AOTC-I019",
                f"{source} needs the package {top}",
                where=place,
                fix=install_extra(_EXTRAS[top]),
            )
    first = next(iter(str(error).strip().splitlines()), "")
    return AotcError(
        "AOTC-I151",
        "the callable raised an exception",
        where=place or source,
        found=f"{type(error).__name__}: {first}"[:500].removesuffix(": "),
    )


def place_of(error: BaseException, *, installed: bool = True) -> str:
    """`folder/file.py:12`: the innermost line of the user's code in the traceback of an exception.

    That is neither Python's own nor installed; without any, of a package if `installed`.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return shown(error.filename, error.lineno)
    own = package = ""
    for frame, line in _frames(error.__traceback__):
        file = frame.f_code.co_filename
        kind = _owner(file)
        if kind == "user":
            own = shown(file, line)
        elif kind == "package":
            package = shown(file, line)
    return own or (package if installed else "")


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _owner(file: str) -> Literal["user", "package", "python"]:
    if "/site-packages/" in file or "/dist-packages/" in file:
        return "package"
    ours = str(Path(__file__).parents[1])
    if file.startswith(("<", f"{ours}/", f"{Path(os.__file__).parent}/")):
        return "python"
    return "user"


def shown(file: str, line: int) -> str:
    """`folder/file.py:12` of a place in code."""
    return f"{'/'.join(Path(file).parts[-2:]).lstrip('/')}:{line}"


def _own_files(source: str) -> tuple[SourceFile, ...]:
    """The file of the callable's module."""
    file = getattr(sys.modules.get(source.partition(":")[0]), "__file__", None)
    if not file or not Path(file).is_file():
        return ()
    path = Path(file)
    return (SourceFile(name=path.name, size=path.stat().st_size, sha256=file_sha256(path)),)


# What it did besides.


def _written() -> int:
    """Bytes in the log of this process, to which standard output and error go."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    try:
        return os.fstat(1).st_size
    except OSError:
        return 0


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _end_children() -> bool:
    """Kill all processes below this one, also those of other sessions; whether there were any."""
    if not Path("/proc/self/stat").exists():
        return False
    found, until = False, time.monotonic() + 10.0
    while (children := _children(os.getpid())) and time.monotonic() < until:
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                # One that had ended by itself was only not waited for.
                _, status = os.waitpid(child, 0)
                found = found or os.WIFSIGNALED(status)
        # Theirs are children of this process now.
    return found


def _children(parent: int) -> list[int]:
    children = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name of the program, in parentheses, may have any characters.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    children.append(int(entry.name))
    return children
