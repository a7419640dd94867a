"""Build the artifacts that `tests/gpu` loads, on a machine without a GPU: FOLDER is the argument.

The models are those of AOTC_MODELS.  The key that signs is made in the folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from networks import residual

import aotc
from aotc.spec.profile_files import load_profile
from aotc.trust.key_files import generate


def main(folder: Path) -> None:
    """Build all into `folder`."""
    models = Path(os.environ["AOTC_MODELS"])
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "key.pem"
    if not key.exists():
        generate(key)
    network = folder / "residual23.onnx"
    network.write_bytes(residual(23))
    (folder / "keep.yaml").write_text(
        (Path(__file__).parents[2] / "profiles" / "server-cuda.yaml")
        .read_text()
        .replace("name: server-cuda", "name: keep-opset")
        .replace("budgets: {cpu_share: 0.1}", "opset: keep")
    )
    load_profile(folder / "keep.yaml")
    wanted: list[tuple[Path, str, str, dict[str, str | int]]] = [
        (models / "tinybert_untrained.onnx", "server-cuda", "tinybert", {"batch": 1}),
        (models / "magika_v3_3.onnx", "server-cuda", "magika", {}),
        (models / "ultraface_rfb320.onnx", "server-cuda", "ultraface", {}),
        (network, "server-cuda", "residual", {"batch": 8}),
        (network, str(folder / "keep.yaml"), "residual-keep", {"batch": 8}),
        (models / "ultraface_rfb320.onnx", "edge-rtx", "rtx", {}),
    ]
    for model, profile, name, dims in wanted:
        report = aotc.build(
            model, profile=profile, output=folder / f"{name}.aotc", key=key, dims=dims, force=True
        )
        print(name, report.artifact_id[:12], [each.code for each in report.findings])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
