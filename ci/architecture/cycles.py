"""Cycles of imports, between files and between folders; imports for type checkers count too.

`python ci/architecture/cycles.py [FOLDER OF THE PACKAGE]` prints them, and exits with 1 if there
are any. The contract in `.importlinter` covers imports at run time without `__init__`; this covers
the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

PACKAGE = "aotc"
TOOLCHAIN = Path(__file__).resolve().parents[2] / "toolchain"

Edges = Mapping[str, Iterable[str]]


def graph_of(toolchain: Path = TOOLCHAIN) -> grimp.ImportGraph:
    """Every import within the package in this folder, at run time or for types only."""
    # Before an installed package of the same name.
    sys.path.insert(0, str(toolchain))
    try:
        return grimp.build_graph(PACKAGE, cache_dir=None)
    finally:
        sys.path.remove(str(toolchain))


def cycles(edges: Edges) -> list[list[str]]:
    """Names that reach each other: a sorted list per cycle (a strongly connected component)."""
    reached = {name: _reached_from(name, edges) for name in edges}
    found = {
        tuple(sorted(other for other in reach if name in reached.get(other, ())))
        for name, reach in reached.items()
        if name in reach
    }
    return [list(cycle) for cycle in sorted(found)]


def _reached_from(start: str, edges: Edges) -> set[str]:
    reached: set[str] = set()
    waiting = list(edges.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(edges.get(name, ()))
    return reached


def imports_of_files(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    """The imports of each file."""
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def imports_of_children(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """The imports among the files and folders of one folder, with everything in them."""
    depth = package.count(".") + 2
    edges: dict[str, set[str]] = {child: set() for child in graph.find_children(package)}
    for name in graph.find_descendants(package):
        importer = ".".join(name.split(".")[:depth])
        for imported in graph.find_modules_directly_imported_by(name):
            child = ".".join(imported.split(".")[:depth])
            if child != importer and child in edges:
                edges[importer].add(child)
    return edges


def all_cycles(graph: grimp.ImportGraph) -> list[str]:
    """Every cycle as text: first those of files, then those within a folder."""
    found = ["files: " + ", ".join(cycle) for cycle in cycles(imports_of_files(graph))]
    for package in sorted(graph.modules):
        if graph.find_children(package):
            found += [
                f"in {package}: " + ", ".join(name.removeprefix(f"{package}.") for name in cycle)
                for cycle in cycles(imports_of_children(graph, package))
            ]
    return found


def main(arguments: list[str]) -> int:
    """Print the cycles; 1 if there are any."""
    found = all_cycles(graph_of(Path(arguments[0]).resolve() if arguments else TOOLCHAIN))
    for cycle in found:
        print(cycle)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
