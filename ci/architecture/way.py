"""The way of a model, and of a request, through a build, as a reader of the code follows it.

`python ci/architecture/way.py [FOLDER OF THE PACKAGE]` prints how many files each passes, how often
it climbs, and how many names it bears; `--list` prints the files and the climbs too.

The way follows the calls from `aotc.pipeline.build:build`, in the order of the lines: into every
function that is named, and for jobs into the one that a string `"module:function"` names. It passes
a file where a function in it has a parameter for what is followed, by its annotation. It climbs
where the next new file is called from another file than the last one: a reader who has come to an
end there goes back up to go on. Names are those of such parameters.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOOLCHAIN = Path(__file__).resolve().parents[2] / "toolchain"
START = ("aotc.pipeline.build", "build")
# What a model is called by its types, from stage to stage and in the worker.
MODEL = frozenset(
    {
        *("SourceModel", "AnalyzedModel", "SpecializedModel", "OptimizedModel", "ClaimedModel"),
        *("PartitionedModel", "UndividedModel", "LoweredModel", "LoweredVariants", "ProvenModel"),
        *("JudgedVariant", "ProvenVariants", "Artifact", "SignedArtifact", "InputGraph"),
        *("CompiledModel", "Division", "TrialGraph", "PartitionGraph", "GraphView"),
        *("ModelProto", "GraphProto"),
    }
)
REQUEST = frozenset({"BuildRequest", "BuildOptions", "BuildContext", "BuildState"})
_JOB = re.compile(r"aotc\.[a-z_.]+:[a-z_]+")


@dataclass
class Function:
    """A function or method: where it stands, and the types that its parameters state."""

    module: str
    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    parameters: dict[str, set[str]]


@dataclass
class Module:
    """What a module defines, and what its names mean elsewhere."""

    name: str
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, list[str]] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)


@dataclass
class Way:
    """Files in the order in which they are first passed, climbs, and names of parameters."""

    types: frozenset[str]
    files: list[str] = field(default_factory=list)
    climbs: list[tuple[str, str, str]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    parameters: int = 0
    last: str = START[0]


def read(toolchain: Path) -> dict[str, Module]:
    """All modules of the package."""
    found = {}
    for path in sorted((toolchain / "aotc").rglob("*.py")):
        parts = path.relative_to(toolchain).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        module = found[name] = Module(name)
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    module.imported[each.asname or each.name] = (node.module, each.name)
        _read_body(tree.body, module, "")
    return found


def _read_body(body: list[ast.stmt], module: Module, prefix: str) -> None:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            stated = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            module.functions[prefix + node.name] = Function(
                module.name,
                prefix + node.name,
                node,
                {each.arg: _words(each.annotation) for each in stated},
            )
        elif isinstance(node, ast.ClassDef):
            _read_body(node.body, module, f"{node.name}.")
            names = [n for n in module.functions if n.startswith(f"{node.name}.")]
            module.classes[node.name] = names
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            value = node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                for target in targets:
                    if isinstance(target, ast.Name):
                        module.constants[target.id] = value.value
        elif isinstance(node, ast.If):
            _read_body(node.body, module, prefix)


def _words(annotation: ast.expr | None) -> set[str]:
    return set(re.findall(r"\w+", ast.unparse(annotation))) if annotation is not None else set()


def walk(modules: dict[str, Module], types: frozenset[str]) -> Way:
    """The way of what has one of these types."""
    way = Way(types=types)
    start = modules[START[0]].functions[START[1]]
    _visit(start, START[0], modules, way, set(), job=False)
    return way


def _visit(
    function: Function,
    caller: str,
    modules: dict[str, Module],
    way: Way,
    seen: set[tuple[str, str]],
    *,
    job: bool,
) -> None:
    """`caller` is the last file that was passed on the way to `function`."""
    seen.add((function.module, function.name))
    borne = {
        name
        for name, words in function.parameters.items()
        if words & way.types or (job and way.types is MODEL)
    }
    if borne:
        way.names |= borne
        way.parameters += len(borne)
        if function.module not in way.files:
            way.files.append(function.module)
            if caller != way.last:
                way.climbs.append((way.last, caller, function.module))
            way.last = function.module
        caller = function.module
    for target, is_job in _handed(function, modules[function.module], modules):
        if (target.module, target.name) not in seen:
            _visit(target, caller, modules, way, seen, job=is_job)


def _handed(
    function: Function, module: Module, modules: dict[str, Module]
) -> Iterator[tuple[Function, bool]]:
    """Functions that are named in its body, in the order of the lines, and whether as jobs."""
    named: list[tuple[tuple[int, int], Function, bool]] = []
    for node in ast.walk(function.node):
        place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        if isinstance(node, ast.Name):
            text = module.constants.get(node.id, "")
            named += [(place, each, True) for each in _job(text, modules)]
            found = _resolved(node.id, module, modules, module.imported)
            named += [(place, each, False) for each in found]
        elif isinstance(node, ast.Attribute):
            named += [(place, each, False) for each in _method(node, function, module, modules)]
        elif isinstance(node, ast.Constant) and _JOB.fullmatch(str(node.value)):
            named += [(place, each, True) for each in _job(str(node.value), modules)]
    for _, each, is_job in sorted(named, key=lambda item: item[0]):
        if each is not function:
            yield each, is_job


def _job(text: str, modules: dict[str, Module]) -> list[Function]:
    if not _JOB.fullmatch(text):
        return []
    name, _, function = text.partition(":")
    module = modules.get(name)
    found = module.functions.get(function) if module is not None else None
    return [found] if found is not None else []


def _resolved(
    name: str, module: Module, modules: dict[str, Module], imported: dict[str, tuple[str, str]]
) -> list[Function]:
    if name in module.functions:
        return [module.functions[name]]
    if name in module.classes:
        return [module.functions[each] for each in module.classes[name]]
    if name in imported:
        home, own = imported[name]
        other = modules.get(home)
        if other is not None and other is not module:
            return _resolved(own, other, modules, other.imported)
    return []


def _method(
    node: ast.Attribute, function: Function, module: Module, modules: dict[str, Module]
) -> list[Function]:
    """A method of the same class, a function of an imported module, or the only one so named."""
    if isinstance(node.value, ast.Name):
        own = function.name.partition(".")[0]
        if node.value.id == "self":
            found = module.functions.get(f"{own}.{node.attr}")
            return [found] if found is not None else []
        if node.value.id in module.imported:
            home, name = module.imported[node.value.id]
            other = modules.get(f"{home}.{name}")
            if other is not None:
                return _resolved(node.attr, other, modules, other.imported)
    return []


def main(arguments: list[str]) -> int:
    """Print both ways."""
    given = [each for each in arguments if not each.startswith("-")]
    modules = read(Path(given[0]) if given else TOOLCHAIN)
    for title, types in (("model", MODEL), ("request", REQUEST)):
        way = walk(modules, types)
        print(
            f"{title}: {len(way.files)} files, {len(way.climbs)} climbs, "
            f"{way.parameters} parameters of {len(way.names)} names"
        )
        if "--list" in arguments:
            print(*(f"  {name}" for name in way.files), sep="\n")
            print(*(f"  climb {a} -> {b} -> {c}" for a, b, c in way.climbs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
