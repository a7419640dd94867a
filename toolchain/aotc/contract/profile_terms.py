"""Parts of a profile that artifacts and reports repeat, and read without the profile's records."""

from __future__ import annotations

from typing import Annotated, Literal

from aotc.contract.codec.parsing import Bounds, Pattern
from aotc.records import record

Share = Annotated[float, Bounds(0, 1)]

# The precision that a variant computes in; `keep` is that of the model's own types.
Precision = Literal["keep", "tf32", "float16", "bfloat16", "int8", "int4"]
# What a profile may ask for; `auto` is the quickest one that passes all gates.
WantedPrecision = Literal["keep", "tf32", "float16", "bfloat16", "int8", "int4", "auto"]
# Classes of arithmetic, each of which has a tolerance in `ParitySpec`.
Arithmetic = Literal["float32", "float16", "quantized", "tf32", "bfloat16", "int8", "int4"]
Isa = Literal["baseline", "host"]
Prepack = Literal["at-load", "saved", "off"]
Level = Literal["auto", "basic", "extended"]
Name = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")]


@record
class Tolerance:
    """|actual - reference| <= atol + rtol * max|reference| over an output; cosine >= min_cosine."""

    atol: Annotated[float, Bounds(0)]
    rtol: Annotated[float, Bounds(0)]
    min_cosine: Annotated[float, Bounds(-1, 1)] = 0.0


@record
class Traffic:
    """The requests that the shapes were learned from, as `aotc profile learn` writes them."""

    requests: Annotated[int, Bounds(1), "requests in the file"]
    sha256: Annotated[str, Pattern(r"[0-9a-f]{64}"), "of the file"]
    coverage: Annotated[Share, "of requests that the profile accepts"]
    padding: Annotated[float, Bounds(0), "elements added, for each element of the requests"]
    plan: Annotated[str, "what was chosen, in words"] = ""
