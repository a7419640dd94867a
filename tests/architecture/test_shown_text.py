"""Every place that writes to a terminal is known, and does not write foreign text unescaped.

Text is shown through `aotc.base.text.printable`.  Listed here are all places that could bypass it:
a new one either uses `aotc.cli.terminal`, or is reviewed and listed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest
from repository import ROOT

PACKAGE = ROOT / "toolchain" / "aotc"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

# Modules that write, or that show what is given to them.
WRITERS = {
    "rich",
    "getpass",
    "logging",
    "warnings",
    "traceback",
    "html",
    "curses",
    "pprint",
}
IMPORTED = {
    ("cli/terminal.py", "rich"): "checked below, call by call",
    ("cli/progress.py", "rich"): "checked below, call by call",
    ("cli/main.py", "traceback"): "given to `write_lines`; names a line of ours",
    ("precision/quantize.py", "logging"): "silences a library",
    ("cli/terminal.py", "warnings"): "given to `write_lines`",
    ("session/worker.py", "traceback"): "of a job, into its answer or its log",
    ("trust/keyless_verification.py", "logging"): "to keep sigstore quiet",
    ("pipeline/task_metrics.py", "traceback"): "reads the lines of frames alone",
    ("providers/cuda.py", "logging"): "to keep onnxscript quiet",
    ("sources/torch_program.py", "logging"): "to keep torch's exporter quiet",
    ("sources/torch_program.py", "warnings"): "to keep torch's exporter quiet",
    ("sources/torch_module.py", "logging"): "reads what torch decides",
    ("sources/torch_module.py", "traceback"): "reads the lines of frames alone",
    ("sources/hugging_face_models.py", "traceback"): "reads the lines of frames alone",
    ("sources/capturing.py", "traceback"): "into the log of the capturing process",
    ("sources/hugging_face_models.py", "warnings"): "to keep the exporter quiet",
    ("sources/sklearn_estimators.py", "warnings"): "to keep the exporter quiet",
    ("sources/exported_text.py", "warnings"): "silences Python's parser",
    ("sources/torch_loading.py", "logging"): "to take the cause that torch logs",
    ("base/logs.py", "logging"): "each text through `printable`, for who listens",
    ("trust/key_loading.py", "getpass"): "its prompt is checked below",
}
# Uses of the streams, by function, with how often.
STREAMS = {
    ("providers/openvino.py", "_main", 3): "of a process of ours whose output is read",
    ("sources/user_code.py", "_written", 2): "flushes, to know whether the user's code printed",
    ("cli/output.py", "write_output", 2): "JSON, or a page of `printable` texts; both in ASCII",
    ("cli/main.py", "_run", 3): "flushes",
    ("cli/terminal.py", "prepare", 6): "opens them where they are closed, sets their encoding up",
    ("cli/commands/__init__.py", "_show_version", 1): "our version",
    ("cli/main.py", "_dispatch", 1): "words that complete a call: ours, and names of built-ins",
    ("cli/commands/bench.py", "_write", 3): "JSON, in printable ASCII; one given to `show`",
    ("cli/commands/completion.py", "completion", 1): "our scripts",
    ("cli/main.py", "_fail", 9): "given to functions of `terminal`",
    ("cli/output.py", "_is_standard_output", 1): "compared, and written nowhere",
    ("cli/output.py", "write", 2): "given to `write_lines` and `may_be_lost`",
    ("cli/grammar.py", "show_defaults", 2): "given to `write_lines` and `may_be_lost`",
    ("cli/grammar.py", "_timed", 2): "given to `write_lines` and `may_be_lost`",
    ("cli/progress.py", "__init__", 1): "given to rich, checked below",
    ("cli/progress.py", "show_line", 3): "given to `write_lines` and `may_be_lost`",
    ("cli/commands/run.py", "_show_beside", 2): "given to `show` and `may_be_lost`",
    ("cli/main.py", "_unforeseen", 1): "given to `terminal`",
    ("cli/terminal.py", "escaped_warnings", 1): "given to `write_lines`",
    ("cli/commands/base.py", "respond_yaml", 1): "YAML, in printable ASCII",
    ("cli/commands/base.py", "respond", 2): "given to `show` and `may_be_lost`",
    ("cli/commands/base.py", "bars", 1): "asks whether it is a terminal",
    ("cli/commands/build.py", "_tell_unproven", 2): "given to `write_lines` and `may_be_lost`",
    ("cli/commands/reproduce.py", "_tell", 2): "given to `show_sheet` and `may_be_lost`",
    (
        "cli/commands/fleet/build_fleet.py",
        "_tell",
        2,
    ): "given to `write_lines` and `may_be_lost`",
    ("cli/commands/explain.py", "explain", 1): "asks how wide the terminal is",
    ("cli/terminal.py", "show_names", 1): "asks whether it is a terminal",
    ("cli/output.py", "chosen_model", 3): "asks whether it is a terminal; given to `write_lines`",
    ("cli/progress.py", "stages", 1): "asks whether it is a terminal",
    ("cli/terminal.py", "show", 1): "what the functions below made",
    ("cli/terminal.py", "write_lines", 1): "each line through `printable`",
    ("cli/terminal.py", "answering", 1): "compared, and written nowhere",
    ("cli/run_reporting.py", "_write_out", 3): "a form of `aotc.report`, which escapes all text",
    ("cli/run_reporting.py", "write", 3): "annotations, whose texts are through `printable`",
    ("cli/run_reporting.py", "show_lost", 2): "given to `write_lines`",
    ("cli/run_reporting.py", "show_replaced", 2): "given to `write_lines` and `may_be_lost`",
    ("session/worker.py", "work", 2): "flushes",
    (
        "base/files/writing.py",
        "write_atomically",
        2,
    ): "flushes, before a file that is standard output",
    ("trust/key_loading.py", "_ask", 1): "asks whether it is a terminal",
}
# Descriptors 1 and 2, past the streams.
DESCRIPTORS = {
    ("session/forkserver.py", "_send"): "JSON to the parent",
    ("session/worker.py", "work"): "into the job's log",
}
# What gives text that is safe, and what takes text to show it.
SAFE = {"printable", "_cell"}
SHOWS = {"Text", "append", "append_text", "add_row", "add_column", "print", "add_task", "getpass"}
SHOWN = {
    "cli/terminal.py": {
        "console.print(Text())",
        "console.print(part)",  # made by the functions of this file
        "Text('\\n'.join(shown), style=style)",  # of lines through `printable`
        "table.add_row(*cells[:2], Bar(largest, 0, number, width=width), cells[3])",
        "Text('  ').append_text(line)",  # a part of what `_cell` made
        # Of `printable`, in a branch of the expression.
        "Text(f'  {printable(part.status)}' if part.status else '', style=style)",
        "line.append_text(said)",
        "name.append_text(self.status)",
        # Cells and heads that `_cell` made, and spaces.
        "table.add_column(head, width=width, no_wrap=self.one_line, overflow='fold')",
        "table.add_column(head, justify='right' if index == 1 else 'left', no_wrap=True)",
        "table.add_row(*(cells if self.one_line else row))",
        "Text(label, style='dim').append_text(cell)",
        "Text(label, style='dim')",
        "line.append('  ').append_text(shown.pop(0))",
        "console.print(text, soft_wrap=True)",
        "shown.append(f'{indent}and {len(lines) - _MAX_ROWS} more')",
    },
    # Titles and steps are through `printable` in `StageStack`.
    "cli/progress.py": {
        "self._console.print(f'  {text}', no_wrap=True, overflow='ellipsis')",
        "self._shown.add_task(_title(stage), total=None, done='')",
        "self.under_way.append(stage)",  # a list
    },
    "trust/key_loading.py": {
        "found.append(TrustedKey(pem=public_pem(public), origin=origin))",  # a list
    },
}


def functions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each node with the name of the outermost function that contains it."""
    found = [("", tree)]
    while found:
        name, node = found.pop()
        for child in ast.iter_child_nodes(node):
            inner = name
            if not name and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = child.name
            yield inner, child
            found.append((inner, child))


@cache
def parsed(path: str) -> ast.AST:
    return ast.parse(SOURCES[path].read_text(encoding="utf-8"))


def at_type_checking(tree: ast.AST) -> set[ast.AST]:
    """Imports for type checkers only."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }


def test_every_import_of_what_writes_is_known() -> None:
    found = set()
    for path in SOURCES:
        tree = parsed(path)
        skipped = at_type_checking(tree)
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [item.name for item in node.names]
            elif isinstance(node, ast.ImportFrom) and node not in skipped:
                names = [node.module or ""]
            found |= {(path, top) for item in names if (top := item.split(".")[0]) in WRITERS}
    assert found == set(IMPORTED)


def test_every_use_of_the_streams_is_known() -> None:
    found: dict[tuple[str, str], int] = {}
    for path in SOURCES:
        for function, node in functions(parsed(path)):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in ("stdout", "stderr", "__stdout__", "__stderr__")
                and ast.unparse(node.value) == "sys"
            ):
                found[path, function] = found.get((path, function), 0) + 1
            assert not (
                isinstance(node, ast.ImportFrom)
                and node.module == "sys"
                and {item.name for item in node.names} & {"stdout", "stderr"}
            ), f"{path} takes a stream by itself"
    assert {(*place, count) for place, count in found.items()} == set(STREAMS)


def test_nothing_is_printed_past_the_streams() -> None:
    found = set()
    for path in SOURCES:
        for function, node in functions(parsed(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert "/dev/tty" not in node.value, f"{path}: {node.value}"
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name):
                name = node.func.id
                assert name not in ("print", "input", "breakpoint"), f"{path}: {ast.unparse(node)}"
            first = node.args[0] if node.args else None
            if (
                isinstance(first, ast.Constant)
                and first.value in (1, 2)
                and ast.unparse(node.func)
                in ("os.write", "os.fdopen", "open", "os.writev", "io.open")
            ):
                found.add((path, function))
    assert found == set(DESCRIPTORS)


def is_safe(node: ast.expr) -> bool:
    """Whether an expression is a literal, or text passed through a function that makes it safe."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Starred | ast.FormattedValue):
        return is_safe(node.value)
    if isinstance(node, ast.JoinedStr):
        return all(is_safe(item) for item in node.values)
    if isinstance(node, ast.GeneratorExp):
        return is_safe(node.elt)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "no_command":
        return all(map(is_safe, node.args))
    return isinstance(node, ast.Call) and ast.unparse(node.func) in SAFE


@pytest.mark.parametrize("path", ["cli/terminal.py", "cli/progress.py", "trust/key_loading.py"])
def test_whatever_is_given_to_rich_is_safe(path: str) -> None:
    reviewed, used = SHOWN.get(path, set()), set()
    for _, node in functions(parsed(path)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name not in SHOWS or all(is_safe(item) for item in node.args):
            continue
        text = ast.unparse(node)
        assert text in reviewed, f"{path} shows what nobody made safe: {text}"
        used.add(text)
    missing = {item for item in reviewed - used if item != "console.print(Text())"}
    assert not missing, "no longer there"
