"""An ONNX Runtime whose answers were changed: as a new release that computes otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime as ort

# How the class that everything runs through answers.
_ANSWER = "return self._sess.run(output_names, input_feed, run_options)"
_CHANGED = """\
answers = self._sess.run(output_names, input_feed, run_options)
            return [{change} if getattr(o, "dtype", None) is not None else o for o in answers]"""


def changed_runtime(folder: Path, change: str) -> str:
    """A value for PYTHONPATH with an ONNX Runtime that answers `change`, an expression of `o`.

    `o` is each answer that is an array.
    """
    home = Path(ort.__file__).parent

    def take(source: str, target: str) -> None:
        if Path(source).suffix == ".so" or ".so." in source:
            Path(target).symlink_to(source)
        else:
            shutil.copyfile(source, target)

    shutil.copytree(home, folder / "onnxruntime", copy_function=take, symlinks=True)
    module = folder / "onnxruntime" / "capi" / "onnxruntime_inference_collection.py"
    text = module.read_text("utf-8")
    assert _ANSWER in text, "this ONNX Runtime answers in another way"
    module.write_text(text.replace(_ANSWER, _CHANGED.format(change=change)), "utf-8")
    return str(folder)
