"""The forms of a report by the suffix of its file, and where each is written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, missing_package
from aotc.base.files.confined import is_confined
from aotc.base.files.failures import system_message
from aotc.base.files.folders import MANIFEST
from aotc.base.files.reading import open_plain
from aotc.base.files.writing import write_atomically
from aotc.base.registry import Registry
from aotc.spec.codec import encode
from aotc.spec.json import document
from aotc.spec.run_report import RunReport

# A form is a function from a report to its text, in UTF-8.
TEXTS: Final = Registry(
    "form of a report",
    (
        (".codequality.json", "aotc.report.code_quality:code_quality_text"),
        (".json", "aotc.report.report_forms:json_text"),
        (".md", "aotc.report.markdown:markdown_text"),
        (".sarif", "aotc.report.sarif:sarif_text"),
        (".xml", "aotc.report.junit:junit_text"),
    ),
)
# A page is drawn from the artifact as well, by a function of the artifact's path (None: nothing was
# built) and the report.
PAGES: Final = Registry("page", ((".html", "aotc.report.html.artifact_page:run_page"),))
# `-` alone is JSON, and `-.md` is Markdown.
STANDARD_OUTPUT: Final = "-"

Text = Callable[[RunReport], str]
Page = Callable[[Path | None, RunReport], str]


def is_standard_output(file: str) -> bool:
    """Whether a report goes to standard output: `-`, or `-` and a suffix."""
    return file == STANDARD_OUTPUT or (file.startswith("-.") and os.sep not in file)


def suffix_of(file: str) -> str:
    """The suffix that a report's form is chosen by; raises AOTC-I048 if there is no such form."""
    if file == STANDARD_OUTPUT:
        return ".json"
    name = file[1:] if is_standard_output(file) else Path(file).name
    known: tuple[str, ...] = (*TEXTS, *(() if is_standard_output(file) else PAGES))
    for suffix in known:
        if name.lower().endswith(suffix):
            return suffix
    raise AotcError(
        "AOTC-I048",
        "the suffix is not that of a report format",
        where=f"--report {file}",
        expected=", ".join(sorted(known)),
        found=Path(name).suffix or "no suffix",
    )


def require_forms(files: Sequence[str], others: Iterable[Path] = ()) -> None:
    """Refuse what cannot be written later, before anything else is done.

    `others` are what the command reads or writes beside its reports: a report may be none of them,
    and in none of them.
    Raises AOTC-I048 (suffix), I027 (two reports for standard output, or a place in an artifact),
    and I019 where the extra of a form is not installed.
    """
    if sum(map(is_standard_output, files)) > 1:
        raise AotcError("AOTC-I027", "two reports cannot share standard output", where="--report")
    for file in files:
        suffix = suffix_of(file)
        if suffix in PAGES:
            PAGES.load(suffix)
        else:
            text_form(suffix)
        if not is_standard_output(file):
            _require_apart(file, [os.path.realpath(other) for other in others])


def _require_apart(file: str, others: Sequence[str]) -> None:
    path = Path(os.path.realpath(file))
    for place in (path, *path.parents):
        if str(place) in others or (place / MANIFEST).is_file():
            raise AotcError(
                "AOTC-I027",
                "a report must not be written into an artifact, or over an input",
                where=f"--report {file}",
                found=str(place),
                fix="Name a file elsewhere.",
            )


# How each form begins and ends; whatever it is called, a report may take the place of a report.
_BEGINNING: Final = re.compile(
    rb'\{\s*"schema":\s*"aotc\.report/'
    rb'|\{\s*"\$schema":[^{}]*\{\s*"tool":\s*\{\s*"driver":\s*\{\s*"name":\s*"aotc"'
    rb'|\[\]\n\Z|\[\s*\{\s*"description":\s*"AOTC-'
    rb'|<\?xml [^>]*>\s*<testsuites name="aotc [a-z -]+"'
    rb'|<!doctype html>[^\n]*\n?<html lang="en"><head><meta charset="utf-8">'
    rb'<meta name="generator" content="aotc">'
    rb"|### [^\n]{1,12} `aotc [a-z -]+` (?=.*\naotc [^\n]+, [0-9.]+ s\n\Z)",
    re.DOTALL,
)
# The longest form whose end counts is the comment of a pull request.
_LOOKED_AT: Final = 1 << 18


def is_replaceable(file: str) -> bool:
    """Whether nothing but a report is lost if one is written to `file`.

    So it is where there is no file, an empty one, or a report of aotc in any form.  What is no
    regular file is written to and not replaced.  Raises AOTC-I052 for a confined path that leads
    elsewhere, and OSError.
    """
    try:
        if not is_confined(file) and not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116
            return True
        with open_plain(file) as opened:
            found = opened.read(_LOOKED_AT)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return not found or _BEGINNING.match(found) is not None


def require_replaceable(file: str) -> None:
    """Raise AOTC-I052 if a confined file is one that a report must not replace.

    One that cannot be read is left to who writes it.
    """
    try:
        replaceable = is_replaceable(file)
    except OSError:
        replaceable = True
    if not replaceable:
        raise AotcError(
            "AOTC-I052",
            "the configuration in the working directory must not name a file for a report that is "
            "no report",
            where=file,
            fix="Remove the file, name another one, or name this one on the command line.",
        )


def text_form(suffix: str) -> Text:
    """The function that makes a report's text; raises AOTC-I019 where it needs an extra."""
    try:
        found: Text = TEXTS.load(suffix)
    except ModuleNotFoundError as error:
        raise missing_package(error, f"a report in {suffix}") from None
    return found


def report_text(report: RunReport, file: str) -> str:
    """The text of a report for a file, in the form that its suffix says."""
    return text_form(suffix_of(file))(report)


def write_report(report: RunReport, file: str) -> None:
    """Write a report to a file, all of it or none; raises AOTC-I047 where that fails, and I052.

    That is so whatever fails: the outcome of the run is not the report's to change.
    """
    path = Path(file)
    try:
        suffix = suffix_of(file)
        if is_confined(file):
            require_replaceable(file)
        if suffix in PAGES:
            if report.answer is not None:
                from aotc.report.html.fleet_pages import answer_page

                text = answer_page(report, path.parent)
            else:
                draw: Page = PAGES.load(suffix)
                text = draw(Path(report.artifact) if report.artifact_id else None, report)
        else:
            text = report_text(report, file)
        write_atomically(path, text.encode("utf-8"))
    except OSError as error:
        raise lost_report(file, system_message(error)) from None
    except AotcError:
        raise
    except Exception as error:
        raise lost_report(file, f"{type(error).__name__}: {error}") from error


def lost_report(file: str, why: str) -> AotcError:
    """The AOTC-I047 of a report that could not be made or written."""
    return AotcError(
        "AOTC-I047", "the report cannot be written", where=f"--report {file}", found=why
    )


# `.json`: the record itself, for programs (`aotc.report/1`).


def json_text(report: RunReport) -> str:
    """The report with every field, in printable ASCII."""
    return document(encode(report, full=True))
