"""What a backend is: one execution provider of ONNX Runtime, from claim to session.

A backend is one file beside this one and one row of `contract.known_providers`.  Claims and
compilations run in sandboxed processes of their own: native code may crash, hang or allocate
without end.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from aotc.contract.known_providers import KNOWN_PROVIDERS
from aotc.contract.manifest.divided_graph import Certainty
from aotc.contract.manifest.requirements import NO_REQUIREMENTS, Requirements
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.profile_terms import Precision
from aotc.contract.target import Target
from aotc.records import field, record
from aotc.registry import Registry

if TYPE_CHECKING:
    import onnx

BACKENDS = Registry("backend", tuple((row.name, row.backend) for row in KNOWN_PROVIDERS))

Shape = tuple[int, ...]


@record
class Capability:
    """Whether this machine has the execution provider; `reason` says why not.

    `available`: its packages are installed, so that it can claim and compile.  `runs`: sessions
    with it can be created here, too; `why_not` says what is missing for that.  `fix`: what to do
    where it is not available, but for what the catalogue says.
    """

    name: str
    ort_name: str
    available: bool
    reason: str = ""
    version: str = ""
    runs: bool = True
    why_not: str = ""
    fix: str = ""


@record
class Refusal:
    """Why the backend would not run one node, in its own words where it speaks."""

    node: str
    reason: str


@record
class Claims:
    """What the backend would run: names of nodes, those of bodies of control flow among them.

    `how` is `predicted` where no provider was asked but a table.  A node of the graph is in
    `nodes` or in `refusals`.  Who claims a control-flow node without its bodies' nodes runs the
    node alone.  `failed` is the provider's message where it failed on the whole graph, and what it
    claims is a guess that compiling will prove.
    """

    nodes: frozenset[str]
    refusals: tuple[Refusal, ...] = ()
    how: Certainty = "observed"
    notes: tuple[str, ...] = ()
    failed: str = ""


@record
class ClaimRequest:
    """A graph to claim nodes of.

    `model`: an ONNX file; every node has a unique name, and values have inferred types and shapes
    where they are known.  Its external data is in the folder `weights`.
    """

    model: Path
    weights: Path
    target: Target
    precision: Precision = "keep"


@record
class CompileRequest:
    """One partition to compile.

    `model`: an ONNX file that is self-contained but for external data in the folder `weights`;
    its graph inputs and outputs are those of the partition.  `stem`: a file name without suffix,
    unique in the variant, from which all names that the backend writes are made.  `shapes`: for
    each graph input (minimum, optimum, maximum) where all its dims are known.  `share`: constants
    may be left in the folder and read there at load.
    """

    model: Path
    weights: Path
    stem: str
    target: Target
    precision: Precision = "keep"
    shapes: Mapping[str, tuple[Shape, Shape, Shape]] = field(default_factory=dict)
    share: bool = True


@record
class Payload:
    """A compiled partition.

    `attributes`: of its `com.microsoft::EPContext` node.  `files`: what was written, relative to
    the working directory; the attribute `ep_cache_context` names the one that the node reads.
    `compatibility`: the provider's own compatibility string, where it has one.  `options`: provider
    options that reading it needs, over those of `session`; `${weights}` in them stands for the
    folder of the variant's weights.  `beside`: it can be read as well with the options that parts
    of the same variant need which leave their constants in the folder.
    """

    attributes: Mapping[str, str | int]
    files: tuple[str, ...]
    compatibility: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    beside: bool = True


@record
class Rates:
    """Rough speeds of a device, to weigh a partition against its borders; per second."""

    flops: float
    bytes: float
    transfer_bytes: float
    transfer_seconds: float


class Backend(ABC):
    """One execution provider."""

    name: str
    ort_name: str
    device: ClassVar[str] = "cpu"
    # Its partitions become EPContext nodes; the others stay ONNX, and ORT assigns them.
    compiles: ClassVar[bool] = False
    # It compiles for the CPU of the build host, and for no other.
    native: ClassVar[bool] = False
    precisions: ClassVar[tuple[Precision, ...]] = ("keep",)
    rates: ClassVar[Rates]

    @abstractmethod
    def probe(self) -> Capability:
        """What this machine has of it; raises nothing where it is missing."""

    @abstractmethod
    def claim(self, request: ClaimRequest) -> Claims:
        """The nodes it would run on the target, and a reason for each other one.

        Runs in a sandboxed process.
        """

    def predict(self, model: onnx.ModelProto) -> Claims | None:
        """Claims by what is known of the provider, nothing asked or run; None: nothing is known.

        Constants of `model` need not be there.
        """
        return None

    def compile(self, request: CompileRequest) -> Payload:
        """Compile one partition into files of the working directory.

        Runs in a fresh sandboxed process.  Raises AOTC-P005 where the provider refuses.
        """
        raise NotImplementedError(f"{self.name} does not compile")

    def join(self, payloads: Sequence[Payload], folder: Path, stem: str) -> tuple[Payload, ...]:
        """Make one whole of all partitions of a variant, whose files are in `folder`."""
        return tuple(payloads)

    @abstractmethod
    def session(self, optimization: Optimization, precision: Precision = "keep") -> SessionSpec:
        """How a session with this provider is created: what is replayed at load."""

    def with_threads(self, options: Mapping[str, str], threads: int) -> dict[str, str]:
        """Its provider options for `threads` of one operator, beside those of ORT's own pool."""
        return dict(options)

    def beside(self, options: Mapping[str, str], operators: Collection[str]) -> dict[str, str]:
        """Its provider options where nodes of these operators are left to other providers."""
        return dict(options)

    def prepare(self) -> None:
        """Do what a session with it needs beforehand in this process; may be called again."""
        return

    def library(self) -> Path | None:
        """The plugin library that has to be registered; None for what the wheel is built with."""
        return None

    def computes_in(self, wanted: Precision) -> Precision:
        """`wanted`, or the exact one where this provider lacks it."""
        return wanted if wanted in self.precisions else "keep"

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """What a host must have to run its partitions, over what any variant requires."""
        return NO_REQUIREMENTS

    @abstractmethod
    def fingerprint(self) -> str:
        """What decides the bytes it makes and the numbers it computes: versions and builds.

        Raises AOTC-I019 and AOTC-I020 where the provider's packages are unusable.
        """


def mentioned(message: str, names: Mapping[str, object]) -> frozenset[str]:
    """Those of `names` that stand in a provider's message as whole words."""
    words = frozenset(re.split(r"[\s'\"()<>,:;]+", message))
    return frozenset(name for name in names if name in words)
