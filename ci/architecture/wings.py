"""The wings of the package: its folders in the order of `.importlinter`, and what each imports."""

from __future__ import annotations

import ast
import configparser
from dataclasses import dataclass
from pathlib import Path

from cycles import PACKAGE, graph_of, imports_of_children

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Wing:
    """A folder of the package, or a folder in one; `modules` excludes each `__init__`."""

    name: str
    modules: int
    lines: int
    purpose: str
    imports: tuple[str, ...] = ()
    folders: tuple[Wing, ...] = ()


def read_wings(toolchain: Path) -> tuple[Wing, ...]:
    """All wings, the highest first."""
    rules = configparser.ConfigParser()
    rules.read(ROOT / ".importlinter")
    order = rules["importlinter:contract:layers"]["layers"].split()
    edges = imports_of_children(graph_of(toolchain), PACKAGE)
    return tuple(
        _read(
            toolchain / PACKAGE / name,
            name,
            tuple(other for other in order if f"{PACKAGE}.{other}" in edges[f"{PACKAGE}.{name}"]),
        )
        for name in order
    )


def _read(path: Path, name: str, imports: tuple[str, ...] = ()) -> Wing:
    sources = sorted(path.rglob("*.py"))
    docstring = ast.get_docstring(ast.parse((path / "__init__.py").read_text("utf-8"))) or ""
    return Wing(
        name,
        modules=sum(source.name != "__init__.py" for source in sources),
        lines=sum(source.read_text("utf-8").count("\n") for source in sources),
        purpose=" ".join(docstring.partition("\n\n")[0].split()),
        imports=imports,
        folders=tuple(
            _read(child, f"{name}/{child.name}")
            for child in sorted(path.iterdir())
            if (child / "__init__.py").is_file()
        ),
    )
