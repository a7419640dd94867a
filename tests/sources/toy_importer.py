"""An importer as another package brings it: a framework that multiplies, in files of JSON.

`factor` is what the framework multiplies by; `exported`, what its exporter makes of that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from aotc.base.errors import AotcError
from aotc.sources.base import MODEL, Answers, Captured, CaptureRequest, Importer
from aotc.spec.framework_capture import CapturedDim, FrameworkCapture, StaticDim
from aotc.spec.shapes import DimRange


class Toy(Importer):
    """`.toy` files."""

    name: ClassVar[str] = "toy"
    extra: ClassVar[str] = "toy"
    title: ClassVar[str] = "a toy"
    modules: ClassVar[tuple[str, ...]] = ("no_such_toy_module",)
    distributions: ClassVar[tuple[str, ...]] = ("toyframework",)

    def recognizes(self, source: str) -> bool:
        """By the name."""
        return source.endswith(".toy")

    def capture(self, request: CaptureRequest, folder: Path) -> Captured:
        """A model of one product."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        stated = _stated(request)
        if "breaks" in stated:
            raise KeyError(stated["breaks"])
        if "needs" in stated:
            __import__(stated["needs"])
        if stated.get("runs_code") and not request.trusted:
            raise AotcError("AOTC-I127", "a toy runs code of its own", where=request.source)
        import numpy as np

        shape = stated.get("shape", ["n", 4])
        factor = numpy_helper.from_array(np.float32(stated.get("exported", stated["factor"])), "f")
        graph = helper.make_graph(
            [helper.make_node("Mul", ["x", "f"], ["y"], name="product")],
            "toy",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [factor],
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / MODEL)
        free = [each for each in shape if isinstance(each, str)]
        framework = FrameworkCapture(
            importer=self.name,
            format="toy",
            source=Path(request.source).name,
            versions=self.versions(),
            exporter="toy.export",
            opset=17,
            dims=tuple(CapturedDim(name=name, inputs=("x.0",)) for name in free),
            static_dims=tuple(
                StaticDim(input="x", axis=axis, size=shape[axis], why="4 columns", place="a.py:3")
                for axis in stated.get("static", ())
            ),
            trusted=request.trusted,
        )
        return Captured(
            framework=framework,
            outputs=("y",),
            dims={name: DimRange.from_json(text) for name, text in stated.get("dims", {}).items()},
            conditions=tuple(stated.get("conditions", ())),
        )

    def answering(self, request: CaptureRequest, folder: Path, captured: Captured) -> Answers:
        """The product, by numpy."""
        import numpy as np

        stated = _stated(request)
        if "broken" in stated:
            raise KeyError(stated["broken"])

        def answer(given: Any) -> Any:
            rows = len(given["x"])
            if rows in stated.get("fails_at", ()) or rows > stated.get("fails_above", rows):
                raise RuntimeError(f"toys take no {rows} rows")
            if stated.get("silent"):
                return {}
            wrong = stated.get("wrong_below", 0) > rows
            return {"y": given["x"] * np.float32(stated["factor"] + wrong)}

        return answer


def _stated(request: CaptureRequest) -> Any:
    return json.loads(Path(request.source).read_text())


def toy(folder: Path, name: str, **stated: Any) -> Path:
    """A source of the toy framework."""
    path = folder / f"{name}.toy"
    path.write_text(json.dumps(stated))
    return path
