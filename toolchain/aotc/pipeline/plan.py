"""What the profile states, checked against model and host, and the variants that follow."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import nearest
from aotc.graph.symbols import (
    Symbols,
    ambiguous_name,
    example_equality,
    free_dims,
    sizes_by_position,
)
from aotc.graph.view import every_node
from aotc.pipeline.context import BuildContext
from aotc.pipeline.types import (
    AnalyzedModel,
    ReferenceRun,
    SourceModel,
    VariantPlan,
    wanted_in_float32,
)
from aotc.precision.half_conversion import HALF_TYPES
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of, backends_of
from aotc.spec.allowed_values import STATABLE, AllowedValues
from aotc.spec.buckets import sizes_in_graph
from aotc.spec.codec import Json
from aotc.spec.conditions import Condition, read_condition
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import (
    ANY_OUTPUT,
    Precision,
    QuantizationSpec,
    QuantizedForm,
    TaskGate,
    WantedPrecision,
    matching_names,
    unmatched,
)
from aotc.spec.profile import InputSpec, OutputSpec, Profile, VariantSpec
from aotc.spec.shapes import DimRange

if TYPE_CHECKING:
    from aotc.graph.passes.on_import import InterfaceTypes

# The maximum length of dim names in a variant's name, which is part of folder names.
_MAX_LENGTH: Final = 100
_DYNAMIC: Final[Mapping[str, int]] = {}
# In the order in which `auto` takes the first that all providers run.
# Forms of int8 that observe activations.
OBSERVING: Final = frozenset({"static", "mixed"})
_AUTO: Final[tuple[QuantizedForm, ...]] = ("static", "dynamic", "weights")


def is_built_here(spec: VariantSpec, context: BuildContext) -> bool:
    """Whether this host builds a variant of the profile for the target.

    Level ALL fixes the layout for the CPU of the build, and some providers compile for that CPU
    alone, so host and target must be alike.  Raises AOTC-P007.
    """
    host, target = context.host, context.target
    if host.architecture == target.architecture and set(host.isa or ()) == set(target.isa or ()):
        return True
    order = spec.providers or context.profile.providers
    native = any(backend_of(name, context.profile.plugins).native for name in order)
    return spec.isa != "host" and not native


def require_providers(specs: Iterable[VariantSpec], context: BuildContext) -> None:
    """Raise AOTC-P004 if a variant that is built here needs a provider that this host lacks.

    Raises AOTC-P007 for an unknown provider.
    """
    backends_of(_named(specs, context), context.profile)


def require_measurable(specs: Iterable[VariantSpec], context: BuildContext) -> None:
    """Raise AOTC-O020 if a candidate of `--tune` has a provider that this host cannot run.

    A profile means the same on every host: such a candidate must not lose for that.
    """
    for name in _named(specs, context):
        found = backend_of(name, context.profile.plugins).probe()
        if not found.runs:
            raise AotcError(
                "AOTC-O020",
                f"--tune has to run every candidate, and {name} does not run here",
                expected=f"a machine that runs {name}",
                found=found.why_not,
                place=context.places.of("providers"),
            )


def _named(specs: Iterable[VariantSpec], context: BuildContext) -> tuple[str, ...]:
    """The providers of variants that are built here, each once."""
    orders = (
        spec.providers or context.profile.providers
        for spec in specs
        if is_built_here(spec, context)
    )
    return tuple(dict.fromkeys(name for order in orders for name in order))


def wanted_variants(
    ranges: Mapping[str, DimRange], context: BuildContext
) -> tuple[tuple[VariantPlan, ...], tuple[Finding, ...]]:
    """The variants that this host can build, and AOTC-O002 for each that it cannot.

    `ranges` are what the profile states of the model's dims.  The variant for all sizes comes
    first, then one for each combination of buckets; it is omitted if no call is routed to it.  A
    variant that captures sizes as CUDA graphs takes those of all combinations itself.
    Raises AOTC-I022 if two variants have one name, P004 if none is left, and P007.
    """
    host, target = context.host, context.target
    bucketed = {name: spec.buckets for name, spec in ranges.items() if spec.buckets}
    # A single empty combination if no dim has buckets.
    chosen = tuple(
        dict(zip(bucketed, sizes, strict=True)) for sizes in itertools.product(*bucketed.values())
    )
    combinations: list[Mapping[str, int]] = [*chosen]
    if bucketed and any(spec.routes for spec in ranges.values()):
        combinations.insert(0, _DYNAMIC)
    plans, findings = [], []
    for spec in context.profile.variants:
        order = spec.providers or context.profile.providers
        if not is_built_here(spec, context):
            findings.append(
                Finding(
                    code="AOTC-O002",
                    what=f"this host is not the target {target.name}",
                    where=spec.name,
                )
            )
            continue
        cuda = spec.cuda or context.profile.cuda
        captures = context.profile.captures_sizes(spec)
        # The CPU takes the remaining nodes if the fallback policy says so.
        falls_back = context.profile.fallback.policy == "cpu" and "cpu" not in order
        providers = (*order, "cpu") if falls_back else order
        wanted = spec.precision or context.profile.precision
        # Where `auto` was to be chosen, it has been by now.
        precision: Precision = "keep" if wanted == "auto" else wanted
        quantization = spec.quantization or context.profile.quantization
        backends = [backend_of(each, context.profile.plugins) for each in providers]
        for buckets in [_DYNAMIC] if captures else combinations:
            name = f"{spec.name}.{bucket_suffix(buckets)}" if buckets else spec.name
            plans.append(
                VariantPlan(
                    name=name,
                    spec=spec.name,
                    isa=spec.isa,
                    prepack=spec.prepack,
                    buckets=buckets,
                    providers=providers,
                    precision=precision,
                    quantization=quantization,
                    keep_float32=wanted_in_float32(spec, context.profile),
                    threads=spec.threads,
                    optimization=spec.optimization,
                    may_lower_level=spec.optimization == "auto",
                    cuda=cuda,
                    # One beside static variants takes the sizes that none of them captures.
                    captures=chosen if captures else (buckets,) if buckets or not bucketed else (),
                    may_be_static=observes(precision, quantization, backends),
                )
            )
    if not plans:
        raise AotcError(
            "AOTC-P004",
            "no variant of the profile can be built for this target here",
            where="target",
            expected=f"a build host with the CPU features of {target.name}",
            found=", ".join(host.isa or ()),
            fix="Build on a host like the target, or add a variant for any CPU to the profile.",
        )
    # They name folders, and not every system distinguishes case.
    names = Counter(plan.name.lower() for plan in plans)
    duplicates = [plan.name for plan in plans if names[plan.name.lower()] > 1]
    if duplicates:
        raise AotcError(
            "AOTC-I022",
            f"two variants get the name {duplicates[0]!r}",
            where="variants",
            fix="Give one of the profile's variants another name.",
        )
    return tuple(plans), tuple(findings)


def bucket_suffix(buckets: Mapping[str, int]) -> str:
    """The name of a combination of buckets in files and components, such as `batch2-seq64`."""
    words = [re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:32] for name in buckets]
    if len(set(words)) < len(words) or not all(words) or sum(map(len, words)) > _MAX_LENGTH:
        words = [f"dim{index}" for index in range(len(words))]
    return "-".join(
        f"{word}_{size}" if word[-1].isdigit() else f"{word}{size}"
        for word, size in zip(words, buckets.values(), strict=True)
    )


def accepts_run(analyzed: AnalyzedModel, plan: VariantPlan, reference: ReferenceRun) -> bool:
    """Whether a variant accepts the sizes of a reference run, padded if necessary."""
    return sizes_in_graph(analyzed.domain, plan.served, reference.sizes) is not None


def unpadded_runs(
    analyzed: AnalyzedModel, plan: VariantPlan, references: Iterable[ReferenceRun]
) -> list[ReferenceRun]:
    """Those of `references` that a variant takes without padding."""
    return [
        reference
        for reference in references
        if all(reference.sizes.get(name) == size for name, size in plan.buckets.items())
        and accepts_run(analyzed, plan, reference)
    ]


# What the profile states of dims and inputs, checked against the model.


def stated_ranges(source: SourceModel, context: BuildContext) -> Mapping[str, DimRange]:
    """The profile's ranges, by the names of dims after import.

    The profile may use any name of a dim, or a position `INPUT.AXIS`.
    Raises AOTC-S002, S004, and S011 if two names of one dim have different ranges.
    """
    _check_inputs(source, context)
    _check_output_types(source, context)
    dims = {d for value in source.inputs for d in value.shape or () if isinstance(d, str)}
    rankless = {f"{value.name}.0" for value in source.inputs if value.shape is None}
    dims |= rankless
    fixed = {
        f"{value.name}.{index}": size
        for value in source.inputs
        for index, size in enumerate(value.shape or ())
        if isinstance(size, int)
    }
    ranges: dict[str, DimRange] = {}
    called: dict[str, str] = {}
    for name, spec in context.profile.dims.items():
        dim = name if name in dims else source.symbols.dim(name)
        if dim is not None:
            if ranges.setdefault(dim, spec) != spec:
                raise _conflicting_ranges(called[dim], name, ranges[dim], spec)
            called[dim] = name
            if dim in rankless and (spec.buckets or spec.pads):
                raise AotcError(
                    "AOTC-S002",
                    "an input of unknown rank cannot have buckets or padding",
                    where=f"dims.{name}",
                    expected="a range, or one size",
                    found=range_text(spec),
                )
        elif several := source.symbols.dims_of_anonymous(name):
            raise _ambiguous_name(f"dims.{name}", name, several)
        elif name not in fixed:
            raise AotcError(
                "AOTC-S002",
                f"the model has no dim {name!r}",
                where=f"dims.{name}",
                expected=", ".join(sorted(dims)) or "no free dim",
                found=_nearest(name, dims),
            )
        elif not (spec.is_fixed() and spec.min == fixed[name]):
            raise AotcError(
                "AOTC-S004", "the model fixes this dim", where=name, found=f"size {fixed[name]}"
            )
    for name, spec in source.taken.captured.dims.items() if source.taken is not None else ():
        dim = name if name in dims else source.symbols.dim(name)
        if dim is not None:
            ranges.setdefault(dim, spec)
    return ranges


def captured_conditions(source: SourceModel) -> tuple[Condition, ...]:
    """The conditions that a framework states of its program, by the names of dims after import."""
    if source.taken is None:
        return ()
    found = (read_condition(text) for text in source.taken.captured.conditions)
    return tuple(
        each.renamed({name: source.symbols.dim(name) or name for name in each.dims})
        for each in found
        if each is not None
    )


def with_stated_values(
    symbols: Symbols, profile: Profile, known: Mapping[str, AllowedValues]
) -> Symbols:
    """`symbols` whose inputs have the values that the profile states of them, else those `known`.

    Raises AOTC-I111 if these are none of the input, and S002 and S004 if a bound is no free dim.
    """
    stated = {
        **known,
        **{name: each.allowed for name, each in profile.inputs.items() if each.allowed},
    }
    return replace(
        symbols,
        declared=tuple(
            _with_values(value, stated.get(value.name), symbols) for value in symbols.declared
        ),
    )


def _with_values(value: Value, allowed: AllowedValues | None, symbols: Symbols) -> Value:
    if allowed is None:
        return value
    where = f"inputs.{value.name}"
    for problem in allowed.problems_of(value.kind, value.dtype)[:1]:
        raise AotcError(
            "AOTC-I111",
            "the input has no such values",
            where=f"{where}.{problem.path}".rstrip("."),
            expected=value.dtype if value.dtype in STATABLE else "numbers or text",
            found=problem.what,
        )
    sums = allowed.sums()
    declared = {symbols.names.get(dim, dim): dim for dim in free_dims(symbols.declared)}
    dims = {
        term: declared[_free_dim(term, f"{where}.{name}", symbols)]
        for name, read in sums.items()
        for term in read.terms
    }
    return replace(value, allowed=allowed.with_dims(dims.__getitem__))


def _free_dim(name: str, where: str, symbols: Symbols) -> str:
    """The dim after import that a name in the profile refers to; raises AOTC-S002 and S004."""
    dim = symbols.dim(name)
    if dim is not None:
        return dim
    if several := symbols.dims_of_anonymous(name):
        raise _ambiguous_name(where, name, several)
    fixed = sizes_by_position(symbols.declared).get(name)
    if isinstance(fixed, int):
        raise AotcError(
            "AOTC-S004",
            f"the model fixes {name!r}",
            where=where,
            found=f"size {fixed}",
            fix="Write the number.",
        )
    dims = free_dims(symbols.inputs())
    raise AotcError(
        "AOTC-S002",
        f"the model has no dim {name!r}",
        where=where,
        expected=", ".join(sorted(dims)) or "no free dim",
        found=_nearest(name, dims),
    )


def stated_crops(
    source: SourceModel, context: BuildContext
) -> Mapping[str, Mapping[str, str] | None]:
    """How the profile crops outputs, by the names of dims after import.

    Raises AOTC-S002 if a name is ambiguous because several dims have it.
    """
    crops: dict[str, Mapping[str, str] | None] = {}
    for name, spec in context.profile.outputs.items():
        # A type is stated of patterns of names as well.
        if spec.crop is None and spec.dtype is not None:
            continue
        for dim in (spec.crop or {}).values():
            several = source.symbols.dims_of_anonymous(dim)
            if source.symbols.dim(dim) is None and several:
                raise _ambiguous_name(f"outputs.{name}.crop", dim, several)
        crops[name] = spec.crop and {
            axis: source.symbols.dim(dim) or dim for axis, dim in spec.crop.items()
        }
    return crops


def _check_inputs(source: SourceModel, context: BuildContext) -> None:
    by_name = {value.name: value for value in source.inputs}
    for name, stated in context.profile.inputs.items():
        value = by_name.get(name)
        if value is None:
            if matching_names(by_name, (name,)):
                _refuse_other_statements(f"inputs.{name}", stated, InputSpec(dtype=stated.dtype))
                continue
            raise AotcError(
                "AOTC-S002",
                f"the model has no input {name!r}",
                where=f"inputs.{name}",
                expected=", ".join(by_name) or "no input",
                found=_nearest(name, by_name),
            )
        if stated.dtype is not None and stated.dtype != value.dtype:
            raise _other_dtype("input", value, stated.dtype)
        if stated.shape is not None and not _matches_shape(
            stated.shape, value.shape, source.symbols
        ):
            raise AotcError(
                "AOTC-S002",
                "the input has another shape",
                where=f"inputs.{name}.shape",
                expected=_shape(value.shape),
                found=_shape(stated.shape),
                fix="Write the model's shape; sizes of its dims are stated under dims.",
            )


def _check_output_types(source: SourceModel, context: BuildContext) -> None:
    by_name = {value.name: value for value in source.outputs}
    for name, stated in context.profile.outputs.items():
        value = by_name.get(name)
        if value is None and matching_names(by_name, (name,)):
            _refuse_other_statements(f"outputs.{name}", stated, OutputSpec(dtype=stated.dtype))
            continue
        if value is None and stated.dtype is not None:
            raise AotcError(
                "AOTC-S002",
                f"the model has no output {name!r}",
                where=f"outputs.{name}",
                expected=", ".join(by_name),
                found=_nearest(name, by_name),
            )
        if value is not None and stated.dtype not in (None, value.dtype):
            raise _other_dtype("output", value, stated.dtype)


def _refuse_other_statements(
    where: str, stated: InputSpec | OutputSpec, allowed: InputSpec | OutputSpec
) -> None:
    """Raise AOTC-S002 for a pattern of names that states more than a half-precision type."""
    if stated == allowed and stated.dtype in HALF_TYPES:
        return
    raise AotcError(
        "AOTC-S002",
        "a pattern of names states a half-precision dtype, and nothing else",
        where=where,
        expected="{dtype: float16} or {dtype: bfloat16}",
        fix="State all else under the name of each input or output.",
    )


def _other_dtype(kind: str, value: Value, stated: str | None) -> AotcError:
    return AotcError(
        "AOTC-S002",
        f"the {kind} has another dtype",
        where=f"{kind}s.{value.name}.dtype",
        expected=value.dtype,
        found=stated or "",
        fix="State the model's own dtype. A tensor of float32 may also be float16 or bfloat16.",
    )


def _matches_shape(
    stated: tuple[int | str, ...], shape: tuple[int | str, ...] | None, symbols: Symbols
) -> bool:
    """Whether `stated` is the `shape` of an input, with dims under any of their names."""
    return (
        shape is not None
        and len(stated) == len(shape)
        and all(
            mine == theirs
            or (
                isinstance(mine, str)
                and theirs in (symbols.dim(mine), *symbols.dims_of_anonymous(mine))
            )
            for mine, theirs in zip(stated, shape, strict=True)
        )
    )


def _ambiguous_name(where: str, name: str, dims: tuple[str, ...]) -> AotcError:
    return AotcError(
        "AOTC-S002",
        ambiguous_name(name, dims),
        where=where,
        expected=", ".join(dims),
        fix="Name each dim by its position, or state under relations which of them are equal: "
        f"{example_equality(dims)}.",
    )


def _conflicting_ranges(first: str, second: str, one: DimRange, other: DimRange) -> AotcError:
    return AotcError(
        "AOTC-S011",
        f"{first!r} and {second!r} are the same dim, but have different ranges",
        where=f"dims.{second}",
        expected=range_text(one),
        found=range_text(other),
        fix="State the range once.",
    )


def range_text(spec: DimRange) -> str:
    """A stated range in words."""
    sizes = ", ".join(str(size) for size in spec.buckets)
    if not spec.bounded:
        return f"multiples of {spec.multiple_of}"
    bounds = str(spec.min) if spec.min == spec.max else f"{spec.min}..{spec.max}"
    steps = f" in steps of {spec.multiple_of}" if spec.multiple_of > 1 else ""
    return f"{sizes} within {bounds}" if sizes else bounds + steps


def _nearest(name: str, known: Iterable[str]) -> str:
    close = nearest(name, tuple(known))
    return f"nearest: {close}" if close else ""


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "any" if shape is None else f"[{', '.join(str(size) for size in shape)}]"


# What the profile names besides: outputs of gates, forms of integers, data, nodes.


def require_gated_outputs(source: SourceModel, context: BuildContext) -> None:
    """Raise AOTC-I078 with every output that a gate names and the model does not have.

    AOTC-I093 for an axis that a named output does not have.
    """
    gates = context.profile.gates
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
            place=context.places.of(setting),
        )
        for setting, name in named.items()
        if name not in known
    ]
    refusals += [
        AotcError(
            "AOTC-I093",
            f"output {value.name!r} has no axis {gate.axis}",
            where=f"gates.outputs.{value.name}.axis",
            expected=f"{-len(value.shape)} to {len(value.shape) - 1}",
            found=str(gate.axis),
            place=context.places.of(f"gates.outputs.{value.name}.axis"),
        )
        for value in source.outputs
        if (gate := gates.outputs.get(value.name)) is not None
        and gate.axis is not None
        and value.shape is not None
        and not -len(value.shape) <= gate.axis < len(value.shape)
    ]
    if refusals:
        first, *others = refusals
        first.also = tuple(others)
        raise first


def form_of(
    precision: WantedPrecision,
    spec: QuantizationSpec,
    backends: Sequence[Backend],
    *,
    samples: bool,
) -> QuantizedForm:
    """The form of int8 or int4: as stated, else the first that all `backends` run.

    int4 is of weights alone, or mixed, and static needs `samples`.
    """
    if precision == "int4":
        return "mixed" if spec.form == "mixed" else "weights"
    if spec.form != "auto":
        return spec.form
    possible = _AUTO if samples else _AUTO[1:]
    return next(
        (form for form in possible if all(form in b.quantized.get("int8", ()) for b in backends)),
        possible[0],
    )


def observes(
    precision: WantedPrecision, spec: QuantizationSpec, backends: Sequence[Backend]
) -> bool:
    """Whether a variant, where it is quantized, observes activations on samples if there are any.

    With the form `auto`, that is for `backends` to say: CUDA runs integers of weights alone.
    """
    if precision not in ("int8", "auto"):
        return False
    return form_of("int8", spec, backends, samples=True) in OBSERVING


def labelled_set(task: TaskGate, context: BuildContext) -> Path:
    """The path of the set: a relative one starts beside the profile."""
    return profile_folder(context) / Path(task.data).expanduser()


def profile_folder(context: BuildContext) -> Path:
    """The folder of the profile's file; the working directory for a profile made in Python."""
    file = context.places.file
    return (Path(file).parent if file else Path()).resolve()


def require_kept_nodes(source: SourceModel, plans: Iterable[VariantPlan]) -> None:
    """Raise AOTC-N016 if a name or a pattern under `keep_float32` matches no node.

    Nodes are those of the imported graph, in its bodies too.
    """
    names: list[str] = []
    for plan in plans:
        if not plan.keep_float32:
            continue
        if not names:
            graph = onnx.load(source.graph, load_external_data=False)
            names = [node.name for node in every_node(graph)]
        for pattern in unmatched(names, plan.keep_float32)[:1]:
            raise AotcError(
                "AOTC-N016",
                f"no node has the name {pattern!r}",
                where=f"variant {plan.name}: keep_float32",
                expected="the name of a node, such as "
                f"{nearest(pattern, tuple(names)) or names[0]}",
                found=pattern,
            )


# Half-precision types that the profile states of inputs and outputs, and the model lacks.


def stated_half_types(profile: Profile) -> Json:
    """The half-precision types in a profile, by `inputs` or `outputs` and by name."""
    inputs = {name: spec.dtype for name, spec in profile.inputs.items()}
    outputs = {name: spec.dtype for name, spec in profile.outputs.items()}
    return {
        where: {name: dtype for name, dtype in dtypes.items() if dtype in HALF_TYPES}
        for where, dtypes in (("inputs", inputs), ("outputs", outputs))
    }


def interface_types(model: onnx.ModelProto, stated: Json) -> InterfaceTypes | None:
    """In the worker: the pass for inputs and outputs of float32 that are stated to be half.

    What is no tensor of float32 is left: its type must be the stated one, which is checked later.
    Raises AOTC-S002 if the model cannot cast, or if one value is to have two types.
    """
    from aotc.graph.passes.on_import import InterfaceTypes, float_tensors, why_not_cast

    inputs, outputs = (
        _stated_by_name(stated[where], float_tensors(values))
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


def _stated_by_name(stated: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """The type of each of `names` that has one: its own, or that of the first pattern."""
    found: dict[str, str] = {}
    for pattern, dtype in stated.items():
        for name in sorted(matching_names(names, (pattern,))):
            found.setdefault(name, stated.get(name, dtype))
    return found
