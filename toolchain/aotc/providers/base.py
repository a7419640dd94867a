"""The interface of a backend: one execution provider of ONNX Runtime, from claim to session.

A backend is one file in this folder and one row of `spec/providers.py`.  Claims and
compilations run in separate sandboxed processes: native code may crash, hang or allocate without
limit.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.base.registry import Registry
from aotc.spec.precision import Precision, QuantizedForm, WantedPrecision
from aotc.spec.providers import KNOWN_PROVIDERS, CudaOptions, Rates
from aotc.spec.target import Target
from aotc.spec.variant import (
    NO_REQUIREMENTS,
    Certainty,
    Optimization,
    PassRecord,
    Requirements,
    SessionSpec,
)

if TYPE_CHECKING:
    import onnx


BACKENDS = Registry("backend", tuple((row.name, row.backend) for row in KNOWN_PROVIDERS))

Shape = tuple[int, ...]


@record
class Capability:
    """Whether this machine has the execution provider; `reason` says why not.

    `available`: its packages are installed, so it can claim and compile.  `runs`: sessions with it
    can be created here as well; `why_not` says what is missing for that.  `fix`: what to do if it
    is not available, in place of the catalogue's fix.
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
    """Why the backend would not run a node, in the provider's own words if there are any."""

    node: str
    reason: str


@record
class Claims:
    """The nodes that the backend would run, by name, those in control-flow subgraphs included.

    `how` is `predicted` if a table was used instead of the provider.  Every node of the graph is in
    `nodes` or in `refusals`.  Claiming a control-flow node without the nodes of its subgraphs means
    to run only the node itself.  `failed` is the provider's message if it failed on the whole
    graph; then the claims are a guess that compiling will test.
    """

    nodes: frozenset[str]
    refusals: tuple[Refusal, ...] = ()
    how: Certainty = "observed"
    notes: tuple[str, ...] = ()
    failed: str = ""


@record
class ClaimRequest:
    """A graph whose nodes are to be claimed.

    `model` is an ONNX file; every node has a unique name, and values have inferred types and shapes
    if they are known.  Its external data is in the folder `weights`.
    """

    model: Path
    weights: Path
    target: Target
    precision: Precision = "keep"


@record
class CompileRequest:
    """One partition to compile.

    `model` is an ONNX file that is self-contained except for external data in the folder `weights`;
    its graph inputs and outputs are those of the partition.  `stem` is a file name without suffix,
    unique in the variant, for all files that the backend writes.  `shapes` has (minimum, optimum,
    maximum) for each graph input whose dims are all known.  `share`: constants may stay in the
    folder, to be read there at load.
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

    `attributes` are those of its `com.microsoft::EPContext` node.  `files` are the files written,
    relative to the working directory; the attribute `ep_cache_context` names the one that the node
    reads.  `compatibility` is the provider's own compatibility string, if it has one.  `options`
    are provider options needed to read it, in addition to those of `session`; `${weights}` in them
    stands for the folder of the variant's weights.  `mixes_with_shared`: it can also be read with
    the options of parts that leave their constants in that folder.
    """

    attributes: Mapping[str, str | int]
    files: tuple[str, ...]
    compatibility: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    mixes_with_shared: bool = True


# A variant's proof: its answers are wrong, its graph does not load or run, its process died or lost
# the GPU.
WRONG: Final = frozenset({"AOTC-N001", "AOTC-N078", "AOTC-R008", "AOTC-I013", "AOTC-R036"})
# Its CUDA graphs cannot be captured, or not beside each other.
UNCAPTURED: Final = frozenset({"AOTC-P014", "AOTC-P015"})
_CONVOLUTIONS: Final = frozenset({"Conv", "FusedConv"})
# Transposed ones are planned as all others are.
_PLANNED: Final = _CONVOLUTIONS | {"ConvTranspose"}


@record
class SessionUse:
    """What a session is for: the variant's options, and what providers ask of its graph.

    `operators` are those of its nodes, with domains, and `names` those nodes' names, where they are
    known; `fused`: nodes of it were fused by `fuse`; `captured` is the number of its captured
    sizes, if it is created by `capturing`, and `weights_bytes` the size of the weights that each
    session has.  `alone`: it is called with one size, and no other.
    """

    cuda: CudaOptions = CudaOptions()
    operators: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    fused: bool = False
    captured: int = 0
    weights_bytes: int = 0
    alone: bool = False

    @property
    def apart(self) -> bool:
        """Whether each captured size has a session of its own.

        Where the profile leaves it to the build, graphs with convolutions do: ONNX Runtime keeps
        cuDNN's plan of the last size alone, which may free what a captured graph of another size
        still launches (ADR 96).
        """
        wanted = self.cuda.graphs.sessions
        return wanted == "each" or (
            wanted == "auto" and not self.alone and any(map(_is_planned, self.operators))
        )


def is_convolution(operator: str) -> bool:
    """Whether an operator, with or without its domain, is a convolution that is not transposed."""
    return operator.rpartition("::")[2] in _CONVOLUTIONS


def _is_planned(operator: str) -> bool:
    """Whether ONNX Runtime keeps a plan of cuDNN's for the size that the operator ran last."""
    return operator.rpartition("::")[2] in _PLANNED


ANY_USE = SessionUse()


@record
class GivenUp:
    """What a provider gives up of its own choices, as a variant failed with it.

    `options` are the variant's without the `choice`; `code` and `what` are of the finding.
    """

    options: CudaOptions
    choice: str
    code: str
    what: str


class Backend(ABC):
    """One execution provider."""

    name: str
    ort_name: str
    device: ClassVar[str] = "cpu"
    # Whether its partitions become EPContext nodes; else they stay ONNX, and ORT assigns them.
    compiles: ClassVar[bool] = False
    # Whether it compiles only for the CPU of the build host.
    native: ClassVar[bool] = False
    precisions: ClassVar[tuple[Precision, ...]] = ("keep",)
    # Those in which it may be quicker than in `keep`, the likely quickest first.
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ()
    # Forms of models quantized beforehand that it runs, by precision; what is not quantized in
    # them it computes as with `keep`.
    quantized: ClassVar[Mapping[WantedPrecision, tuple[QuantizedForm, ...]]] = {}
    # Whether it computes in half precision what the graph states in it, not by an option.
    half_by_types: ClassVar[bool] = False
    rates: ClassVar[Rates]

    @abstractmethod
    def probe(self) -> Capability:
        """What this machine has of the provider; does not raise if it is missing."""

    def capability(
        self, *, version: str = "", reason: str = "", why_not: str = "", fix: str = ""
    ) -> Capability:
        """What `probe` says: not available for a `reason`, or without sessions by `why_not`."""
        why_not = reason or why_not
        return Capability(
            name=self.name,
            ort_name=self.ort_name,
            available=not reason,
            reason=reason,
            version=version,
            runs=not why_not,
            why_not=why_not,
            fix=fix,
        )

    @abstractmethod
    def claim(self, request: ClaimRequest) -> Claims:
        """The nodes that it would run on the target, and a reason for each other node.

        Called in a sandboxed process.
        """

    def predict(self, model: onnx.ModelProto) -> Claims | None:
        """Claims by known rules, without asking the provider; None if there are no such rules.

        The values of constants in `model` need not be available.
        """
        return None

    def fuses(self, options: CudaOptions) -> bool:
        """Whether `fuse` may change a graph that it is the first provider of."""
        return False

    def fuse(
        self, model: onnx.ModelProto, weights: Path
    ) -> tuple[onnx.ModelProto, tuple[PassRecord, ...]]:
        """`model` with operators that it alone has fast kernels for; no passes if nothing is found.

        External data is in the folder `weights`.  Raises AOTC-O011 if a library is missing.
        """
        return model, ()

    def gives_up(self, refusal: AotcError, use: SessionUse) -> GivenUp | None:
        """Its own choice to do without after `refusal` of a variant whose first provider it is."""
        return None

    def capturing(
        self, session: SessionSpec, model: onnx.ModelProto, placed: Mapping[str, str]
    ) -> tuple[SessionSpec, str]:
        """`session` whose runs are captured as graphs of the device; or why it cannot be.

        `placed` are the ORT names of providers, by node of `model`.
        """
        return session, f"{self.name} captures no graphs"

    def compile(self, request: CompileRequest) -> Payload:
        """Compile one partition into files of the working directory.

        Called in a fresh sandboxed process.  Raises AOTC-P005 if the provider refuses.
        """
        raise NotImplementedError(f"{self.name} does not compile")

    def join(self, payloads: Sequence[Payload], folder: Path, stem: str) -> tuple[Payload, ...]:
        """Combine the compiled partitions of a variant, whose files are in `folder`.

        New files are named after `stem`.  By default the partitions stay as they are.
        """
        return tuple(payloads)

    @abstractmethod
    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """How a session with this provider is created: this is recorded, and repeated at load."""

    def with_threads(self, options: Mapping[str, str], threads: int) -> dict[str, str]:
        """Its provider options for `threads` per operator, if it has threads of its own."""
        return dict(options)

    def with_weights(self, options: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Its provider options for a session whose external weights are in `folder`.

        They are this process's own, about how the weights are read.
        """
        return dict(options)

    def steadier(self, session: SessionSpec) -> Mapping[str, SessionSpec]:
        """Sessions that may repeat their bytes where `session` does not, by the profile's line."""
        if session.threads == 1:
            return {}
        options = {
            name: self.with_threads(stated, 1) if name == self.ort_name else stated
            for name, stated in session.provider_options.items()
        }
        return {"threads: 1": replace(session, threads=1, provider_options=options)}

    def options_excluding(
        self, options: Mapping[str, str], operators: Collection[str]
    ) -> dict[str, str]:
        """Its provider options if nodes of these operators are left to other providers."""
        return dict(options)

    def prepare(self) -> None:
        """Do what its sessions need beforehand in this process; may be called repeatedly."""
        return

    def library(self) -> Path | None:
        """The plugin library that has to be registered; None if it is part of ORT's wheel."""
        return None

    def computes_in(self, wanted: Precision) -> Precision:
        """`wanted`, or `keep` if this provider lacks that precision."""
        return wanted if wanted in self.precisions else "keep"

    def quantizes_in(self, precision: WantedPrecision) -> tuple[QuantizedForm, ...]:
        """The forms of models quantized to `precision` that it runs."""
        return self.quantized.get(precision, ())

    def may_gain_by(self) -> tuple[Precision, ...]:
        """The precisions that it has and may be quicker in, the likely quickest first."""
        return tuple(
            name
            for name in self.quicker_precisions
            if name in self.precisions or self.quantizes_in(name)
        )

    def abilities(self) -> tuple[str, ...]:
        """What a variant may ask of it, in words: its precisions, and forms of quantized models."""
        forms = (f"{name} ({', '.join(forms)})" for name, forms in self.quantized.items())
        return (*self.precisions, *forms)

    def require_precision(self, precision: Precision) -> None:
        """Raise AOTC-N008 if it does not compute in `precision`."""
        if precision not in self.precisions:
            raise AotcError(
                "AOTC-N008",
                f"{self.name} does not compute in {precision}",
                where="precision",
                expected=", ".join(self.precisions),
                found=precision,
            )

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """What a host needs to run its partitions, in addition to what every variant requires."""
        return NO_REQUIREMENTS

    @abstractmethod
    def fingerprint(self) -> str:
        """Versions and builds that determine the bytes it writes and the numbers it computes.

        Raises AOTC-I019 and AOTC-I020 if the provider's packages are not usable.
        """


def installed_version(distribution: str) -> str:
    """The version of an installed distribution; "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def package_folder(package: str) -> Path | None:
    """The folder of a package, which is not imported; None if it is not installed."""
    from importlib.util import find_spec

    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def names_in_message(message: str, names: Mapping[str, object]) -> frozenset[str]:
    """Those of `names` that occur as whole words in a provider's message."""
    words = frozenset(re.split(r"[\s'\"()<>,:;]+", message))
    return frozenset(name for name in names if name in words)
