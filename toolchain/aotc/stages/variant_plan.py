"""The plan of one variant: what the profile wants of it, as the first stage of a build reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from aotc.contract.cuda_options import CudaOptions
from aotc.contract.known_providers import CAPTURING
from aotc.contract.manifest.served_sizes import by_size
from aotc.contract.precision.quantization import QuantizationSpec
from aotc.contract.profile import Profile, VariantSpec
from aotc.contract.profile_terms import Level, Precision, Prepack
from aotc.records import field, record


@record
class VariantPlan:
    """One variant to be built: the profile's `spec`, for one bucket of each bucketed dim.

    `buckets` is empty for the variant that accepts all sizes.  `vnni` in `isa` is the companion of
    a baseline variant whose integer products need that feature.
    """

    name: str
    spec: str
    isa: Literal["baseline", "host", "vnni"]
    prepack: Prepack = "at-load"
    buckets: Mapping[str, int] = field(default_factory=dict)
    providers: tuple[str, ...] = ("cpu",)
    precision: Precision = "keep"
    quantization: QuantizationSpec = QuantizationSpec()
    # Names or patterns of nodes of the imported graph that a lower precision leaves in float32.
    keep_float32: tuple[str, ...] = ()
    threads: int | None = None
    optimization: Level | Literal["disable"] = "auto"
    # Only a level that the profile does not state may be lowered.
    may_lower_level: bool = True
    cuda: CudaOptions = CudaOptions()
    # The combinations of buckets that it takes and, if ONNX Runtime can, captures as CUDA graphs;
    # an empty one stands for the optimal sizes.
    captures: tuple[Mapping[str, int], ...] = ()
    # Whether ranges of activations are those of calibration data, if there is any.
    may_be_static: bool = False

    @property
    def on_cuda(self) -> bool:
        """Whether CUDA is the first provider."""
        return self.providers[:1] == (CAPTURING.name,)

    @property
    def wants_graphs(self) -> bool:
        """Whether sizes are to be captured as CUDA graphs, at warm-up or at their first call."""
        return self.on_cuda and self.cuda.graphs.capture != "none" and bool(self.captures)

    @property
    def served(self) -> tuple[Mapping[str, int], ...]:
        """The combinations of buckets that it takes; a last empty one stands for all sizes."""
        if self.buckets:
            return (self.buckets,)
        return (*by_size([buckets for buckets in self.captures if buckets]), {})

    @property
    def required(self) -> bool:
        """Whether the profile asks for it; other variants only serve speed."""
        return self.isa != "vnni"

    @property
    def cpu_only(self) -> bool:
        """Whether ONNX Runtime's CPU provider runs all nodes."""
        return self.providers == ("cpu",)


def wanted_in_float32(spec: VariantSpec, profile: Profile) -> tuple[str, ...]:
    """Names or patterns of nodes that one of the profile's variants keeps in float32."""
    return profile.keep_float32 if spec.keep_float32 is None else spec.keep_float32
