"""Artifacts that a server answers with, one after the other, signed by one key."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from file_bytes import flip_bit
from made_models import linear, save
from shared_workers import build

from aotc.trust import key_files
from aotc.trust.packing import pack


@dataclass(frozen=True)
class Artifacts:
    """Two of one model, the second of which answers twice as much, and the key of both."""

    first: Path
    second: Path
    public_key: Path
    private_key: Path

    def damaged(self, place: Path, *, packed: bool = False) -> Path:
        """The second one, as a folder or packed, in which one bit of a graph is another."""
        graph = next(self.second.joinpath("payload").rglob("*.onnx"))
        if packed:
            pack(self.second, place)
            data = place.read_bytes()
            flip_bit(place, data.index(graph.read_bytes()) + graph.stat().st_size // 2)
            return place
        shutil.copytree(self.second, place)
        copy = place / graph.relative_to(self.second)
        copy.chmod(0o644)
        flip_bit(copy)
        return place


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    folder = tmp_path_factory.mktemp("served")
    private, public = key_files.generate(folder / "release.pem")
    doubled = linear()
    (weight,) = doubled.graph.initializer
    weight.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(weight), "W"))
    paths = []
    for name, model in (("first", linear()), ("second", doubled)):
        source = save(model, folder / f"{name}.onnx")
        build(source, output=folder / f"{name}.aotc", key=private)
        paths.append(folder / f"{name}.aotc")
    return Artifacts(*paths, public_key=public, private_key=private)


@pytest.fixture(scope="session")
def inputs() -> np.ndarray:
    """A call's input `x`."""
    return np.random.default_rng(1).standard_normal((2, 16)).astype(np.float32)
