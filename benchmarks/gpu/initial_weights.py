"""Random weights whose answers can be judged: as after training, nothing is 0 or dies away.

As networks are initialised, batch norms expect the values of inputs of no layer, so that a deep
network's values die away; and branches, biases and embeddings are 0.  An error in what is 0 cannot
be seen, and a sum with 0 is left out by who optimizes a graph.  All networks are treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

# Of a parameter: its values are all one number that is nearly 0, or one that begins as 0.
_NEARLY_ZERO = 1e-3
_DEVIATION = 0.02
# Images on which statistics are taken, and how often.
_IMAGES, _PASSES = 12, 2
_LEAST_SPREAD, _LEAST_OVER_ITEMS = 1e-3, 1e-6


def settle(network: Any, inputs: Sequence[Any]) -> None:
    """Change a network of `inputs`, batch first, in place, and leave it in `eval`.

    Parameters that are all nearly 0 get normal values, or 1 where they are factors: vectors that
    are no biases.  Batch norms get factors and biases of 1, and the statistics of images of normal
    values, by turns of either sign, positive and negative.  The same on every machine but for
    rounding, as torch's seed is what it was.
    Raises ValueError if the first answer is still nearly the same everywhere.
    """
    for name, parameter in network.named_parameters():
        first = parameter.detach().flatten()[0]
        if abs(first) <= _NEARLY_ZERO and bool((parameter == first).all()):
            if parameter.dim() == 1 and not name.endswith("bias"):
                torch.nn.init.ones_(parameter)
            else:
                torch.nn.init.normal_(parameter, std=_DEVIATION)
    network.eval()
    kinds = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
    norms = [one for one in network.modules() if isinstance(one, kinds)]
    with torch.no_grad():
        if norms:
            _observe(network, norms, inputs)
        answer = network(*_drawn(inputs, len(inputs[0])))
    first = answer if isinstance(answer, torch.Tensor) else answer[0]
    differ = any(each.is_floating_point() for each in inputs)
    over_items = first.std(dim=0).mean() if differ else math.inf
    if not (first.std() > _LEAST_SPREAD and over_items > _LEAST_OVER_ITEMS):
        raise ValueError(
            f"answers are nearly the same everywhere: they spread by {first.std():g}, over the "
            f"items by {over_items:g}"
        )


def _observe(network: Any, norms: Sequence[Any], inputs: Sequence[Any]) -> None:
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        # EfficientNet has random factors about 0 here.
        torch.nn.init.ones_(norm.weight)
        # About 0 each Relu makes what differs a little differ more: of ResNet-50's answers a tenth
        # was rounding, in half precision and in TF32 alike.
        torch.nn.init.ones_(norm.bias)
        # The mean of all passes.
        norm.momentum = None
        norm.train()
    for _ in range(_PASSES):
        network(*_drawn(inputs, _IMAGES))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _drawn(inputs: Sequence[Any], batch: int) -> list[Any]:
    """Normal values of this batch in place of those that are floats, by turns of one sign."""
    found = []
    for each in inputs:
        if each.is_floating_point():
            each = torch.randn((batch, *each.shape[1:]))
            each[1::3].abs_()
            each[2::3].abs_().neg_()
        found.append(each)
    return found
