"""The rooms of the package, its folders and top-level modules, and the imports of each."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cycles import PACKAGE, cycles, graph_of, imports_of_files

API = f"import {PACKAGE}"


@dataclass(frozen=True)
class Room:
    """A folder or top-level module; `files` excludes `__init__`, `imports` counts by room."""

    name: str
    files: int
    lines: int
    purpose: str
    imports: dict[str, int]
    parts: tuple[Room, ...] = ()
    cycles: tuple[tuple[str, ...], ...] = ()


def read_rooms(toolchain: Path) -> tuple[Room, ...]:
    """All rooms, by name; the package's own `__init__` is the room named by `API`."""
    edges = imports_of_files(graph_of(toolchain))
    folder = toolchain / PACKAGE
    rooms = [_read(folder / "__init__.py", API, PACKAGE, edges, purpose=_public_names(folder))]
    rooms += [
        _read(path, path.stem, f"{PACKAGE}.{path.stem}", edges)
        for path in sorted(folder.iterdir())
        if _is_room(path) and path.name != "__init__.py"
    ]
    return tuple(sorted(rooms, key=lambda room: room.name))


def foundation(rooms: Iterable[Room]) -> frozenset[str]:
    """Names of the rooms that at least half of them import, and of what those import.

    Single modules that import nothing else are included.
    """
    rooms = list(rooms)
    imports = {room.name: set(room.imports) for room in rooms}
    counted = Counter(name for names in imports.values() for name in names)
    found = {name for name, count in counted.items() if 2 * count >= len(imports)}
    while True:
        more = {name for room in found for name in imports[room]}
        more |= {room.name for room in rooms if room.files == 1 and imports[room.name] <= found}
        if more <= found:
            return frozenset(found - {API})
        found |= more


def _is_room(path: Path) -> bool:
    return path.suffix == ".py" or (path / "__init__.py").is_file()


def _read(
    path: Path, name: str, module: str, edges: dict[str, set[str]], purpose: str | None = None
) -> Room:
    sources = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    inside = [name for name in edges if _is_in(name, module)] if path.is_dir() else [module]
    imports = Counter(
        _room_of(imported, module)
        for importer in inside
        for imported in edges[importer]
        if imported not in inside
    )
    parts = (
        _read(part, part.name, f"{module}.{part.name}", edges)
        for part in (sorted(path.iterdir()) if path.is_dir() else ())
        if part.is_dir() and _is_room(part)
    )
    within = {importer: edges[importer] & set(inside) for importer in inside}
    return Room(
        name,
        files=sum(source.name != "__init__.py" for source in sources),
        lines=sum(source.read_text("utf-8").count("\n") for source in sources),
        purpose=_purpose(path) if purpose is None else purpose,
        imports={room: imports[room] for room in sorted(imports) if room},
        parts=tuple(parts),
        cycles=tuple(tuple(name.rpartition(".")[2] for name in cycle) for cycle in cycles(within)),
    )


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _room_of(imported: str, importer: str) -> str:
    """The room of an imported module, as seen from a room or part; a part names its siblings."""
    if imported == PACKAGE:
        return API
    names, own = imported.split(".")[1:], importer.split(".")[1:]
    if len(own) < 2 or names[0] != own[0]:
        return names[0]
    return "/".join(names[:2]) if len(names) > 2 else ""


def _purpose(path: Path) -> str:
    source = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    # A first sentence may continue on the second line.
    return " ".join(docstring.partition("\n\n")[0].split())


def _public_names(folder: Path) -> str:
    tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return "From Python: " + ", ".join(name for name in sorted(names) if name[0] != "_") + "."
