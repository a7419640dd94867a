"""The error type of the project, and the exit statuses of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from aotc.base.codes import REASONS
from aotc.base.codes.reason import NO, USAGE
from aotc.base.records import record
from aotc.base.text import printable

EXIT_YES: Final = 0
EXIT_NO: Final = NO
EXIT_USAGE: Final = USAGE
EXIT_INTERRUPTED: Final = 130

# All that loading and running needs.
_RUNTIME_MODULES: Final = ("onnxruntime", "numpy")
# Top-level modules of the extras `cpu`, `report` and `oci`; `google` is protobuf's.
_EXTRA_MODULES: Final = (
    *("onnx", "onnxruntime", "numpy", "google", "junitparser"),
    *("fast_sugiyama", "oras", "requests", "urllib3"),
)


@record
class Place:
    """A place in a text file that a user wrote, such as the line of a profile that sets a limit."""

    file: Annotated[str, "path, as it was given"]
    line: Annotated[int, "from 1"] = 1
    column: Annotated[int, "in characters, from 1"] = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class AotcError(Exception):
    """A refusal: what happened, where, what was expected and found, and how to fix it.

    `code` is a stable reason code of those that `aotc explain` lists, which also gives `title` and
    `exit_status`; an unknown code raises KeyError.  `what` is a sentence without a full stop.
    `where` names a file, node or field.  `expected` and `found` are short texts.  `fix` defaults to
    the catalogue's.  `also` holds further refusals, so that a report can list every reason.  `rows`
    is a table with details, such as the nodes concerned: one mapping from column to cell per row.
    `place` is where a user's file is wrong, or states what was not met; None: in no such file.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        found: str = "",
        fix: str = "",
        also: tuple[AotcError, ...] = (),
        rows: Sequence[Mapping[str, str]] = (),
        place: Place | None = None,
    ) -> None:
        reason = REASONS[code]
        self.code = code
        self.title = reason.title
        self.exit_status = reason.exit_status
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.fix = fix or reason.fix
        self.also = also
        self.rows = tuple(rows)
        self.place = place
        super().__init__(self.line())

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], AotcError], tuple[Any, ...]]:
        """Copy and pickle all fields: errors of a worker process are pickled."""
        fields = ("code", "what", "where", "expected", "found", "fix", "also", "rows", "place")
        return _from_fields, ({name: getattr(self, name) for name in fields},)

    def every(self) -> Iterator[AotcError]:
        """This refusal, and the further ones in `also` with theirs."""
        yield self
        for other in self.also:
            yield from other.every()

    def line(self) -> str:
        """The error as one printable line, without the fix."""
        what, where, expected, found = map(
            printable, (self.what, self.where, self.expected, self.found)
        )
        text = f"{self.code} {what}"
        if where:
            text += f" [{where}]"
        if self.place is not None:
            text += f" at {printable(str(self.place))}"
        return text + expected_and_found(expected, found)

    def to_dict(self) -> dict[str, str]:
        """The error as JSON-like data, as `--json` shows it; empty fields are left out."""
        fields: Mapping[str, str] = {
            "code": self.code,
            "title": self.title,
            "what": self.what,
            "where": self.where,
            "expected": self.expected,
            "found": self.found,
            "fix": self.fix,
        }
        return {name: value for name, value in fields.items() if value}


def _from_fields(fields: Mapping[str, Any]) -> AotcError:
    return AotcError(**fields)


def with_others(errors: Iterable[AotcError]) -> AotcError:
    """The first of some errors, with the others in `also`."""
    first, *others = errors
    first.also = tuple(others)
    return first


def expected_and_found(expected: str, found: str) -> str:
    """` (expected A; found B)` with a leading blank; an empty text is left out."""
    pairs = (("expected", expected), ("found", found))
    text = "; ".join(f"{name} {value}" for name, value in pairs if value)
    return f" ({text})" if text else ""


def install_extra(extra: str) -> str:
    """The command that installs an extra of aotc, which is not on a package index yet."""
    return f"pip install '.[{extra}]' in a clone of aotc, or 'FILE.whl[{extra}]' of its wheel"


INSTALL_RUNTIME: Final = (
    "pip install onnxruntime, which brings numpy, is enough to load and run. To build as well: "
    + install_extra("cpu")
)


def missing_package(
    error: ModuleNotFoundError, what: str, extra: str = "cpu", *, only_loads: bool = False
) -> Exception:
    """The exception to raise for a module that was not found.

    It is an AotcError with AOTC-I019 if an extra installs the module, else `error` itself, as that
    is a bug.  `what` names the function that needs the module.  With `only_loads`, it only loads
    and runs artifacts, for which ONNX Runtime's package is enough without the extra.
    """
    missing = (error.name or "").partition(".")[0]
    if missing not in _EXTRA_MODULES:
        return error
    is_runtime = only_loads and missing in _RUNTIME_MODULES
    return AotcError(
        "AOTC-I019",
        f"{what} needs the package {missing}",
        fix=INSTALL_RUNTIME if is_runtime else install_extra(extra),
    )
