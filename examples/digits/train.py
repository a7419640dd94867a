"""Train a small CNN on scikit-learn's handwritten digits and export it to ONNX.

Run it as ``python train.py --out DIR``.  It writes two files to ``DIR``:

``digits.onnx``
    The trained network.  Input ``image``: float32 ``[batch, 1, 8, 8]``, pixel
    values in ``[0, 1]``.  Output ``logits``: float32 ``[batch, 10]``.
``heldout.npz``
    The images that training never saw.  ``image``: float32 ``[N, 1, 8, 8]``;
    ``label``: int64 ``[N]``.

Every source of randomness is seeded and the work runs on one thread, so repeated
runs on one machine with the same packages are meant to write the same bytes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.rules.common import materialize_reshape_shape_rule
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch import Tensor, nn

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

SEED = 20
OPSET = 18
MAX_IR_VERSION = 10
CLASSES = 10
MAX_PIXEL = 16.0  # load_digits counts the inked cells of a 4x4 block: 0..16
HELD_OUT_FRACTION = 0.25
EPOCHS = 40
BATCH_SIZE = 32
PEAK_LEARNING_RATE = 1e-2
MIN_ACCURACY = 0.97
LOGIT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class LabelledImages:
    """Images with their digits.

    image: float32 [N, 1, 8, 8], pixel values in [0, 1].
    label: int64 [N], values in 0..9.
    """

    image: FloatArray
    label: IntArray


class DigitNet(nn.Module):
    """Three convolutions with batch normalisation, then one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        # A convolution followed by batch normalisation needs no bias of its own.
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(32)
        self.conv3 = nn.Conv2d(32, 32, kernel_size=3, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(kernel_size=2)
        self.classify = nn.Linear(32 * 2 * 2, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Score each digit: float32 [batch, 1, 8, 8] -> float32 [batch, 10]."""
        x = torch.relu(self.norm1(self.conv1(image)))  # [batch, 16, 8, 8]
        x = torch.relu(self.norm2(self.conv2(x)))  # [batch, 32, 8, 8]
        x = self.pool(x)  # [batch, 32, 4, 4]
        x = torch.relu(self.norm3(self.conv3(x)))  # [batch, 32, 4, 4]
        x = self.pool(x)  # [batch, 32, 2, 2]
        logits: Tensor = self.classify(torch.flatten(x, start_dim=1))
        return logits


def load_split() -> tuple[LabelledImages, LabelledImages]:
    """Return (training, held-out) images, each digit in equal proportion in both."""
    pixels, labels = load_digits(return_X_y=True)  # float64 [1797, 64], int64 [1797]
    image = (pixels / MAX_PIXEL).astype(np.float32).reshape(-1, 1, 8, 8)
    label = labels.astype(np.int64)
    train_image, held_image, train_label, held_label = train_test_split(
        image,
        label,
        test_size=HELD_OUT_FRACTION,
        stratify=label,
        random_state=SEED,
    )
    return (
        LabelledImages(train_image, train_label),
        LabelledImages(held_image, held_label),
    )


def train(data: LabelledImages) -> DigitNet:
    """Fit a DigitNet to ``data`` and return it in evaluation mode."""
    torch.manual_seed(SEED)
    image = torch.from_numpy(data.image)
    label = torch.from_numpy(data.label)
    net = DigitNet()
    net.train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=PEAK_LEARNING_RATE)
    steps_per_epoch = len(label) // BATCH_SIZE
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=PEAK_LEARNING_RATE,
        total_steps=EPOCHS * steps_per_epoch,
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(1, EPOCHS + 1):
        order = torch.randperm(len(label))
        total = 0.0
        for step in range(steps_per_epoch):
            picked = order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
            optimizer.zero_grad()
            loss = loss_of(net(image[picked]), label[picked])
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if epoch % 10 == 0:
            print(f"epoch {epoch:2d}: mean loss {total / steps_per_epoch:.4f}")
    net.eval()
    return net


def torch_logits(net: DigitNet, image: FloatArray) -> FloatArray:
    """Run ``net`` in PyTorch: float32 [N, 1, 8, 8] -> float32 [N, 10]."""
    with torch.inference_mode():
        logits: FloatArray = net(torch.from_numpy(image)).numpy()
    return logits


def onnx_logits(model: onnx.ModelProto, image: FloatArray) -> FloatArray:
    """Run ``model`` in ONNX's reference: float32 [N, 1, 8, 8] -> float32 [N, 10]."""
    outputs = cast(
        "list[FloatArray]",
        ReferenceEvaluator(model).run(["logits"], {"image": image}),
    )
    return outputs[0]


def accuracy(logits: FloatArray, label: IntArray) -> float:
    """Return the share of rows of ``logits`` [N, 10] that peak at ``label`` [N]."""
    return float(np.mean(np.argmax(logits, axis=1) == label))


def export(net: DigitNet) -> onnx.ModelProto:
    """Convert ``net`` to a self-contained ONNX model whose dim 0 is ``batch``.

    The exporter's own optimiser would fold the batch normalisations into the
    convolutions.  That is left to the model's compiler, so only the constant
    arithmetic on shapes is folded here.
    """
    program = torch.onnx.export(
        net,
        (torch.zeros(2, 1, 8, 8),),
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        opset_version=OPSET,
        dynamo=True,
        optimize=False,
        verbose=False,
    )
    if program is None:
        raise RuntimeError("the exporter returned no program")
    optimizer.fold_constants(program.model)
    rewriter.rewrite(program.model, pattern_rewrite_rules=[materialize_reshape_shape_rule])
    # The exporter notes which source line made each node, by its full local path.
    # The pass clears nodes, graphs and tensors but leaves the notes on values.
    ClearMetadataAndDocStringPass()(program.model)
    model = program.model_proto
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.ClearField("metadata_props")
    model.ir_version = min(model.ir_version, MAX_IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, check, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent,
        metavar="DIR",
        help="where to write digits.onnx and heldout.npz (default: beside this script)",
    )
    out: Path = parser.parse_args().out

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    training, held_out = load_split()
    net = train(training)
    model = export(net)

    expected = torch_logits(net, held_out.image)
    actual = onnx_logits(model, held_out.image)
    gap = float(np.max(np.abs(expected - actual)))
    if gap > LOGIT_TOLERANCE:
        raise RuntimeError(f"the exported model's logits are off by {gap:.2e}")
    score = accuracy(actual, held_out.label)
    if score < MIN_ACCURACY:
        raise RuntimeError(f"held-out accuracy {score:.4f} is below {MIN_ACCURACY}")

    out.mkdir(parents=True, exist_ok=True)
    (out / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    np.savez_compressed(out / "heldout.npz", image=held_out.image, label=held_out.label)
    print(f"trained on {len(training.label)} images")
    print(f"held-out accuracy {score:.4f} on {len(held_out.label)} images")
    print(f"largest logit difference, PyTorch to ONNX: {gap:.1e}")


if __name__ == "__main__":
    main()
