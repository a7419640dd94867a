"""How exact a variant must be: a tolerance for each class of arithmetic."""

from __future__ import annotations

from typing import Annotated

from aotc.contract.codec.parsing import Bounds
from aotc.contract.profile_terms import Tolerance
from aotc.records import record


@record
class ParitySpec:
    """How exact a variant must be, by its class of arithmetic, and how many shapes are compared."""

    float32: Tolerance = Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999)
    float16: Tolerance = Tolerance(atol=1e-3, rtol=2e-2, min_cosine=0.999)
    quantized: Annotated[Tolerance, "models with quantized operators"] = Tolerance(
        atol=1e-2, rtol=0.1, min_cosine=0.99
    )
    tf32: Annotated[Tolerance, "float32 models that compute in TF32"] = Tolerance(
        atol=1e-3, rtol=2e-2, min_cosine=0.999
    )
    bfloat16: Annotated[Tolerance, "models that compute in bfloat16"] = Tolerance(
        atol=1e-2, rtol=5e-2, min_cosine=0.995
    )
    int8: Annotated[Tolerance, "models that aotc quantizes to 8 bits"] = Tolerance(
        atol=1e-2, rtol=0.1, min_cosine=0.99
    )
    int4: Annotated[Tolerance, "models that aotc quantizes to 4 bits"] = Tolerance(
        atol=2e-2, rtol=0.2, min_cosine=0.98
    )
    random_shapes: Annotated[int, Bounds(0, 64), "shapes drawn at random between the corners"] = 2
    seed: Annotated[int, Bounds(0, 2**32 - 1), "seed of generated fixtures"] = 1729
