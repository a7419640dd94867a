"""Modules of the zoo that no library has: as their users write them, with inputs at given sizes.

Each function returns a module, the inputs of a call by name, and which dims are dynamic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

AUTO = torch.export.Dim.AUTO
Made = tuple[nn.Module, dict[str, torch.Tensor], dict[str, Any]]
Sizes = Mapping[str, int]


class InvertedResidual(nn.Module):
    """A block of MobileNetV3: expand, filter each channel, squeeze and excite, project."""

    def __init__(self, inputs: int, hidden: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish()
        )
        self.filter = nn.Sequential(
            nn.Conv2d(hidden, hidden, 5, stride, 2, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.Hardswish(),
        )
        self.squeeze = nn.Conv2d(hidden, hidden // 4, 1)
        self.excite = nn.Conv2d(hidden // 4, hidden, 1)
        self.project = nn.Sequential(
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.filter(self.expand(x))
        scale = F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        y = self.project(y * F.hardsigmoid(self.excite(scale)))
        return x + y if self.residual else y


class MobileNetV3(nn.Module):
    """MobileNetV3 with few channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()
        )
        self.blocks = nn.Sequential(
            InvertedResidual(16, 32, 24, 2),
            InvertedResidual(24, 64, 24, 1),
            InvertedResidual(24, 64, 40, 2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(40, 64), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(64, 10)
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        y = self.blocks(self.stem(image))
        return self.classifier(F.adaptive_avg_pool2d(y, 1).flatten(1))


class PackedGRU(nn.Module):
    """Texts of several lengths, which a GRU reads without their padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16, padding_idx=0)
        self.gru = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 5)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(
            self.embed(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.head(states.sum(1) / lengths[:, None])


def ghost_norm(x: torch.Tensor, norm: nn.BatchNorm1d) -> torch.Tensor:
    """The norm of TabNet, which in evaluation has no virtual batches."""
    return norm(x)


def sparsemax(x: torch.Tensor) -> torch.Tensor:
    """The projection of each row onto the simplex."""
    ordered, _ = torch.sort(x, dim=-1, descending=True)
    steps = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1)
    kept = (1 + steps * ordered > sums).sum(-1, keepdim=True)
    threshold = (sums.gather(-1, kept - 1) - 1) / kept
    return torch.clamp(x - threshold, min=0)


class TabNet(nn.Module):
    """Attention to columns of a table, in steps."""

    def __init__(self, columns: int = 12, width: int = 16, steps: int = 3) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(columns)
        self.shared = nn.Linear(columns, 2 * width)
        self.steps = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(steps))
        self.attend = nn.ModuleList(nn.Linear(width, columns) for _ in range(steps))
        self.head = nn.Linear(width, 3)

    def forward(self, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = ghost_norm(row, self.norm)
        prior, total = torch.ones_like(x), 0.0
        state = F.glu(self.shared(x))
        masks = []
        for step, attend in zip(self.steps, self.attend, strict=True):
            mask = sparsemax(prior * attend(state))
            prior = prior * (1.3 - mask)
            state = F.glu(step(F.glu(self.shared(mask * x))))
            total = total + F.relu(state)
            masks.append(mask)
        return self.head(total), torch.stack(masks, 1)


class GraphNet(nn.Module):
    """Two rounds of messages over a graph's edges, and a mean over its nodes."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.message = nn.ModuleList((nn.Linear(2 * 8, width), nn.Linear(2 * width, width)))
        self.update = nn.ModuleList((nn.Linear(8 + width, width), nn.Linear(2 * width, width)))
        self.head = nn.Linear(width, 2)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges[0], edges[1]
        for message, update in zip(self.message, self.update, strict=True):
            sent = F.relu(message(torch.cat((nodes[source], nodes[target]), -1)))
            received = torch.zeros(nodes.shape[0], sent.shape[1]).index_add(0, target, sent)
            nodes = F.relu(update(torch.cat((nodes, received), -1)))
        return self.head(nodes.mean(0, keepdim=True))


class Policy(nn.Module):
    """A policy of reinforcement learning: the mean and spread of actions, bounded, and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean = nn.Linear(64, 6)
        self.value = nn.Linear(64, 1)
        self.spread = nn.Parameter(torch.zeros(6))

    def forward(self, observation: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.body(observation)
        return {
            "action": torch.tanh(self.mean(state)),
            "spread": self.spread.clamp(-5, 2).exp().expand(state.shape[0], 6),
            "value": self.value(state).squeeze(-1),
        }


def mobilenetv3(sizes: Sizes) -> Made:
    """Images of any size."""
    shape = (sizes["batch"], 3, sizes["height"], sizes["width"])
    return MobileNetV3(), {"image": torch.randn(shape)}, {"image": {0: AUTO, 2: AUTO, 3: AUTO}}


def gru(sizes: Sizes) -> Made:
    """Texts with their lengths, packed."""
    module, batch, length = PackedGRU(), sizes["batch"], sizes["length"]
    lengths = torch.arange(batch) % length + 1
    lengths[0] = length
    tokens = torch.randint(1, 100, (batch, length))
    tokens[torch.arange(length)[None, :] >= lengths[:, None]] = 0
    shapes = {"tokens": {0: AUTO, 1: AUTO}, "lengths": {0: AUTO}}
    return module, {"tokens": tokens, "lengths": lengths}, shapes


def packed_gru() -> Made:
    """The same, as a callable that a build calls."""
    return gru({"batch": 3, "length": 7})


def tabnet(sizes: Sizes) -> Made:
    """Rows of a table."""
    return TabNet(), {"row": torch.randn(sizes["batch"], 12)}, {"row": {0: AUTO}}


def gnn(sizes: Sizes) -> Made:
    """A graph: nodes, and edges from one to another."""
    module, nodes, edges = GraphNet(), sizes["nodes"], sizes["edges"]
    inputs = {"nodes": torch.randn(nodes, 8), "edges": torch.randint(0, nodes, (2, edges))}
    return module, inputs, {"nodes": {0: AUTO}, "edges": {1: AUTO}}


def policy(sizes: Sizes) -> Made:
    """Observations of several environments."""
    module, inputs = Policy(), {"observation": torch.randn(sizes["batch"], 17)}
    return module, inputs, {"observation": {0: AUTO}}
