"""Answers of original models that are kept, to be compared with those of a later runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from aotc.base.records import field, record, replace
from aotc.spec.codec import Bounds, Json, Problem, encode
from aotc.spec.evidence import Comparison, OutputError
from aotc.spec.json import canonical_sha256
from aotc.spec.payload import Sha256
from aotc.spec.reports import Refusal


@record
class KeptValue:
    """One input or output of a model in one call."""

    name: str
    value: Annotated[str, "type and shape, such as float32[1, 3]"]
    sha256: Annotated[Sha256, "of its file, a .npy, or JSON for what is no plain array"]
    bytes: Annotated[int, Bounds(0), "of its file"]
    form: Literal["npy", "json"]
    sketch: Annotated[
        Json,
        "of an output: all values if they are few, else some at fixed positions, and the least and "
        "the greatest of each of 128 blocks; null: left out",
    ] = None

    @property
    def file(self) -> str:
        """The name of its file in a folder of kept answers."""
        return f"{self.sha256}.{self.form}"


@record
class KeptCall:
    """The inputs of one call, and what the original model answered."""

    name: Annotated[str, "of the fixture"]
    inputs: tuple[KeptValue, ...]
    outputs: tuple[KeptValue, ...]
    in_folder: Annotated[bool, "in a folder of kept answers: it has the files"] = False


@record
class ModelAnswers:
    """What one original model answered; the digest is that of the other fields."""

    model: Annotated[str, "name in its folder"]
    source: Annotated[Sha256, "of the model file, and of its external data if it has any"]
    seed: Annotated[int, "that inputs were drawn from"]
    onnxruntime: Annotated[str, "version that answered"]
    calls: tuple[KeptCall, ...]
    digest: Annotated[str, "sha256 of the other fields, as canonical JSON"] = ""

    def contents_sha256(self) -> str:
        """What `digest` must be."""
        return canonical_sha256(encode(replace(self, digest="")))


@record
class ToolVersions:
    """Versions of the software that built the models; empty if unknown."""

    aotc: str = ""
    python: str = ""
    onnx: str = ""
    onnxruntime: str = ""
    numpy: str = ""
    providers: Annotated[
        Mapping[str, str], "version of each available execution provider, by its name"
    ] = field(default_factory=dict)


@record
class KeptAnswers:
    """`answers.json` of a folder of kept answers."""

    schema: Literal["aotc.kept-answers/1"] = "aotc.kept-answers/1"
    models: tuple[ModelAnswers, ...] = ()

    def problems(self) -> Iterator[Problem]:
        """Rules that the types do not express: each model is listed once."""
        if len({each.model for each in self.models}) != len(self.models):
            yield Problem("models", "a model is listed twice")


@record
class ChangedAnswer:
    """An output of an original model that is no longer what it was."""

    model: str
    call: Annotated[str, "fixture"]
    error: OutputError
    whole: Annotated[bool, "false: judged by the sketch in a document"] = True


@record
class LeftOut:
    """A model, or a call of it, of which something was not kept or not compared."""

    model: str
    reason: str


@record
class AnswersCheck:
    """What original models answer now, and whether they answered so before."""

    folder: Annotated[str, "folder of kept answers; empty: none"] = ""
    kept: Annotated[int, "models whose answers were added to the folder"] = 0
    before: Annotated[tuple[str, ...], "documents and folders that were compared with"] = ()
    onnxruntime: Annotated[tuple[str, ...], "versions that answered then"] = ()
    compared: Annotated[int, "models"] = 0
    changed: Annotated[tuple[ChangedAnswer, ...], "out of tolerance, the worst call of each"] = ()
    refused: Annotated[tuple[Refusal, ...], "kept answers that say nothing of a model"] = ()
    not_compared: tuple[LeftOut, ...] = ()
    not_kept: tuple[LeftOut, ...] = ()


# Answers of two artifacts.


@record
class SameCalls:
    """Two artifacts on the same inputs: how they were compared, and how far apart they are."""

    how: Annotated[
        Literal["ran", "ran-b", "golden", "one-id", "none"],
        "ran: both were run; ran-b: B alone; golden: golden outputs of both were compared; one-id: "
        "their manifests are equal",
    ]
    reason: Annotated[
        str, "why both were not run, or why nothing was compared, or that inputs were made"
    ] = ""
    calls: Annotated[tuple[Comparison, ...], "B with A, by fixture"] = ()
    golden: Annotated[
        tuple[Comparison, ...], "B, where it was run, with the golden outputs of A; by fixture"
    ] = ()
    left_out: Annotated[tuple[str, ...], "fixtures that one of them refuses, with the reason"] = ()

    def worst(self) -> tuple[tuple[str, OutputError], ...]:
        """Of each output the worst error, one that did not pass first, with its fixture."""
        found: dict[str, tuple[str, OutputError]] = {}
        for call in (*self.calls, *self.golden):
            for error in call.outputs:
                known = found.get(error.output)
                if known is None or _severity(error) > _severity(known[1]):
                    found[error.output] = (call.fixture, error)
        return tuple(found.values())


def _severity(error: OutputError) -> tuple[bool, float]:
    return not error.passed, error.max_abs
