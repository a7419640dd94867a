"""ONNX Runtime's kernels as a table, and what it predicts for a graph."""

from aotc.backends.kernels.cpu_preferred import prefers_cpu
from aotc.backends.kernels.kernel_claims import Prediction, claim_by_kernels
from aotc.backends.kernels.table import Kernel, KernelTable, Lookup

__all__ = ["Kernel", "KernelTable", "Lookup", "Prediction", "claim_by_kernels", "prefers_cpu"]
