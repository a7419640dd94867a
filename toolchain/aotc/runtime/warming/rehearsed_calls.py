"""Calls before the first one: what a call passes through is then not met for the first time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.contract.manifest.document import Manifest
from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.runtime.warming.sized_inputs import inputs_at

# Python specializes code in its first executions; a replay takes milliseconds at most.
_CALLS: Final = 3


def rehearse_calls(
    answer: Callable[[Mapping[str, Data]], object],
    sizes: Sequence[Mapping[str, int]],
    manifest: Manifest,
    payload: Path,
) -> None:
    """Answer calls of each captured size, as `run` does, whose answers nobody wants.

    Graphs are captured and proven at this point: a refusal, such as of values that a fixture has
    after it was resized, is left to a request that gives cause for it.
    """
    for wanted in sizes:
        inputs = inputs_at(manifest, manifest.domain.complete(wanted), payload)
        if inputs is None:
            continue
        with suppress(AotcError):
            for _ in range(_CALLS):
                answer(inputs)
