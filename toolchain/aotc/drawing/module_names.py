"""The module of the source network that each node belongs to, as far as names tell.

Exporters name nodes by module (`/encoder/layer.0/attention/MatMul`), or name the weights so
(`encoder.layer.0.attention.query.bias`).  Fused nodes lose their names and folded weights theirs,
so what names do not tell is taken from neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from aotc.drawing.graph_reading import DrawnNode

Module = tuple[str, ...]
# Names are read as modules only where this share of the nodes is named so.
_SHARE: Final = 0.2
# What ONNX Runtime appends to the names of nodes that it makes.
_SUFFIX: Final = re.compile(r"/\w*(?:Fusion|Transformer|Optimizer)\w*/?$|_nchwc$")
_MAX_DEPTH: Final = 12


def modules_of(nodes: Sequence[DrawnNode]) -> list[Module]:
    """The module of each node, outermost first; empty where nothing tells it."""
    found: list[Module | None] = [_of_path(node.name) for node in nodes]
    if sum(module is not None for module in found) < _SHARE * len(nodes):
        found = [None] * len(nodes)
    anchors = _of_weights(nodes)
    found = [module if module is not None else anchors[i] for i, module in enumerate(found)]
    producers = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    consumers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for value in node.inputs:
            if value in producers:
                consumers[producers[value]].append(index)
    # A product and the sum with its bias are of one module; the bias alone has a name left.
    for index in reversed(range(len(nodes))):
        after = consumers[index]
        if found[index] is None and nodes[index].weights and len(after) == 1:
            found[index] = found[after[0]]
    for index, node in enumerate(nodes):
        if found[index] is None:
            before = sorted({producers[v] for v in node.inputs if v in producers}, reverse=True)
            found[index] = _common([module for i in before if (module := found[i]) is not None])
    for index in reversed(range(len(nodes))):
        if found[index] is None:
            found[index] = _prefix([m for i in consumers[index] if (m := found[i]) is not None])
    modules = [module or () for module in found]
    # What all modules begin with tells nothing.
    shared = len(_prefix([module for module in modules if module]) or ())
    return [module[shared:] for module in modules]


def _of_path(name: str) -> Module | None:
    """`/encoder/layer.0/MatMul` is of `encoder`, `layer.0`."""
    path = _SUFFIX.sub("", name)
    parts = [part for part in path.split("/") if part]
    if "/" not in path.strip("/"):
        return () if path.startswith("/") else None
    return tuple(parts[:-1])[:_MAX_DEPTH]


def _of_weights(nodes: Sequence[DrawnNode]) -> list[Module | None]:
    """The module that the weights of a node name; a weight of several nodes tells nothing."""
    readers = Counter(weight for node in nodes for weight in dict.fromkeys(node.weights))
    found: list[Module | None] = []
    for node in nodes:
        own = [
            _of_weight(weight)
            for weight in node.weights
            if readers[weight] == 1 and "." in weight and "::" not in weight
        ]
        found.append(_prefix(own))
    return found


def _of_weight(name: str) -> Module:
    """`encoder.layer.0.dense.bias` is of `encoder`, `layer.0`, `dense`."""
    module: list[str] = []
    for part in name.split(".")[:-1]:
        if part.isdigit() and module:
            module[-1] += f".{part}"
        elif part:
            module.append(part)
    return tuple(module)[:_MAX_DEPTH]


def _common(modules: Sequence[Module]) -> Module | None:
    """The module of a node from those before it, the latest first.

    What several parts of one module come to is of that module; a sum that takes an earlier
    module's result, as residual connections do, stays with the latest.
    """
    if not modules:
        return None
    latest = modules[0]
    shared = _prefix(modules) or ()
    return shared if len(shared) >= max(len(latest) - 1, 1) else latest


def _prefix(modules: Sequence[Module]) -> Module | None:
    if not modules:
        return None
    length = 0
    for parts in zip(*modules, strict=False):
        if len(set(parts)) > 1:
            break
        length += 1
    return modules[0][:length]
