"""Graphs of a variant with some more nodes kept in float32, as a search tries them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json
from aotc.contract.profile_terms import Precision
from aotc.records import record
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import LoweredModel


@record
class TrialGraph:
    """One graph on disk, with the folder of its external data.

    `changed` are the nodes of the imported graph, by name and in its order, that compute in the
    lower precision in it: those that can be kept besides.
    """

    model: Path
    weights: Path
    changed: tuple[str, ...]


# Writes the graph in which the named nodes of the imported graph stay in float32, into a folder.
Writer = Callable[[Json, frozenset[str], Path], TrialGraph]

# What writes trial graphs in the worker, as `module:function`, by precision.
WRITERS: Final[Mapping[Precision, str]] = {}


def trial_request(lowered: LoweredModel, options: BuildOptions) -> Json | None:
    """`writer` and what it is `asked`, for trials of a variant; None if its precision is its own.

    What the profile keeps in float32 is kept in each trial.
    """
    return None
