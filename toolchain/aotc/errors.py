"""The one error type of the project, and the exit statuses of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aotc.escaping import printable
from aotc.reasons import REASONS
from aotc.reasons.reason import NO, USAGE

EXIT_YES: Final = 0
EXIT_NO: Final = NO
EXIT_USAGE: Final = USAGE
EXIT_INTERRUPTED: Final = 130


class AotcError(Exception):
    """A refusal: what happened, where, what was expected and found, and the fix.

    `code` is a stable reason code of `aotc.reasons.REASONS`; an unknown one is our own bug.
    `where` names a file, node or field.  `fix` defaults to the catalogue's.
    `also` holds further refusals of the same kind, so that a report lists every reason; `rows`
    is a table of what it is about, such as nodes, by column.
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
        super().__init__(self.line())

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], AotcError], tuple[Any, ...]]:
        """Copied and pickled with all its fields: a pool's process hands its errors back so."""
        fields = ("code", "what", "where", "expected", "found", "fix", "also", "rows")
        return _restored, ({name: getattr(self, name) for name in fields},)

    def line(self) -> str:
        """The error in one line that can be shown, without the fix."""
        what, where, expected, found = map(
            printable, (self.what, self.where, self.expected, self.found)
        )
        text = f"{self.code} {what}"
        if where:
            text += f" [{where}]"
        return text + compared(expected, found)

    def to_dict(self) -> dict[str, str]:
        """The error as data; empty fields are left out."""
        fields: Mapping[str, str] = {
            "code": self.code,
            "title": self.title,
            "what": self.what,
            "where": self.where,
            "expected": self.expected,
            "found": self.found,
            "mend": self.fix,
        }
        return {name: value for name, value in fields.items() if value}


def _restored(fields: Mapping[str, Any]) -> AotcError:
    return AotcError(**fields)


def compared(expected: str, found: str) -> str:
    """What was expected and what was found, in brackets; of what is not known, nothing."""
    pairs = (("expected", expected), ("found", found))
    text = "; ".join(f"{name} {value}" for name, value in pairs if value)
    return f" ({text})" if text else ""


def install_extra(extra: str) -> str:
    """The fix that installs an extra: aotc comes as a clone or a wheel, and from no index yet."""
    return f"pip install '.[{extra}]' in a clone of aotc, or 'FILE.whl[{extra}]' of its wheel"


INSTALL_RUNTIME: Final = (
    "pip install onnxruntime, which brings numpy, is enough to load and run. To build as well: "
    + install_extra("cpu")
)
# What loading and running needs.
_RUNTIME_MODULES: Final = ("onnxruntime", "numpy")
# Packages that the extra `cpu` brings, and what protobuf's is called.
_EXTRA_MODULES: Final = ("onnx", "onnxruntime", "numpy", "google")


def missing_package(
    error: ModuleNotFoundError, what: str, extra: str = "cpu", *, loads: bool = False
) -> Exception:
    """AOTC-I019 where the module is of an extra; else `error` itself, a bug of ours.

    What only `loads` and runs needs no extra: ONNX Runtime's package is enough.
    """
    missing = (error.name or "").partition(".")[0]
    if missing not in _EXTRA_MODULES:
        return error
    enough = loads and missing in _RUNTIME_MODULES
    return AotcError(
        "AOTC-I019",
        f"{what} needs the package {missing}",
        fix=INSTALL_RUNTIME if enough else install_extra(extra),
    )
