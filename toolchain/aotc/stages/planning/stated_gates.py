"""What the profile's gates name, checked against the model."""

from __future__ import annotations

from aotc.contract.codec.spelling import nearest
from aotc.contract.precision.gates import ANY_OUTPUT
from aotc.errors import AotcError
from aotc.stages.build_options import BuildOptions
from aotc.stages.types import SourceModel


def require_gated_outputs(source: SourceModel, options: BuildOptions) -> None:
    """Raise AOTC-I078 with every output that a gate names and the model does not have."""
    gates = options.profile.gates
    named = {f"gates.outputs.{name}": name for name in gates.outputs if name != ANY_OUTPUT}
    if gates.task is not None and gates.task.output:
        named["gates.task.output"] = gates.task.output
    known = tuple(value.name for value in source.outputs)
    refusals = [
        AotcError(
            "AOTC-I078",
            f"the model has no output {name!r}",
            where=setting,
            expected=", ".join(known),
            found=f"nearest: {close}" if (close := nearest(name, known)) else "",
            place=options.places.of(setting),
        )
        for setting, name in named.items()
        if name not in known
    ]
    if refusals:
        first, *others = refusals
        first.also = tuple(others)
        raise first
