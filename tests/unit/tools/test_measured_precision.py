"""In which precision sizes are measured: the profile's, or the model's own where that is none."""

from __future__ import annotations

import pytest

from aotc.providers.base import ANY_USE, BACKENDS
from aotc.spec.precision import WantedPrecision
from aotc.tools.learn_costs import session_spec


@pytest.mark.parametrize("precision", ["keep", "int8", "int4", "auto"])
def test_what_is_quantized_later_is_measured_in_the_models_own_types(
    precision: WantedPrecision,
) -> None:
    backends = [BACKENDS.load(name)() for name in ("openvino", "cuda", "cpu")]
    spec = session_spec(backends, precision, ANY_USE)
    options = spec.provider_options
    assert '"INFERENCE_PRECISION_HINT":"f32"' in options["OpenVINOExecutionProvider"]["load_config"]
    assert options["CUDAExecutionProvider"]["use_tf32"] == "0"


def test_half_precision_is_measured() -> None:
    spec = session_spec([BACKENDS.load("openvino")()], "bfloat16", ANY_USE)
    options = spec.provider_options["OpenVINOExecutionProvider"]
    assert '"INFERENCE_PRECISION_HINT":"bf16"' in options["load_config"]
