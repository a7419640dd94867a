"""Data of the trained networks in `tests/data/trained`: pieces of text by language, and scenes.

Text is cut from files that Python and installed packages ship.  What a file is used for hangs on
its name alone, so that no piece that is judged was trained on, whatever versions are installed.
Scenes are handwritten digits of examples/digits, in several sizes on a canvas.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.fresh import ROOT

Array = np.ndarray[Any, Any]
Use = Literal["train", "calibrate", "judge"]
# Characters of a piece; others than ASCII's are 127.
PIECE = 96
_SIZES: dict[Use, int] = {"train": 12000, "calibrate": 256, "judge": 2000}
_SEEDS: dict[Use, int] = {"train": 1, "calibrate": 2, "judge": 3}
LANGUAGES = ("Python", "stubs", "C", "C++", "Fortran", "prose")
# Pixels of a canvas, the cells of its grid, and the objects on it at most.
CANVAS, CELL, OBJECTS = 64, 8, 4


def pieces(use: Use) -> tuple[Array, Array]:
    """`text`, int64 [N, PIECE], and the number of each one's language, int64 [N]."""
    rng = np.random.default_rng(_SEEDS[use])
    texts = [_joined(language, use) for language in range(len(LANGUAGES))]
    labels = rng.integers(0, len(LANGUAGES), _SIZES[use])
    places = rng.random(_SIZES[use])
    starts = [
        int(at * (len(texts[label]) - PIECE)) for at, label in zip(places, labels, strict=True)
    ]
    cut = [texts[n][at : at + PIECE] for n, at in zip(labels, starts, strict=True)]
    return np.stack(cut).astype(np.int64), labels


@cache
def _joined(language: int, use: Use) -> Array:
    """The text of all files of a language and a use, uint8."""
    found = b"\n".join(path.read_bytes() for path in sorted(files(language)) if use_of(path) == use)
    return np.minimum(np.frombuffer(found, np.uint8), 127)


def use_of(path: Path) -> Use:
    """What pieces of a file are used for, whose name alone decides it."""
    share = hashlib.sha256(path.name.encode()).digest()[0]
    return "judge" if share < 64 else "calibrate" if share < 96 else "train"


def files(language: int) -> Iterator[Path]:
    """The files of a language, by its number."""
    numpy, onnx = (_package(name) for name in ("numpy", "onnx"))
    match LANGUAGES[language]:
        case "Python":
            yield from Path(sysconfig.get_path("stdlib")).glob("*.py")
        case "stubs":
            yield from numpy.glob("*.pyi")
            yield from (numpy / "lib").glob("*.pyi")
        case "C":
            yield from Path(sysconfig.get_path("include")).glob("*.h")
            yield from numpy.rglob("*.h")
        case "C++":
            yield from onnx.rglob("*.cc")
            yield from onnx.rglob("*.h")
        case "Fortran":
            yield from numpy.rglob("*.f90")
            yield from numpy.rglob("*.f")
        case _:
            for folder in numpy.parent.glob("*.dist-info"):
                yield from folder.rglob("*LICENSE*")


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, f"{name} is not installed"
    return Path(spec.origin).parent


def scenes(use: Use, count: int) -> tuple[Array, Array]:
    """`image`, float32 [N, 1, CANVAS, CANVAS], and float32 [N, OBJECTS, 5]: corners and class.

    Corners are in pixels; where there are fewer objects, all is -1.
    """
    held = np.load(ROOT / "examples" / "digits" / "heldout.npz")
    order = np.random.default_rng(0).permutation(len(held["image"]))
    parts = {"train": order[:270], "calibrate": order[270:330], "judge": order[330:]}
    digits, classes = held["image"][parts[use], 0], held["label"][parts[use]]
    rng = np.random.default_rng(_SEEDS[use])
    images = rng.uniform(0, 0.15, (count, 1, CANVAS, CANVAS)).astype(np.float32)
    labels = np.full((count, OBJECTS, 5), -1, np.float32)
    for image, label in zip(images, labels, strict=True):
        free = np.ones((CANVAS, CANVAS), bool)
        for number in range(int(rng.integers(1, OBJECTS + 1))):
            at, times = int(rng.integers(len(digits))), int(rng.integers(2, 4))
            size = times * digits.shape[1]
            x, y = rng.integers(0, CANVAS - size + 1, 2)
            place = slice(y, y + size), slice(x, x + size)
            if not free[place].all():
                continue
            free[place] = False
            image[0][place] += np.kron(digits[at], np.ones((times, times), np.float32))
            label[number] = (x, y, x + size, y + size, classes[at])
    return images, labels
