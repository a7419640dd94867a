"""Random weights of the GPU's benchmarks: answers follow from the inputs, and repeat."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.gpu.initial_weights import settle  # noqa: E402


def network(depth: int) -> Any:
    """Convolutions whose values die away as they are initialised, and a branch that is 0."""
    torch.manual_seed(3)
    layers: list[Any] = []
    for _ in range(depth):
        convolution = torch.nn.Conv2d(3, 3, 3, padding=1)
        torch.nn.init.normal_(convolution.weight, std=0.02)
        norm = torch.nn.BatchNorm2d(3)
        torch.nn.init.zeros_(norm.weight)
        layers += [convolution, norm, torch.nn.ReLU()]
    made = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(48, 5))
    return made.eval()


def test_answers_follow_from_the_images_and_repeat() -> None:
    image = torch.zeros((2, 3, 4, 4))
    given = torch.randn((6, 3, 4, 4), generator=torch.Generator().manual_seed(1))
    answers = []
    for _ in range(2):
        made = network(8)
        with torch.no_grad():
            assert made(given).std(0).max() == 0
            settle(made, [image])
            answers.append(made(given))
        assert not any(module.training for module in made.modules())
        assert all((each != 0).any() for each in made.parameters())
    assert answers[0].std(0).min() > 0.05
    assert torch.equal(*answers)


def test_rounding_does_not_grow_from_layer_to_layer() -> None:
    torch.manual_seed(3)
    layers: list[Any] = []
    for _ in range(40):
        convolution = torch.nn.Conv2d(16, 16, 3, padding=1, bias=False)
        layers += [convolution, torch.nn.BatchNorm2d(16), torch.nn.ReLU()]
    made = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1)).eval()
    settle(made, [torch.zeros((2, 16, 8, 8))])
    given = torch.randn((6, 16, 8, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = made(given), given
        for layer in made:
            found = layer(found).half().float()
    assert (found - expected).norm() < 0.01 * expected.norm()


def test_a_network_that_answers_alike_to_everything_is_refused() -> None:
    made = network(1)
    with torch.no_grad():
        made.append(torch.nn.Hardtanh(0.5, 0.5 + 1e-6))
    with pytest.raises(ValueError, match="nearly the same everywhere"):
        settle(made, [torch.zeros((2, 3, 4, 4))])
