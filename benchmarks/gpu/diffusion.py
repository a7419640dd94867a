"""A small U-Net as models of diffusion have, plainly in torch.

Architecture: J. Ho et al., "Denoising Diffusion Probabilistic Models" (2020): residual blocks of
group normalization, SiLU and convolutions, which a step's embedding shifts, and attention among the
pixels of the lower levels.
"""

from __future__ import annotations

import math
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found,unused-ignore]

_GROUPS, _HEADS, _LEVELS = 8, 4, (1, 2, 2)


class _Block(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, inner: int, outer: int, embedding: int, *, attends: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(_GROUPS, inner), nn.SiLU(), _kept(inner, outer))
        self.shift = nn.Linear(embedding, outer)
        self.second = nn.Sequential(nn.GroupNorm(_GROUPS, outer), nn.SiLU(), _kept(outer, outer))
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()
        self.attention = _Attention(outer) if attends else nn.Identity()

    def forward(self, value: Any, step: Any) -> Any:
        shifted = self.first(value) + self.shift(step)[:, :, None, None]
        return self.attention(self.second(shifted) + self.skip(value))


class _Attention(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(_GROUPS, width)
        self.all = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, value: Any) -> Any:
        height, width = value.shape[2:]
        tokens = self.all(self.norm(value).flatten(2).transpose(1, 2))
        parts = tokens.unflatten(2, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        answer = self.out(mixed.transpose(1, 2).flatten(2)).transpose(1, 2)
        return value + answer.unflatten(2, (height, width))


def _kept(inner: int, outer: int, stride: int = 1) -> Any:
    return nn.Conv2d(inner, outer, 3, stride, 1)


class DiffusionUNet(nn.Module):  # type: ignore[misc,unused-ignore]
    """Float [batch, 4, height, width] and a step of each image, [batch], to the noise in it.

    Height and width are multiples of 4.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        widths, embedding = [width * times for times in _LEVELS], 4 * width
        self.width = width
        self.embed = nn.Sequential(
            nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding), nn.SiLU()
        )
        self.stem = _kept(4, width)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inner = width
        for level, outer in enumerate(widths):
            self.down.append(_Block(inner, outer, embedding, attends=level > 0))
            inner = outer
        self.shrink = nn.ModuleList(_kept(outer, outer, 2) for outer in widths[:-1])
        self.middle = _Block(inner, inner, embedding, attends=True)
        for level, outer in reversed(list(enumerate(widths))):
            self.up.append(_Block(inner + outer, outer, embedding, attends=level > 0))
            inner = outer
        self.head = nn.Sequential(nn.GroupNorm(_GROUPS, inner), nn.SiLU(), _kept(inner, 4))

    def forward(self, sample: Any, step: Any) -> Any:
        """Each level's features are joined with those from the level below."""
        half = self.width // 2
        places = torch.arange(half, device=step.device, dtype=step.dtype)
        angles = step[:, None] * torch.exp(-math.log(10000) / half * places)[None]
        embedded = self.embed(torch.cat([angles.cos(), angles.sin()], dim=1))
        value, kept = self.stem(sample), []
        for level, block in enumerate(self.down):
            value = block(self.shrink[level - 1](value) if level else value, embedded)
            kept.append(value)
        value = self.middle(value, embedded)
        for level, block in enumerate(self.up):
            if level:
                value = functional.interpolate(value, scale_factor=2.0, mode="nearest")
            value = block(torch.cat([value, kept.pop()], dim=1), embedded)
        return self.head(value)
