"""What CUDA's errors are called: of the device, not of the model."""

from __future__ import annotations

import pytest

from aotc.host.nvidia import hidden_gpus
from aotc.providers.ort import gpu_failure, gpu_refusal
from aotc.session.device.device import HostDevice

# As ONNX Runtime 1.31 words them.
MESSAGE = (
    "[ONNXRuntimeError] : 1 : FAIL : CUDA failure {number}: {words} ; GPU=0 ; hostname=host ; "
    "file=cuda_graph.cc ; line=121 ; expr=cudaGraphLaunch(graph_exec, stream_); "
)


@pytest.mark.parametrize(
    ("number", "words", "code"),
    [
        (700, "an illegal memory access was encountered", "AOTC-R036"),
        (715, "an illegal instruction was encountered", "AOTC-R036"),
        (719, "unspecified launch failure", "AOTC-R036"),
        (214, "uncorrectable ECC error encountered", "AOTC-R036"),
        (46, "CUDA-capable device(s) is/are busy or unavailable", "AOTC-R037"),
        (100, "no CUDA-capable device is detected", "AOTC-R025"),
        (101, "invalid device ordinal", "AOTC-R025"),
    ],
)
def test_errors_of_the_device_have_codes(number: int, words: str, code: str) -> None:
    error = RuntimeError(MESSAGE.format(number=number, words=words))
    found = gpu_failure(error, "cuda device 0")
    assert found is not None
    assert (found.code, found.where) == (code, "cuda device 0")
    assert f"CUDA failure {number}: {words}" in found.found
    assert HostDevice().failure(error).code == code
    named = gpu_refusal(number)
    assert named is not None and named.code == code and named.found.startswith("cudaError")


@pytest.mark.parametrize(
    "text",
    [
        MESSAGE.format(number=900, words="operation not permitted when stream is capturing"),
        "CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED",
        "Non-zero status code returned while running Add node.",
    ],
)
def test_others_stay_what_they_are(text: str) -> None:
    assert gpu_failure(RuntimeError(text)) is None
    assert HostDevice().failure(RuntimeError(text)).code == "AOTC-R005"


def test_too_little_memory_is_told_first() -> None:
    error = RuntimeError(MESSAGE.format(number=2, words="out of memory"))
    assert gpu_failure(error) is None
    assert HostDevice().failure(error).code == "AOTC-M004"


@pytest.mark.parametrize("value", ["", " ", "-1", "-1,0", ",0"])
def test_a_variable_that_hides_all_gpus_is_named(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert hidden_gpus() == f"CUDA_VISIBLE_DEVICES is {value!r}, which hides all GPUs"


@pytest.mark.parametrize("value", [None, "0", "1,-1", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"])
def test_others_hide_none_or_not_all(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert hidden_gpus() == ""
