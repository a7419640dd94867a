"""A model with its weights in a separate file, as torch's exporter writes it by default."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx

# Tensors up to this size stay inline, as in torch's exporter.
MAX_INLINE_BYTES = 1024


def with_external_weights(path: Path) -> Path:
    """The model at `path` in a folder `external` next to it, with weights in `model.onnx.data`.

    It is written only once.  Both files are in the page cache afterwards.
    """
    folder = path.parent / "external"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        onnx.save_model(
            onnx.load(path),
            partial / path.name,
            save_as_external_data=True,
            location=f"{path.name}.data",
            size_threshold=MAX_INLINE_BYTES,
        )
        partial.rename(folder)
    return folder / path.name
