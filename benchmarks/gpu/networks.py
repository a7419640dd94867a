"""The networks with random weights, exported by torch's exporter with dynamic shapes, in float32.

`python -m benchmarks.gpu.networks NAME PATH OPSET [--small]` writes one of them.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import transformers  # type: ignore[import-not-found,unused-ignore]

from benchmarks.networks import exports
from benchmarks.networks.exports import Export, WithPositionalInputs

_TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def resnet50(small: bool) -> Export:
    """ResNet-50 at 224 by 224, batch free."""
    return replace(exports.resnet50(small), free={"pixel_values": {0: "batch"}})


def vit(small: bool) -> Export:
    """ViT-B at 224 by 224 to its last hidden state, batch free."""
    network = transformers.ViTModel(
        transformers.ViTConfig(**_TINY if small else {}), add_pooling_layer=False
    )
    return Export(
        network=WithPositionalInputs(
            network, lambda network, image: network(pixel_values=image).last_hidden_state
        ),
        inputs={"pixel_values": torch.zeros((2, 3, 224, 224))},
        free={"pixel_values": {0: "batch"}},
        outputs=("last_hidden_state",),
    )


def bert(small: bool) -> Export:
    """BERT-base of ids and a padding mask to the last hidden state."""
    return _bert(small, ("input_ids", "attention_mask"))


def bert_unmasked(small: bool) -> Export:
    """BERT-base of ids alone."""
    return _bert(small, ("input_ids",))


def _bert(small: bool, names: tuple[str, ...]) -> Export:
    sizes = {**_TINY, "vocab_size": 64}
    network = transformers.BertModel(
        transformers.BertConfig(**sizes if small else {}), add_pooling_layer=False
    )

    def call(network: Any, ids: Any, *mask: Any) -> Any:
        given = {"attention_mask": mask[0]} if mask else {}
        return network(input_ids=ids, **given).last_hidden_state

    return Export(
        network=WithPositionalInputs(network, call),
        inputs={name: torch.ones((2, 7), dtype=torch.int64) for name in names},
        free={name: {0: "batch", 1: "sequence"} for name in names},
        outputs=("last_hidden_state",),
    )


NETWORKS: Mapping[str, Callable[[bool], Export]] = {
    "resnet50": resnet50,
    "bert": bert,
    "bert_unmasked": bert_unmasked,
    "vit": vit,
    "gpt2": exports.gpt2,
    "llama": exports.llama_sdpa,
    "whisper": exports.whisper_fixed,
}


def network(name: str, small: bool) -> Any:
    """The torch module, whose inputs are those of the exported graph, in order."""
    torch.manual_seed(exports.SEED)
    return NETWORKS[name](small).network.eval()


def main() -> int:
    """Export one network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(NETWORKS))
    parser.add_argument("path", type=Path)
    parser.add_argument("opset", type=int)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(exports.SEED)
    partial = arguments.path.with_suffix(".partial")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exports.write(NETWORKS[arguments.name](arguments.small), partial, arguments.opset)
    partial.rename(arguments.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
