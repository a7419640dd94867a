"""Write the kernels that ONNX Runtime registers, for graph/kernels.py: ort_kernels_MINOR.json.

    python ci/kernel_tables.py [PYTHON]

PYTHON is an interpreter that has the ONNX Runtime to ask (default: this one). `onnxruntime` lists
the kernels of the CPU, `onnxruntime-gpu` CUDA's too. That wants NVIDIA's libraries, but asks them
nothing that kernels depend on: stand-ins of them serve, which are made here with a C compiler.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from aotc.graph.kernels import signature_of

GRAPH: Final = Path(__file__).resolve().parents[1] / "toolchain" / "aotc" / "graph"
READING: Final = (
    "kernels: by provider, domain and operator, [since, until, types] of each registration, which "
    "serves schema versions since..until; until 0: since alone. types: by type variable, an index "
    "into the list of types, of tensors unless they say otherwise. parameters: inputs and outputs "
    "of operators of which onnx has no schema."
)
# Providers that are predicted by their kernels.
PROVIDERS: Final = ("CPUExecutionProvider", "CUDAExecutionProvider")
ENDLESS: Final = 2**31 - 1
FUNCTIONS: Final = r" U ((?:__)?(?:cu|create\w+_INTERNAL|getInferLib|getPlugin)\w*)"
# Runs where ONNX Runtime is, which need not have this project.
LISTING: Final = """
import json
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as native

def ports(values):
    return [f"{value.name}:{value.typeStr}" for value in values]

print(json.dumps({
    "name": onnxruntime.package_name,
    "version": onnxruntime.__version__,
    "kernels": [
        (one.provider, one.domain, one.op_name, *one.version_range, one.type_constraints)
        for one in native.get_all_opkernel_def()
    ],
    "schemas": [
        (one.domain, one.name, one.since_version, ports(one.inputs), ports(one.outputs))
        for one in native.get_all_operator_schema()
    ],
}))
"""


def main(python: str) -> None:
    """Write the table of the ONNX Runtime that `python` has."""
    package = _output(python, "-c", "import onnxruntime; print(onnxruntime.__path__[0])").strip()
    with tempfile.TemporaryDirectory() as folder:
        make_stand_ins((Path(package) / "capi").glob("libonnxruntime_providers_*.so"), Path(folder))
        listed = json.loads(_output("env", f"LD_LIBRARY_PATH={folder}", python, "-c", LISTING))
    minor = ".".join(listed["version"].split(".")[:2])
    path = GRAPH / f"ort_kernels_{minor}.json"
    path.write_text(text_of(table_of(listed)), "utf-8")
    print(f"{path.name}: {len(listed['kernels'])} kernels of {listed['name']} {listed['version']}")


def make_stand_ins(libraries: Iterable[Path], folder: Path) -> None:
    """Libraries by the names of those of NVIDIA that are wanted; all functions return 0."""
    wanted: set[str] = set()
    functions: set[str] = set()
    for library in libraries:
        needs = _output("readelf", "--dynamic", "--wide", library)
        wanted |= set(re.findall(r"\[(lib(?:cu|nv)[^\]]+)\]", needs))
        missing = _output("nm", "--dynamic", "--undefined-only", library)
        functions |= set(re.findall(FUNCTIONS, missing))
    source, versions = folder / "stand_in.c", folder / "versions"
    source.write_text("".join(f"long {name}() {{ return 0; }}\n" for name in sorted(functions)))
    for name in wanted:
        versions.write_text(f"{name} {{ global: *; }};\n")
        script = f"-Wl,--version-script={versions}"
        _output("cc", "-w", "-shared", "-fPIC", script, "-o", folder / name, source)


def table_of(listed: Mapping[str, Any]) -> dict[str, Any]:
    """The table as its file holds it; types of one operator's registrations are joined."""
    joined: dict[tuple[str, str, str], dict[tuple[int, int], dict[str, set[str]]]] = {}
    for provider, domain, op, since, until, types in listed["kernels"]:
        if provider in PROVIDERS:
            registered = joined.setdefault((provider, domain, op), {})
            merged = registered.setdefault((since, 0 if until == ENDLESS else until), {})
            for name, allowed in types.items():
                merged.setdefault(name, set()).update(allowed)
    texts = sorted(
        {_text(one) for rows in joined.values() for row in rows.values() for one in row.values()}
    )
    index = {text: number for number, text in enumerate(texts)}
    kernels: dict[str, Any] = {}
    for (provider, domain, op), rows in sorted(joined.items()):
        kernels.setdefault(provider, {}).setdefault(domain, {})[op] = [
            [since, until, {name: index[_text(row[name])] for name in sorted(row)}]
            for (since, until), row in sorted(rows.items())
        ]
    parameters: dict[str, Any] = {}
    used = {(domain, op): max(rows) for (_, domain, op), rows in joined.items()}
    for domain, op, _, inputs, outputs in sorted(listed["schemas"], key=lambda row: row[2]):
        if (domain, op) in used and signature_of(domain, op, used[domain, op][0]) is None:
            parameters.setdefault(domain, {})[op] = [inputs, outputs]
    return {
        "onnxruntime": listed["version"],
        "source": f"what {listed['name']} {listed['version']} registers, by ci/kernel_tables.py",
        "reading": READING,
        "types": texts,
        "kernels": kernels,
        "parameters": {
            domain: dict(sorted(rows.items())) for domain, rows in sorted(parameters.items())
        },
    }


def text_of(table: Mapping[str, Any]) -> str:
    """JSON with a line for each operator and each list of types."""

    def lines(value: object, depth: int) -> str:
        if depth == 0 or not isinstance(value, dict):
            return json.dumps(value)
        rows = ",\n".join(
            f"{json.dumps(key)}: {lines(row, depth - 1)}" for key, row in value.items()
        )
        return f"{{\n{rows}\n}}"

    depths = {"kernels": 3, "parameters": 2}
    rows = [
        f"{json.dumps(key)}: {lines(value, depths.get(key, 0))}" for key, value in table.items()
    ]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _text(types: Iterable[str]) -> str:
    short = (
        name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name
        for name in types
    )
    return " ".join(sorted(short))


def _output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
