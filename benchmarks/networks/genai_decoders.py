"""Decoders with random weights, written as ONNX Runtime GenAI's ModelBuilder writes them.

`python benchmarks/networks/genai_decoders.py FOLDER [PRECISION…]` writes genai_PRECISION.onnx,
weights inside, without the network.  It needs packages that neither the toolchain nor its tests
need: torch, transformers and onnxruntime-genai (2.13.0, 5.24.0 and 0.18.0 wrote the committed
files of `tests/data/exports`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

PRECISIONS = ("fp32", "int4")
VOCABULARY = 64
POSITIONS = 512
SEED = 1729
# A head is wider than the sizes that a search tries first, as heads of real decoders are.
_LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": False,
    # Large enough that one token does not follow all others.
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def write(folder: Path, precision: str) -> Path:
    """Write genai_PRECISION.onnx in `folder`; raises CalledProcessError if the builder fails."""
    with tempfile.TemporaryDirectory() as work:
        checkpoint, built = Path(work, "checkpoint"), Path(work, "built")
        _save_checkpoint(checkpoint)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint)]
        command += ["-o", str(built), "-p", precision, "-e", "cpu", "-c", str(Path(work, "cache"))]
        command += ["--extra_options", "hf_token=false"]
        offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": work}
        subprocess.run(command, check=True, env=offline, capture_output=True)
        model = onnx.load(built / "model.onnx")
    path = folder / f"genai_{precision}.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def _save_checkpoint(folder: Path) -> None:
    """A checkpoint of random weights, and a tokenizer with one word for each number."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    import transformers  # type: ignore[import-not-found,unused-ignore]
    from tokenizers import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        Tokenizer,
        models,
    )

    torch.manual_seed(SEED)
    network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LLAMA))
    network.save_pretrained(folder)
    words = {str(number): number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="3"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def main() -> None:
    """Write the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("precisions", nargs="*", metavar="PRECISION", default=PRECISIONS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for precision in given.precisions:
        print(write(given.folder, precision))


if __name__ == "__main__":
    main()
