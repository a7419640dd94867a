"""How `plain.pt2` was made: `python make_plain.py`, with torch 2.13.0 and its CPU wheel."""

from __future__ import annotations

import re

import torch


class Plain(torch.nn.Module):
    """One of each that an exported program can hold: weights, buffers, a constant, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("made", torch.full((4,), 2.0), persistent=False)
        self.table = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.cond(mask.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))
        y = self.dense(y).relu() + self.kept + self.made + self.table
        return {"y": y * mask, "pairs": y.reshape(-1, 2)}


if __name__ == "__main__":
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        Plain().eval(),
        (torch.randn(3, 4),),
        {"mask": torch.ones(3, 4)},
        dynamic_shapes={"x": {0: batch}, "mask": {0: batch}},
    )
    for module in program.graph_module.modules():
        for node in getattr(module, "graph", torch.fx.Graph()).nodes:
            trace = node.meta.get("stack_trace")
            if trace:
                node.meta["stack_trace"] = re.sub(r'"/[^"]*/(site-packages/)?', '"', trace)
    torch.export.save(program, "plain.pt2")
