"""Session config entries of ONNX Runtime that an artifact may ask for."""

from __future__ import annotations

from typing import Final

# ONNX Runtime takes no longer values.
MAX_VALUE_BYTES: Final = 8192
# For one operator.
MAX_THREADS: Final = 1024

# A manifest may hold them: they change how a session computes, and do not name files.
MANIFEST_KEYS: Final = frozenset(
    {
        "mlas.disable_kleidiai",
        "mlas.enable_gemm_fastmath_arm64_bfloat16",
        "mlas.qnbit.force_fp32",
        "mlas.use_lut_gemm",
        "optimization.disable_specified_optimizers",
        "optimization.enable_cast_chain_elimination",
        "optimization.enable_gelu_approximation",
        "session.disable_aot_function_inlining",
        "session.disable_cpu_ep_fallback",
        "session.disable_double_qdq_remover",
        "session.disable_prepacking",
        "session.disable_quant_qdq",
        "session.dynamic_block_base",
        "session.enable_quant_qdq_cleanup",
        "session.graph_optimizations_loop_level",
        "session.inter_op.allow_spinning",
        "session.intra_op.allow_spinning",
        "session.qdq_matmulnbits_accuracy_level",
        "session.qdqisint8allowed",
        "session.set_denormal_as_zero",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.x64quantprecision",
    }
)
