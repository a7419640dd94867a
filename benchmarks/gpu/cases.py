"""What is measured: networks, their sizes, and the precisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network of `benchmarks.gpu.networks`; `judged` ones count for the limits."""

    name: str
    title: str
    judged: bool = False
    dims: Sizes = field(default_factory=dict)
    """Sizes of the free dims, without the batch."""
    batches: tuple[int, ...] = (1, 8)

    def sizes(self, batch: int) -> dict[str, int]:
        """The sizes of all free dims."""
        return {"batch": batch, **self.dims}


_TEXT = {"sequence": 128}
_PAST = {"sequence": 1, "past_sequence": 127, "total": 128}
_ALL = (1, 8, 64)
NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network(name="resnet50", title="ResNet-50", judged=True, batches=_ALL),
        Network(name="bert", title="BERT-base", judged=True, dims=_TEXT, batches=_ALL),
        Network(name="vit", title="ViT-B", judged=True, batches=_ALL),
        Network(name="bert_unmasked", title="BERT-base, no mask", dims=_TEXT, batches=_ALL),
        Network(name="gpt2", title="GPT-2, 127 tokens of past", dims=_PAST),
        Network(name="llama", title="Llama, 8 layers of 512", dims=_PAST),
        Network(name="whisper", title="Whisper's encoder, tiny"),
    )
}
JUDGED = tuple(network.name for network in NETWORKS.values() if network.judged)
PRECISIONS = ("float16", "tf32")
# Half precision of the CPU is not what is measured.
CPU_PRECISIONS = ("keep",)
AUTOTUNED_BATCH = 8
PRECISION_TITLES = {"float16": "fp16", "tf32": "float32 with TF32", "keep": "float32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Only:
    """What of the cases is measured; nothing named is all."""

    precisions: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()

    def precision(self, name: str) -> bool:
        """Whether the cases of this precision are."""
        return not self.precisions or name in self.precisions

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

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that are measured."""
        return CPU_PRECISIONS if self.cpu else PRECISIONS

    def rounds(self, wanted: int) -> int:
        """The number of repetitions."""
        return min(wanted, 3) if self.small else wanted

    def batches(self, network: Network) -> tuple[int, ...]:
        """The batches that are measured."""
        return (
            tuple(min(batch, 2 + place) for place, batch in enumerate(network.batches[:2]))
            if (self.small)
            else network.batches
        )

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
