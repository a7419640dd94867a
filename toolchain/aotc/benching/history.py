"""The history of measurements: one JSON line each in a file that many runs may append to."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from aotc.contract.codec.parsing import Json, ParseError, decode, encode
from aotc.contract.codec.strict_json import strict_json
from aotc.contract.results.bench_history import HistoryLine, Machine
from aotc.errors import AotcError
from aotc.files.failures import cannot_read, cannot_write
from aotc.files.locking import lock
from aotc.records import record

# Of the file that is read as a baseline.
_MAX_BYTES: Final = 64 << 20
# Measurements of one artifact that are compared with.
_MAX_LINES: Final = 20
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
_NOT_WAITING: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@record
class Conditions:
    """What two measurements must have in common to be compared."""

    machine: Machine
    source_sha256: str
    variant: str
    sizes: Mapping[str, int]
    threads: int | None
    streams: int


def require_appendable(path: Path) -> None:
    """Raise AOTC-I026 if something is there that is not a regular file, and so holds no lines."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    except OSError as error:
        raise _not_appended(error, path) from None


def append_line(path: Path, line: HistoryLine) -> None:
    """Append one line, whole or not at all, while the file is locked.

    A line that was cut off before, by a full disk or a killed process, is ended first, so that it
    spoils no other.  Raises AOTC-I018 and I026 if the file cannot be written, and G041 if another
    process holds its lock for long.
    """
    text = json.dumps(encode(line, full=True), separators=(",", ":"), allow_nan=False) + "\n"
    data = text.encode()
    try:
        descriptor = os.open(path, _OPEN | _NOT_WAITING, 0o666)
        try:
            lock(descriptor, path, what="another process writes the history")
            _append(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _not_appended(error, path) from None


def _not_appended(error: OSError, path: Path) -> AotcError:
    fix = "Name a regular file." if error.errno == errno.EINVAL else ""
    return cannot_write(error, "cannot append to the history", str(path), further_fix=fix)


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    if size:
        os.lseek(descriptor, size - 1, os.SEEK_SET)
        if os.read(descriptor, 1) != b"\n":
            data = b"\n" + data
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        # All of a line, or none of it.
        os.ftruncate(descriptor, size)
        raise


def baseline_lines(path: Path, wanted: Conditions, artifact_id: str) -> tuple[HistoryLine, ...]:
    """The last lines of a history that were measured under the conditions `wanted`.

    They are of one artifact, which is that of the last one, and at most 20.  A line that was judged
    slower is none of them, and one of the artifact `artifact_id` itself only where there is no
    other: else a second run would be compared with the first, and pass.

    Raises AOTC-I001 if the file cannot be read, I063 if a line of it cannot (or none is there),
    I064 if no line is of this machine, and I065 if none of those is of the same model and variant,
    at the same sizes and with the same threads and streams, or all such lines were judged slower.
    """
    lines = list(read_history(path))
    here = [line for line in lines if line.machine == wanted.machine]
    if not here:
        what = "the baseline is of another machine"
        raise _differs("AOTC-I064", what, path, _machine(wanted), _machine(lines[-1]))
    alike = [line for line in here if _measured(line) == _measured(wanted)]
    if not alike:
        what = "the baseline is of another model, or was measured otherwise"
        raise _differs("AOTC-I065", what, path, _measured(wanted), _measured(here[-1]))
    kept = [line for line in alike if line.verdict != "slower"]
    if not kept:
        raise AotcError(
            "AOTC-I065",
            "every measurement in the baseline was slower than the baseline of its own",
            where=str(path),
            fix="Accept the artifact: measure it with --history alone, and no --baseline.",
        )
    others = [line for line in kept if line.artifact_id != artifact_id]
    last = (others or kept)[-1].artifact_id
    same = [line for line in kept if line.artifact_id == last]
    return tuple(same[-_MAX_LINES:])


def read_history(path: Path) -> Iterator[HistoryLine]:
    """All lines of a history; raises AOTC-I001 and I063 (a line is cut off, or there is none)."""
    try:
        if not path.is_file():
            raise OSError(errno.ENOENT, "there is no such file", str(path))
        size = path.stat().st_size
        data = path.read_bytes() if size <= _MAX_BYTES else b""
    except OSError as error:
        raise cannot_read(error, "the baseline cannot be read", str(path)) from None
    if size > _MAX_BYTES:
        raise _unreadable(str(path), f"{size} bytes, at most {_MAX_BYTES} are read")
    # Not splitlines: it also splits at characters that JSON strings may hold.
    lines = [(number, text) for number, text in enumerate(data.split(b"\n"), 1) if text.strip()]
    if not lines:
        raise _unreadable(str(path), "an empty file")
    for number, text in lines:
        yield _line(text, f"{path}:{number}")


def _line(text: bytes, where: str) -> HistoryLine:
    try:
        return decode(HistoryLine, strict_json(text))
    except ParseError as error:
        raise _unreadable(where, str(error.problems[0])) from None


def _unreadable(where: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-I063",
        "the baseline is neither an artifact nor a history of 'aotc bench --history'",
        where=where,
        found=found[:300],
    )


def _measured(each: HistoryLine | Conditions) -> dict[str, Json]:
    return {
        "model": each.source_sha256,
        "variant": each.variant,
        "sizes": dict(each.sizes),
        "threads": each.threads or "one for each core",
        "streams": each.streams,
    }


def _machine(each: HistoryLine | Conditions) -> dict[str, Json]:
    facts: dict[str, Json] = encode(each.machine, full=True)
    return facts


def _differs(
    code: str, what: str, path: Path, wanted: Mapping[str, Any], found: Mapping[str, Any]
) -> AotcError:
    """The refusal, with the facts that differ; those of the last line stand for all."""
    other = [name for name in wanted if wanted[name] != found[name]]
    return AotcError(
        code,
        what,
        where=str(path),
        expected="; ".join(f"{name} {_words(wanted[name])}" for name in other)[:500],
        found="; ".join(f"{name} {_words(found[name])}" for name in other)[:500],
    )


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={size}" for name, size in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_words, value)) or "none"
    return "unknown" if value is None or value == "" else str(value)
