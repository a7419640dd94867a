"""What is measured: networks by group, their sizes, and the precisions.

`tuned` ones are those that earlier work was measured on, `named` ones were found wanting later, and
`untouched` ones are looked at by nobody who tunes (ADR 99 names them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Sizes = Mapping[str, int]
Group = Literal["tuned", "named", "untouched"]
GROUPS: tuple[Group, ...] = ("tuned", "named", "untouched")
# What is measured, in this order; each is a module of `benchmarks.gpu.rows`.
ROWS = (
    "calls",
    "kernels",
    "load",
    "overhead",
    "first_request",
    "memory",
    "behind",
    "weights",
    "lengths",
    "first_answer",
    "chains",
    "convolutions",
    "memory_plan",
)
# Not run but where they are named: an estimate, options to choose among, and a plan.
NAMED_ROWS = ("chains", "convolutions", "memory_plan")
PRECISIONS = ("float16", "tf32")
# Half precision of the CPU is not what is measured.
CPU_PRECISIONS = ("keep",)
PRECISION_TITLES = {"float16": "fp16", "tf32": "float32 with TF32", "keep": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of `benchmarks.gpu.networks`."""

    name: str
    title: str
    group: Group
    dims: Sizes = field(default_factory=dict)
    """Sizes of the free dims, without the batch."""
    batches: tuple[int, ...]
    precisions: tuple[str, ...] = PRECISIONS[:1]

    def sizes(self, batch: int) -> dict[str, int]:
        """The sizes of all free dims."""
        return {"batch": batch, **self.dims}


def _networks(group: Group, *rows: tuple[Any, ...], **stated: Any) -> tuple[Network, ...]:
    """Networks of rows of name, title, batches and, where they are free, further dims."""
    return tuple(
        Network(name=name, title=title, group=group, batches=batches, dims=dict(*dims), **stated)
        for name, title, batches, *dims in rows
    )


_TEXT = {"sequence": 128}
_STEP = {"sequence": 1, "past_sequence": 511, "total": 512}
_ALL = (1, 8, 64)
NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        *_networks(
            "tuned",
            ("resnet50", "ResNet-50", _ALL),
            ("bert", "BERT-base", _ALL, _TEXT),
            ("vit", "ViT-B", _ALL),
            precisions=PRECISIONS,
        ),
        *_networks(
            "named",
            ("mobilenet_v3", "MobileNetV3-L", (1, 64)),
            ("efficientnet_b0", "EfficientNet-B0", (1, 64)),
            ("convnext_t", "ConvNeXt-T", (64,)),
            ("swin_t", "Swin-T", (64,)),
            ("modernbert", "ModernBERT, 512 tokens", (8,), {"sequence": 512}),
            ("clip_text", "CLIP text", (1, 64)),
            ("llama_step", "Llama step, GQA 16/4, past 511", (8,), _STEP),
            ("segformer", "SegFormer-B0, 512", (1, 8)),
            ("wav2vec2", "wav2vec2, 5 s", (1, 8)),
            ("unet", "U-Net of diffusion, 64", (1, 8)),
            ("focalnet", "FocalNet-T", (32,)),
        ),
        *_networks(
            "untouched",
            ("regnet", "RegNetY-4GF", (1, 64)),
            ("dinov2", "DINOv2-S", (1, 64)),
            ("densenet", "DenseNet-121", (1, 64)),
            ("levit", "LeViT-128", (1, 64)),
            ("yolos", "YOLOS-Ti, 512", (1, 8)),
            ("siglip", "SigLIP vision", (32,)),
            ("beit", "BEiT-B", (32,)),
            ("poolformer", "PoolFormer-S12", (32,)),
            ("distilbert", "DistilBERT", (8,), _TEXT),
            ("electra", "ELECTRA-S", (8,), _TEXT),
            ("albert", "ALBERT-base", (8,), _TEXT),
            ("bart", "BART-L's encoder", (8,), _TEXT),
            ("opt_step", "OPT-125M step, past 511", (8,), _STEP),
            ("persimmon_step", "Persimmon step, past 511", (8,), _STEP),
        ),
    )
}
TUNED = tuple(network.name for network in NETWORKS.values() if network.group == "tuned")
# Of rows that take one case of a network.
ONE_BATCH = 8


def case_name(name: str, precision: str, batch: int) -> str:
    """As results name a case."""
    return f"{name}/{precision}/{batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """What of the cases is measured; nothing named is all."""

    precisions: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()

    def batch(self, size: int) -> bool:
        """Whether the cases of this batch are."""
        return not self.batches or size in self.batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run measures; JSON-like, for child processes.

    `small` networks and few rounds try the programs.  `cpu` takes the place of the GPU there.
    """

    folder: Path
    small: bool = False
    cpu: bool = False
    opset: int = 18

    @property
    def device(self) -> str:
        """As torch names it."""
        return "cpu" if self.cpu else "cuda"

    def compiled(self, *, ahead: bool = False) -> dict[str, str]:
        """Where torch.compile and Triton keep what they made, as their environment variables.

        Triton's binaries are the same wherever they are made.  What torch.compile chose `ahead`,
        beside other work, is kept apart: it counts for nothing.
        """
        choices = self.folder / ("inductor-ahead" if ahead else "inductor")
        binaries = self.folder / "triton"
        return {"TORCHINDUCTOR_CACHE_DIR": str(choices), "TRITON_CACHE_DIR": str(binaries)}

    @property
    def store(self) -> Path:
        """The store of loads."""
        return self.folder / "store"

    def precisions(self, network: Network, only: Only = Only()) -> tuple[str, ...]:
        """The precisions in which it is measured."""
        known = CPU_PRECISIONS if self.cpu else network.precisions
        return tuple(name for name in known if not only.precisions or name in only.precisions)

    def rounds(self, wanted: int) -> int:
        """The number of repetitions."""
        return min(wanted, 3) if self.small else wanted

    def batches(self, network: Network, only: Only = Only()) -> tuple[int, ...]:
        """The batches that are captured and measured: all of them if `only` names none."""
        found = network.batches
        if self.small:
            found = tuple(min(batch, 2 + place) for place, batch in enumerate(found[:2]))
        return tuple(batch for batch in found if only.batch(batch)) or found

    def model(self, name: str) -> Path:
        """The path of an exported network."""
        kind = "-small" if self.small else ""
        return self.folder / "models" / f"{name}{kind}-{self.opset}.onnx"

    def to_json(self) -> dict[str, Any]:
        """For `from_json`."""
        return {
            "folder": str(self.folder),
            "small": self.small,
            "cpu": self.cpu,
            "opset": self.opset,
        }

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Settings:
        """What `to_json` wrote."""
        return Settings(**{**found, "folder": Path(found["folder"])})
