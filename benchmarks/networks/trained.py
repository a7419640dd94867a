"""Two small networks that are trained here, for what lower precision costs in accuracy.

`python -m benchmarks.networks.trained FOLDER [NAME…]` trains on the data of
`benchmarks.precision.tasks` and writes NAME.onnx, as `tests/data/trained` has them: `pieces` tells
the language of a piece of text, `scenes` finds the digits in an image.  It needs what
`benchmarks/networks/exports.py` needs; all is seeded and runs in one thread.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn  # type: ignore[import-not-found,unused-ignore]

from benchmarks.networks.exports import SEED, Export, write
from benchmarks.precision import tasks

_WIDTH, _HEADS, _LAYERS = 48, 3, 2
_BATCH = 64


class Block(nn.Module):  # type: ignore[misc,unused-ignore]
    """Attention and a dense part, each behind a normalization and added to what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.norm = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.read = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.out = nn.Linear(_WIDTH, _WIDTH)
        self.dense = nn.Sequential(
            nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH)
        )

    def forward(self, value: Any) -> Any:
        """Float32 [batch, PIECE, width] to the same shape."""
        rows = self.before(value)
        query, key, mixed = (
            layer(rows).reshape(-1, tasks.PIECE, _HEADS, _WIDTH // _HEADS).transpose(1, 2)
            for layer in self.read
        )
        shares = (query @ key.transpose(2, 3) * (_WIDTH // _HEADS) ** -0.5).softmax(dim=3)
        joined = (shares @ mixed).transpose(1, 2).reshape(-1, tasks.PIECE, _WIDTH)
        value = value + self.out(joined)
        return value + self.dense(self.norm(value))


class Pieces(nn.Module):  # type: ignore[misc,unused-ignore]
    """Text to a number for each language."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(128, _WIDTH)
        self.positions = nn.Parameter(torch.randn(tasks.PIECE, _WIDTH) * 0.1)
        self.blocks = nn.Sequential(*(Block() for _ in range(_LAYERS)), nn.LayerNorm(_WIDTH))
        self.head = nn.Linear(_WIDTH, len(tasks.LANGUAGES))

    def forward(self, text: Any) -> Any:
        """Int64 [batch, PIECE] to float32 [batch, languages]."""
        value = self.blocks(self.characters(text) + self.positions)
        return self.head(value.mean(dim=1))


class Scenes(nn.Module):  # type: ignore[misc,unused-ignore]
    """An image to a box for each cell of its grid, in pixels, and a score by class."""

    def __init__(self) -> None:
        super().__init__()
        layers, inner = [], 1
        for outer, pooled in ((16, True), (32, True), (40, True), (40, False)):
            layers += [nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer)]
            layers += [nn.ReLU(), *([nn.MaxPool2d(2)] if pooled else [])]
            inner = outer
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(inner, 64), nn.ReLU(), nn.Linear(64, 15))
        steps = torch.arange(tasks.CANVAS // tasks.CELL) * float(tasks.CELL) + tasks.CELL / 2
        centres = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1).reshape(-1, 2)
        self.register_buffer("centres", torch.cat([centres, centres], dim=1))

    def forward(self, image: Any) -> Any:
        """Float32 [batch, 1, CANVAS, CANVAS] to [batch, cells, 14]: corners, then scores."""
        found = self.raw(image)
        scores = found[:, :, 4:5].sigmoid() * found[:, :, 5:].softmax(dim=2)
        return torch.cat([self.corners(found), scores], dim=2)

    def raw(self, image: Any) -> Any:
        """The head's numbers by cell: a box, whether there is an object, and its class."""
        return self.head(self.body(image).flatten(2).transpose(1, 2))

    def corners(self, raw: Any) -> Any:
        """Corners in pixels."""
        return self.centres + raw[:, :, :4] * float(tasks.CELL)


def _trained(
    network: Any, loss_of: Callable[[Any, Any], Any], data: tuple[Any, Any], epochs: int
) -> Any:
    first, second = (torch.from_numpy(np.ascontiguousarray(array)) for array in data)
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    steps = len(first) // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=4e-3, total_steps=epochs * steps
    )
    for _ in range(epochs):
        order = torch.randperm(len(first))
        for step in range(steps):
            picked = order[step * _BATCH : (step + 1) * _BATCH]
            optimizer.zero_grad()
            loss_of(first[picked], second[picked]).backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def pieces() -> Export:
    """The classifier of text."""
    network = Pieces()
    loss = nn.CrossEntropyLoss(label_smoothing=0.05)
    _trained(network, lambda text, label: loss(network(text), label), tasks.pieces("train"), 10)
    return Export(
        network=network,
        inputs={"text": torch.zeros((2, tasks.PIECE), dtype=torch.int64)},
        free={"text": {0: "batch"}},
        outputs=("logits",),
    )


def scenes() -> Export:
    """The detector; the cell of an object's centre is to find it."""
    network = Scenes()
    grid = tasks.CANVAS // tasks.CELL

    def loss(image: Any, label: Any) -> Any:
        raw = network.raw(image)
        found = label[:, :, 4] >= 0
        row, _ = torch.where(found)
        objects = label[found]
        centre = ((objects[:, :2] + objects[:, 2:4]) / 2 / tasks.CELL).long().clamp(0, grid - 1)
        cell = centre[:, 1] * grid + centre[:, 0]
        wanted = torch.zeros_like(raw[:, :, 4])
        wanted[row, cell] = 1
        there = nn.functional.binary_cross_entropy_with_logits(
            raw[:, :, 4], wanted, reduction="sum"
        )
        own = raw[row, cell]
        classes = nn.functional.cross_entropy(own[:, 5:], objects[:, 4].long(), reduction="sum")
        boxes = (network.corners(raw)[row, cell] - objects[:, :4]) / tasks.CELL
        placed = nn.functional.smooth_l1_loss(boxes, boxes * 0, reduction="sum")
        return (there + classes + placed) / _BATCH

    _trained(network, loss, tasks.scenes("train", 6000), 12)
    size = (2, 1, tasks.CANVAS, tasks.CANVAS)
    return Export(
        network=network,
        inputs={"image": torch.zeros(size)},
        free={"image": {0: "batch"}},
        outputs=("found",),
    )


TRAINED: Mapping[str, Callable[[], Export]] = {"pieces": pieces, "scenes": scenes}


def main() -> int:
    """Train and write each named network, or both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks.trained")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRAINED))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.names or TRAINED:
        torch.manual_seed(SEED)
        export = TRAINED[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = arguments.folder / f"{name}.onnx"
            write(export, path)
        print(f"{path.stat().st_size:>11,} {path}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
