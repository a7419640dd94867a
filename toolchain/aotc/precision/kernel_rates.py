"""What ONNX Runtime's CPU kernels take in float32 and in integers, by the kind of CPU.

By these it is weighed which nodes become integers.  The numbers are measured once for each kind of
CPU and kept here, as an artifact may not depend on how busy the build host was:
`python -m benchmarks.precision.kernel_rates` prints the rows of the machine that it runs on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from aotc.base.records import record

# Convolutions that read fewer channels have a kernel of their own in float32, and none in integers.
FEW_CHANNELS: Final = 4


@record(kw_only=False)
class Rate:
    """Seconds of one thread: of a call, of an operation (or an element), of a byte of weights."""

    call: float
    operation: float
    weight_byte: float = 0.0

    def seconds(self, operations: float, weight_bytes: float = 0.0) -> float:
        """The time of one call."""
        return self.call + self.operation * operations + self.weight_byte * weight_bytes


@record(kw_only=False)
class KernelRates:
    """The rates of one kind of CPU, with the machine and the day of the measurement.

    `rates` are by kind of kernel and form (`float32`, `static`, `dynamic`); `quantize` and
    `dequantize` have no form.
    """

    cpu: str
    measured: str
    rates: Mapping[str, Rate]

    def of(self, kernel: str, form: str) -> Rate:
        """The rate of a kernel; what was not measured moves values, as Transpose does."""
        found = self.rates.get(f"{kernel} {form}")
        return found if found is not None else self.rates[f"Transpose {form}"]


_VNNI: Final = KernelRates(
    "AMD EPYC with AVX-512 and VNNI",
    "2026-11-26, ONNX Runtime 1.31.1",
    {
        "product float32": Rate(4e-07, 3.8e-12, 5.9e-12),
        "product static": Rate(4.2e-07, 1.2e-12, 7.7e-12),
        "product dynamic": Rate(8e-07, 1.3e-12, 7.5e-12),
        "first convolution float32": Rate(1.3e-06, 6.3e-12),
        "first convolution static": Rate(3e-06, 5e-12, 7.5e-10),
        "convolution float32": Rate(1.5e-06, 4.5e-12),
        "convolution static": Rate(1.1e-06, 1.2e-12),
        "depthwise float32": Rate(5.3e-07, 9.3e-12),
        "depthwise static": Rate(1.2e-06, 1e-11),
        "grouped float32": Rate(2.5e-05, 2.1e-11),
        "grouped static": Rate(0.00014, 1.5e-11),
        "quantize": Rate(4e-07, 4.6e-11),
        "dequantize": Rate(4e-07, 8e-11),
        "Add float32": Rate(4e-07, 1e-10),
        "Add static": Rate(4e-07, 9e-11),
        "Mul float32": Rate(4e-07, 9e-11),
        "Mul static": Rate(4.3e-07, 1.7e-10),
        "Sigmoid float32": Rate(4e-07, 2.1e-10),
        "Sigmoid static": Rate(4.4e-07, 2.2e-10),
        "LeakyRelu float32": Rate(4e-07, 1.6e-10),
        "LeakyRelu static": Rate(4e-07, 2.3e-10),
        "GlobalAveragePool float32": Rate(6.1e-07, 1.4e-10),
        "AveragePool float32": Rate(6.1e-07, 1.4e-10),
        "GlobalAveragePool static": Rate(5e-07, 7.3e-11),
        "AveragePool static": Rate(5e-07, 7.3e-11),
        "MaxPool float32": Rate(4e-07, 2.3e-10),
        "MaxPool static": Rate(4.6e-07, 2.6e-11),
        "Transpose float32": Rate(4e-07, 1.1e-10),
        "Transpose static": Rate(4e-07, 2.9e-11),
        "Relu float32": Rate(4e-07, 6e-11),
    },
)
# Kernels that multiply, which are slower without VNNI; BERT-base and ResNet-50 with weights in 7
# bits took 0.54 and 0.50 of float32's time there.
_PRODUCTS: Final = ("product", "convolution", "first convolution", "depthwise", "grouped")
_WITHOUT_VNNI: Final = KernelRates(
    "x86-64 with AVX2 alone",
    "taken from that with VNNI, products by the times of networks on AMD EPYC, 2026-11-22",
    {
        name: Rate(rate.call, rate.operation * factor, rate.weight_byte)
        for name, rate in _VNNI.rates.items()
        for factor in (
            1.0 if not name.startswith(_PRODUCTS) else (1.8 if name.endswith("float32") else 2.5),
        )
    },
)


def rates_of(isa: Collection[str] | None) -> KernelRates:
    """The rates of CPUs with the features `isa` (None: nothing is known of them)."""
    with_vnni = {"avx512_vnni", "avx_vnni", "amx_int8"}.intersection(isa or ())
    return _VNNI if with_vnni else _WITHOUT_VNNI
