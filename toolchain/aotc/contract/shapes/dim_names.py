"""Anonymous names of dims: what exporters write if they know neither size nor name."""

from __future__ import annotations

import re

# tf2onnx and ONNX's inference count `unk__12`, Paddle2ONNX `p2o.DynamicDimension.0`, torch.onnx
# `x_dynamic_axes_1`; converters of Python objects write None.  `N`, `s0` and `dim_0` are names.
_ANONYMOUS = re.compile(
    r"""\s* (?:
        \?+ | \*+ | -\d+
        | none | null | nil | nan | undefined | dynamic
        | unk (?: nown )? (?: _{0,2} \d+ )?
        | (?: p2o\. )? DynamicDimension (?: \.\d+ )?
        | (?: .* _ )? dynamic_axes_\d+
    )? \s*""",
    re.ASCII | re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def is_anonymous(name: str) -> bool:
    """Whether the name of a dim, such as `None`, `?` or `unk__12`, does not identify it.

    Two positions with the same anonymous name are different dims.
    """
    return _ANONYMOUS.fullmatch(name) is not None
