"""What runs in each of two environments: values of the original's nodes, and calls by turns."""

from __future__ import annotations

import gc
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aotc.graph import values
from aotc.graph.view import op_of, read_values
from aotc.precision.node_comparison import Side
from aotc.runtime.rehearsal_jobs import open_staged
from aotc.session.parity import WITHOUT_SLICES, compare, same_bits
from aotc.spec.codec import Json, decode, encode
from aotc.spec.precision import Tolerance
from aotc.spec.upgrade import BlamedNode
from aotc.spec.variant import SessionSpec

TURNS: Final = "turns"
"""The socket in a job's folder by which it is told to call."""
# Of the values that are kept for the other environment.
_MAX_BYTES: Final = 512 << 20
_AT_ONCE: Final = 64
# Sums on several threads change last bits from run to run.
_ON_ONE_THREAD: Final = SessionSpec(optimization="disable", threads=1)
_WARM_UP: Final = 3


def keep_values(request: Json) -> Json:
    """Run the original `model` at `inputs`, and keep what its nodes make in files of this folder.

    Values are in the order of the nodes, as many as take at most 512 MiB.  Returns
    the names of their files by the names of values.
    """
    side, inputs = _original(request), _loaded(request["inputs"])
    kept: dict[str, str] = {}
    total = 0
    for group in _groups(side):
        for name, value in _values(side, inputs, group).items():
            total += values.nbytes(value)
            if total > _MAX_BYTES:
                return kept
            path = Path(f"value-{len(kept)}")
            kept[name] = str(values.save(value, path).absolute())
    return kept


def blame(request: Json) -> Json:
    """The node of the original `model` that first computes otherwise than in the files `kept`.

    That is one out of tolerance whose own inputs are within, else one of other bits whose inputs
    are equal.  None where there is no such node, or it lies after those that were kept.
    """
    side, inputs = _original(request), _loaded(request["inputs"])
    tolerance = decode(Tolerance, request["tolerance"])
    kept: Mapping[str, str] = request["kept"]
    makers = {name: node for node in side.read().graph.node for name in node.output}
    within: dict[str, bool] = {}
    exact: dict[str, bool] = {}
    first: BlamedNode | None = None
    for group in _groups(side):
        if group[0] not in kept:
            break
        for name, found in _values(side, inputs, group).items():
            if name not in kept:
                continue
            expected = values.load(Path(kept[name]))
            exact[name] = same_bits(expected, found)
            error = compare(expected, found, tolerance, name, beside=WITHOUT_SLICES)
            within[name] = error.passed
            node = makers[name]
            reads = read_values(node)
            unmoved = all(exact.get(read, True) for read in reads)
            blamed = BlamedNode(
                node=node.name or name,
                op=op_of(node),
                value=name,
                max_abs=error.max_abs,
                exact=unmoved,
            )
            if not error.passed and all(within.get(read, True) for read in reads):
                return encode(blamed, full=True)
            if not exact[name] and unmoved and first is None:
                first = blamed
    return None if first is None else encode(first, full=True)


def _original(request: Json) -> Side:
    model = Path(request["model"])
    return Side(model=model, weights=model.parent, session=_ON_ONE_THREAD)


def _loaded(paths: Mapping[str, str]) -> dict[str, values.Data]:
    return {name: values.load(Path(path)) for name, path in paths.items()}


def _groups(side: Side) -> list[list[str]]:
    """Names of all values that nodes of the main graph make, in order."""
    names = [name for node in side.read().graph.node for name in node.output if name]
    return [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]


def _values(side: Side, inputs: Mapping[str, values.Data], names: list[str]) -> dict[str, Any]:
    return side.values(side.read(), inputs, names)


# Calls by turns: each environment has a process that holds its artifact, and one at a time calls.


def call_by_turns(request: Json) -> Json:
    """Open the `artifact` as `open_staged` does, and call it at `inputs` as the socket says.

    The first line to the socket is the seconds of a warm call.  Then each line read is a number of
    calls, which is answered by the list of their seconds; before them one is made that does not
    count.  Ends with the connection.
    """
    inputs = _loaded(request["inputs"])
    with open_staged(request["staged"], None) as model, socket.socket(socket.AF_UNIX) as turns:
        for _ in range(_WARM_UP):
            started = time.perf_counter()
            model.run(inputs)
            pilot = time.perf_counter() - started
        turns.connect(TURNS)
        with turns.makefile("rwb") as lines:

            def answer(found: Json) -> None:
                lines.write(json.dumps(found).encode() + b"\n")
                lines.flush()

            answer(pilot)
            gc.disable()
            for line in lines:
                model.run(inputs)
                seconds = []
                for _ in range(int(line)):
                    started = time.perf_counter()
                    model.run(inputs)
                    seconds.append(time.perf_counter() - started)
                answer(seconds)
    return None
