"""Nine real architectures that the onnx package ships, their weights made by ConstantOfShape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import numpy_helper
from workbench import Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc import verify

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
QUICK = ("bvlc_alexnet", "resnet50", "shufflenet", "squeezenet", "zfnet512")
SLOW = ("densenet121", "inception_v1", "inception_v2", "vgg19")


def networks() -> list[object]:
    return [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


def test_all_networks_that_ship_are_here() -> None:
    assert sorted(path.stem for path in LIGHT.glob("*.onnx")) == sorted(
        f"light_{name}" for name in (*QUICK, *SLOW)
    )


@pytest.mark.parametrize("name", networks())
def test_built_loaded_and_run(name: str, tmp_path: Path) -> None:
    bench = Workbench.at(tmp_path)
    path = LIGHT / f"light_{name}.onnx"
    built = bench.build(path, name, profile="edge")
    assert verify(built.path, key=bench.public).verdict == "optimal"
    source = built.manifest.source
    assert source.op_types["ConstantOfShape"] > 0
    assert source.size == path.stat().st_size
    assert built.manifest.domain.dims == {}
    (value,) = built.manifest.inputs
    shape = tuple(size for size in value.shape or () if isinstance(size, int))
    rng = np.random.default_rng(5)
    with bench.load(built) as model:
        assert model.report.fixtures == len(built.manifest.fixtures) > 0
        for image in (rng.uniform(size=shape), np.ones(shape)):
            inputs = {value.name: image.astype(np.float32)}
            expected = plain_answer(plain_session(path), inputs)
            assert_agree(expected, model.run(inputs), tolerance_of(built), name)


@pytest.mark.parametrize("name", networks())
def test_the_answer_that_ships_with_it(name: str, tmp_path: Path) -> None:
    """The package's own runner feeds ramps; equal weights make all classes equal."""
    bench = Workbench.at(tmp_path)
    built = bench.build(LIGHT / f"light_{name}.onnx", name, profile="edge")
    data = (LIGHT / f"light_{name}_output_0.pb").read_bytes()
    expected = numpy_helper.to_array(onnx.TensorProto.FromString(data))
    (value,) = built.manifest.inputs
    shape = tuple(size for size in value.shape or () if isinstance(size, int))
    inputs = {value.name: np.ones(shape, np.float32)}
    with bench.load(built) as model:
        (found,) = model.run(inputs).values()
    np.testing.assert_allclose(found, expected, rtol=1e-3)
