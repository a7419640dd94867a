"""The kernels of ONNX Runtime's own execution providers, as data.

The data are from one release; a later one has these and more, so predictions refuse slightly too
much, never too little.  If a kernel is registered once per type, the table combines the types: for
an operator with several type variables it may accept a pair that no kernel has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from aotc.contract.operator_domains import STANDARD
from aotc.records import record

_DATA = "ort_kernels_1.30.json"
_SUFFIX = "ExecutionProvider"


@record
class Kernel:
    """One registration: schema versions `since` to `until`, or only `since` if `until` is None.

    `types`: the types allowed for each type variable, or each formal parameter with its own
    constraint, in ONNX's spelling: `tensor(float)`.  `inputs` and `outputs`: name and type of the
    formal parameters, if the onnx package has no schema.
    """

    ep: str
    domain: str
    op: str
    since: int
    until: int | None
    types: Mapping[str, frozenset[str]]
    inputs: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()

    def serves(self, version: int) -> bool:
        """Whether it runs nodes whose schema has this version.

        A registration without an end is only valid for one version: the operator may have changed
        since (`VerifyVersion` in ONNX Runtime's `core/framework/kernel_registry.cc`).
        """
        if self.until is None:
            return self.since == version
        return self.since <= version <= self.until

    def versions(self) -> str:
        """The range in words: `13`, `1..10`."""
        if self.until in (None, self.since):
            return str(self.since)
        return f"{self.since}..{self.until}"


@record
class Lookup:
    """The kernel, or the reason why there is none."""

    kernel: Kernel | None = None
    reason: str = ""


@record(kw_only=False)
class KernelTable:
    """All kernels by provider, domain and operator; `version` is that of ONNX Runtime."""

    version: str
    source: str
    kernels: Mapping[tuple[str, str, str], tuple[Kernel, ...]]

    @staticmethod
    @cache
    def load() -> KernelTable:
        """The table that the package contains."""
        data = json.loads(files(__package__).joinpath(_DATA).read_text("utf-8"))
        grouped: dict[tuple[str, str, str], tuple[Kernel, ...]] = {}
        for ep, domains in data["kernels"].items():
            for domain, rows in domains.items():
                for row in rows:
                    key = (ep, domain, row["op"])
                    grouped[key] = (*grouped.get(key, ()), _kernel(ep, domain, row))
        return KernelTable(data["onnxruntime"], data["source"], grouped)

    def registered(self, ep: str, domain: str, op: str) -> tuple[Kernel, ...]:
        """Every registration of one operator, oldest first; empty if the provider lacks it."""
        return self.kernels.get((ep, "" if domain in STANDARD else domain, op), ())

    def kernel(
        self, ep: str, domain: str, op: str, version: int, types: Mapping[str, str] | None = None
    ) -> Lookup:
        """The kernel of `ep` for a node, or why it has none.

        `version` is the since-version of the node's schema, not the model's opset.  `types` are by
        type variable or formal parameter; an omitted one is unknown, and never refused.
        """
        provider = ep.removesuffix(_SUFFIX)
        op_name = op if domain in STANDARD else f"{domain}::{op}"
        registered = self.registered(ep, domain, op)
        if not registered:
            return Lookup(reason=f"{provider} has no kernel of {op_name}")
        serving = [kernel for kernel in registered if kernel.serves(version)]
        if not serving:
            available = ", ".join(kernel.versions() for kernel in registered)
            return Lookup(
                reason=f"{provider} has no kernel of {op_name}-{version} (it has: {available})"
            )
        for kernel in serving:
            refused = _refused_type(kernel, types or {})
            if refused is None:
                return Lookup(kernel=kernel)
        assert refused is not None
        name, found = refused
        available = ", ".join(sorted(_short_name(one) for one in serving[-1].types[name]))
        kind = f"{_short_name(found)} as {name}"
        return Lookup(
            reason=f"{provider} has no kernel of {op_name}-{version} for {kind} "
            f"(it has: {available})"
        )


def _refused_type(kernel: Kernel, types: Mapping[str, str]) -> tuple[str, str] | None:
    for name, allowed in kernel.types.items():
        found = types.get(name)
        if found is not None and found not in allowed:
            return name, found
    return None


def _kernel(ep: str, domain: str, row: Mapping[str, object]) -> Kernel:
    types, since, until = row["types"], row["since"], row.get("until")
    assert isinstance(types, dict) and isinstance(since, int)
    assert until is None or isinstance(until, int)
    return Kernel(
        ep=ep,
        domain=domain,
        op=str(row["op"]),
        since=since,
        until=until,
        types={name: frozenset(map(_onnx_spelling, text.split())) for name, text in types.items()},
        inputs=_parameters(row.get("inputs")),
        outputs=_parameters(row.get("outputs")),
    )


def _parameters(row: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(row, list):
        return ()
    pairs = (text.partition(":") for text in row)
    return tuple((name, kind) for name, _, kind in pairs)


def _onnx_spelling(name: str) -> str:
    return name if "(" in name else f"tensor({name})"


def _short_name(name: str) -> str:
    return name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name
