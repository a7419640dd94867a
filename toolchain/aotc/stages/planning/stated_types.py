"""Half-precision types that the profile states of inputs and outputs, and the model lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Json
from aotc.contract.profile import InputSpec, OutputSpec, Profile
from aotc.errors import AotcError
from aotc.passes.half_precision.half_types import HALF_TYPES

if TYPE_CHECKING:
    import onnx

    from aotc.passes.interface_types import InterfaceTypes


def stated_half_types(profile: Profile) -> Json:
    """The half-precision types in a profile, by `inputs` or `outputs` and by name."""
    stated: dict[str, Mapping[str, InputSpec | OutputSpec]] = {
        "inputs": profile.inputs,
        "outputs": profile.outputs,
    }
    return {
        where: {name: spec.dtype for name, spec in specs.items() if spec.dtype in HALF_TYPES}
        for where, specs in stated.items()
    }


def interface_types(model: onnx.ModelProto, stated: Json) -> InterfaceTypes | None:
    """In the worker: the pass for inputs and outputs of float32 that are stated to be half.

    What is no tensor of float32 is left: its type must be the stated one, which is checked later.
    Raises AOTC-S002 if the model cannot cast, or if one value is to have two types.
    """
    from aotc.passes.interface_types import InterfaceTypes, float_tensors, why_not_cast

    inputs, outputs = (
        {name: stated[where][name] for name in float_tensors(values) if name in stated[where]}
        for where, values in (("inputs", model.graph.input), ("outputs", model.graph.output))
    )
    for where, asked in (("inputs", inputs), ("outputs", outputs)):
        for name, dtype in asked.items():
            if why := why_not_cast(model, dtype):
                raise AotcError(
                    "AOTC-S002",
                    f"this model's inputs and outputs cannot be {dtype}",
                    where=f"{where}.{name}.dtype",
                    found=why,
                    fix="Export the model with a newer operator set.",
                )
    both = float_tensors(model.graph.input) & float_tensors(model.graph.output)
    for name in sorted(both):
        one, other = inputs.get(name, "float32"), outputs.get(name, "float32")
        if one != other:
            raise AotcError(
                "AOTC-S002",
                "an input that is an output too has two dtypes",
                where=f"outputs.{name}.dtype",
                expected=one,
                found=other,
                fix="State the same dtype under inputs and under outputs.",
            )
    return InterfaceTypes(inputs=inputs, outputs=outputs) if inputs or outputs else None
