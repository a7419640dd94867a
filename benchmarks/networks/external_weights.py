"""A model with its weights in a file of their own, as torch's exporter writes it by default."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx

# Of a tensor that stays inline, as in torch's exporter.
MAX_INLINE_BYTES = 1024


def externalized(path: Path) -> Path:
    """The model at `path` in a folder `external` beside it, weights in `model.onnx.data`.

    Written once.  Both files lie in the page cache then.
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
