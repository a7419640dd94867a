"""Convolutional networks that no configuration of `transformers` makes, for `exports`.

Architectures: O. Ronneberger et al., "U-Net" (2015); T.-Y. Lin et al., "Feature Pyramid Networks
for Object Detection" (2016); M. Liao et al., "Real-time Scene Text Detection with Differentiable
Binarization" (2019), its pyramid; J. Johnson et al., "Perceptual Losses for Real-Time Style
Transfer" (2016), with instance normalization.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn  # type: ignore[import-not-found,unused-ignore]


def _convolution(inner: int, outer: int, stride: int = 1, kernel: int = 3) -> Any:
    """Convolution, batch normalization and ReLU; halves the image for a stride of 2."""
    return nn.Sequential(
        nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
    )


class UNet(nn.Module):  # type: ignore[misc,unused-ignore]
    """float32 [batch, 3, height, width] to [batch, classes, height, width].

    Both sizes are multiples of two to the power of the depth.
    """

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            nn.Sequential(_convolution(inner, outer), _convolution(outer, outer))
            for inner, outer in zip([3, *widths], widths, strict=False)
        )
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(outer * 2, outer, 2, 2) for outer in reversed(widths[:-1])
        )
        self.up = nn.ModuleList(_convolution(outer * 2, outer) for outer in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, image: Any) -> Any:
        """Features of each level are joined with those from the level below."""
        kept = []
        value = image
        for level, block in enumerate(self.down):
            value = block(value if not level else self.pool(value))
            kept.append(value)
        for grow, block, skip in zip(self.grow, self.up, reversed(kept[:-1]), strict=True):
            value = block(torch.cat([skip, grow(value)], dim=1))
        return self.head(value)


class Detector(nn.Module):  # type: ignore[misc,unused-ignore]
    """Image to scores and boxes of all cells at strides 8, 16 and 32; multiples of 32."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_convolution(3, width, 2), _convolution(width, width, 2))
        self.stages = nn.ModuleList(
            nn.Sequential(
                _convolution(width << i, width << i + 1, 2),
                _convolution(width << i + 1, width << i + 1),
            )
            for i in range(3)
        )
        self.merge = nn.ModuleList(
            _convolution((width << i + 1) + (width << i + 2), width << i + 1) for i in range(2)
        )
        self.scores = nn.ModuleList(nn.Conv2d(width << i + 1, classes, 1) for i in range(3))
        self.boxes = nn.ModuleList(nn.Conv2d(width << i + 1, 4, 1) for i in range(3))
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")

    def forward(self, image: Any) -> Any:
        """Float32 [1, 3, height, width] to [1, cells, classes] and [1, cells, 4]."""
        value = self.stem(image)
        levels = []
        for stage in self.stages:
            value = stage(value)
            levels.append(value)
        for i in (1, 0):
            levels[i] = self.merge[i](torch.cat([levels[i], self.grow(levels[i + 1])], dim=1))
        scores = [head(level).flatten(2) for head, level in zip(self.scores, levels, strict=True)]
        boxes = [head(level).flatten(2) for head, level in zip(self.boxes, levels, strict=True)]
        return (
            torch.cat(scores, dim=2).transpose(1, 2).sigmoid(),
            torch.cat(boxes, dim=2).transpose(1, 2),
        )


class Text(nn.Module):  # type: ignore[misc,unused-ignore]
    """A detector of text; sizes are multiples of 32, or by accident 1 to 4.

    Levels are added to each other, and an addition broadcasts a level of size 1.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_convolution(3, width, 2), _convolution(width, width, 2))
        self.stages = nn.ModuleList(_convolution(width << i, width << i + 1, 2) for i in range(3))
        self.lateral = nn.ModuleList(nn.Conv2d(width << i + 1, width, 1) for i in range(3))
        self.grow = nn.ModuleList(nn.Upsample(scale_factor=1 << i, mode="nearest") for i in (1, 2))
        self.head = nn.Sequential(
            _convolution(width * 3, width),
            nn.Conv2d(width, 1, 1),
            nn.Upsample(scale_factor=8, mode="nearest"),
            nn.Sigmoid(),
        )

    def forward(self, image: Any) -> Any:
        """Float32 [1, 3, height, width] to [1, 1, height, width], the probability of text."""
        value = self.stem(image)
        levels = []
        for stage, lateral in zip(self.stages, self.lateral, strict=True):
            value = stage(value)
            levels.append(lateral(value))
        for i in (1, 0):
            levels[i] = levels[i] + self.grow[0](levels[i + 1])
        grown = [levels[0], self.grow[0](levels[1]), self.grow[1](levels[2])]
        return self.head(torch.cat(grown, dim=1))


class Style(nn.Module):  # type: ignore[misc,unused-ignore]
    """Image to image: two halvings, residual blocks, two doublings; reflection padding."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.down = nn.Sequential(
            *self._layer(3, width, 9, 1),
            *self._layer(width, width * 2, 3, 2),
            *self._layer(width * 2, width * 4, 3, 2),
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(*self._layer(width * 4, width * 4, 3, 1)) for _ in range(blocks)
        )
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"),
            *self._layer(width * 4, width * 2, 3, 1),
            nn.Upsample(scale_factor=2, mode="nearest"),
            *self._layer(width * 2, width, 3, 1),
            nn.ReflectionPad2d(4),
            nn.Conv2d(width, 3, 9),
        )

    @staticmethod
    def _layer(inner: int, outer: int, kernel: int, stride: int) -> list[Any]:
        return [
            nn.ReflectionPad2d(kernel // 2),
            nn.Conv2d(inner, outer, kernel, stride),
            nn.InstanceNorm2d(outer, affine=True),
            nn.ReLU(),
        ]

    def forward(self, image: Any) -> Any:
        """Float32 [batch, 3, height, width] to the same shape; both sizes are multiples of 4."""
        value = self.down(image)
        for block in self.blocks:
            value = value + block(value)
        return self.up(value)


class Outer(nn.Module):  # type: ignore[misc,unused-ignore]
    """Vectors of n, m and k elements to the mean of all their products, computed one by one."""

    def forward(self, x: Any, y: Any, z: Any) -> Any:
        """Float32 [n], [m] and [k] to [n]; the intermediate value has n·m·k elements."""
        return (x[:, None, None] * y[None, :, None] * z[None, None, :]).mean(dim=(1, 2))
