"""The lines of profiles and other files that state what a run did not meet, as they stand there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.etree.ElementTree import Element

from aotc.base.errors import AotcError, Place
from aotc.base.files.reading import read_at_most
from aotc.base.records import record
from aotc.report.html.page import flowing, in_units, shown_name, tag
from aotc.report.wording import in_words, title_of
from aotc.spec.run_report import RunReport

# Of a file that is shown; a profile is far smaller.
_MAX_BYTES: Final = 1 << 20
# All lines of a file that has no more; of others, those that failed and what stands around them.
_MAX_LINES: Final = 40
_AROUND: Final = 2
_LONGEST_LINE: Final = 240


@record(kw_only=False)
class _Failure:
    """Why a line failed: its code and title, what happened, was expected and was found.

    `setting` is what the line states, and `variant` where it failed; empty where that is not known.
    """

    title: str
    what: str
    expected: str
    found: str
    setting: str = ""
    variant: str = ""


def profile_lines(run: RunReport) -> Iterator[Element]:
    """Each file with lines that failed, these in red with what was expected and found.

    A file that cannot be read is left out: the breaches say where they are stated.
    """
    for file, failures in _by_file(run).items():
        text = _text(file)
        if text is not None:
            yield from _file(file, text.splitlines(), failures)


def _by_file(run: RunReport) -> dict[str, dict[int, list[_Failure]]]:
    failed = [gate for gate in run.gates if gate.status == "failed" and gate.place is not None]
    settings = {gate.place: gate.name for gate in failed}
    told: list[tuple[Place, _Failure]] = [
        (
            each.place,
            _Failure(
                f"{each.code} {title_of(each.code)}",
                "" if each.expected else each.what,
                each.expected,
                each.found,
                settings.get(each.place, ""),
                in_words(each.where) if each.where.startswith("variant ") else "",
            ),
        )
        for each in run.refusals
        if each.place is not None
    ]
    known = {place for place, _ in told}
    told += [
        (gate.place, _Failure(f"{gate.name} of {gate.subject}", "", gate.limit, gate.measured))
        for gate in failed
        if gate.place is not None and gate.place not in known
    ]
    found: dict[str, dict[int, list[_Failure]]] = {}
    for place, failure in told:
        found.setdefault(place.file, {}).setdefault(place.line, []).append(failure)
    return found


def _text(file: str) -> str | None:
    try:
        content = read_at_most(file, _MAX_BYTES)
    except (OSError, ValueError, AotcError):
        return None
    return content.decode("utf-8", "replace") if len(content) <= _MAX_BYTES else None


def _file(file: str, lines: list[str], failures: dict[int, list[_Failure]]) -> Iterator[Element]:
    stated = {n: found for n, found in failures.items() if 1 <= n <= len(lines)}
    # A limit that the profile does not state has the place of the profile itself.
    missing = [
        each
        for number, found in stated.items()
        for each in found
        if each.setting and each.setting.rpartition(".")[2] not in lines[number - 1]
    ]
    stated = {
        n: kept for n, found in stated.items() if (kept := [e for e in found if e not in missing])
    }
    if not stated and not missing:
        return
    yield tag("h3", *flowing(shown_name(file)))
    if stated:
        yield tag("ol", *_shown(lines, stated), class_="lines")
    for each in missing:
        said = f"The profile states no {each.setting}, so its default holds: "
        yield tag("p", said, *_said(each), class_="bad")


def _shown(lines: list[str], failures: dict[int, list[_Failure]]) -> Iterator[Element]:
    last = 0
    for number, line in enumerate(lines, 1):
        if len(lines) > _MAX_LINES and not _is_near(number, lines, failures):
            continue
        if number > last + 1:
            yield tag("li", tag("span", "\u22ee", class_="no"), class_="cut")
        last = number
        failed = failures.get(number, ())
        text = flowing(shown_name(line.replace("\t", "    "), _LONGEST_LINE))
        yield tag(
            "li",
            tag("span", str(number), class_="no"),
            tag("code", *text),
            *(tag("span", *_said(each), class_="said") for each in failed),
            class_="failed" if failed else None,
        )
    if last < len(lines):
        yield tag("li", tag("span", "\u22ee", class_="no"), class_="cut")


def _is_near(number: int, lines: list[str], failures: dict[int, list[_Failure]]) -> bool:
    """Whether a line is around one that failed, or is what one stands in."""
    for failed in failures:
        if abs(number - failed) <= _AROUND:
            return True
        if number < failed and _depth(lines[number - 1]) < _depth(lines[failed - 1]):
            between = lines[number : failed - 1]
            if all(_depth(line) > _depth(lines[number - 1]) for line in between if line.strip()):
                return bool(lines[number - 1].strip())
    return False


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _said(failure: _Failure) -> Iterator[Element | str]:
    yield tag("b", *flowing(failure.title))
    between = " "
    for name, text in (
        ("in ", failure.variant),
        ("", failure.what),
        ("expected ", failure.expected),
        ("found ", failure.found),
    ):
        if text:
            yield f"{between}{name}"
            yield from (part for part in flowing(in_units(text)) if part is not None)
            between = "; "
