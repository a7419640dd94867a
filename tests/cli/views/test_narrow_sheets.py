"""Sheets where there is little room: columns share it, rows become blocks, no word is broken."""

from __future__ import annotations

import io

import pytest

from aotc.cli import terminal
from aotc.report.sheet import Bars, Facts, Heading, Part, Screen, Sheet, Table

RUN = Table(
    "run: optimal sizes (131 us, on portable)",
    ("output", "minimum", "mean", "maximum", "file"),
    [("last_hidden_state", "float32[1, 16]", "-5.52363", "-0.409656", "5.80784", "-")],
)
NAMES = Table("inputs", ("", ""), [("größe_画像_入力", "in", "float32 [batch, 8]")])
BARS = Bars("sizes", ("requests", "", "bucket"), [("seq=40", 120, "bucket"), ("seq=400", 12, "")])


def shown(parts: Sheet, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    file = io.StringIO()
    terminal.show_sheet(parts, file=file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("part", "columns", "text"),
    [
        (
            RUN,
            120,
            "run: optimal sizes (131 us, on portable)  output          minimum   mean       "
            "maximum  file\n"
            "  last_hidden_state                       float32[1, 16]  -5.52363  -0.409656  "
            "5.80784  -\n",
        ),
        (
            RUN,
            80,
            "run: optimal sizes (131 us, on portable)\n"
            "                     output          minimum   mean       maximum  file\n"
            "  last_hidden_state  float32[1, 16]  -5.52363  -0.409656  5.80784  -\n",
        ),
        (
            RUN,
            50,
            "run: optimal sizes (131 us, on portable)\n"
            "  last_hidden_state\n"
            "    output: float32[1, 16]\n"
            "    minimum: -5.52363\n"
            "    mean: -0.409656\n"
            "    maximum: 5.80784\n"
            "    file: -\n",
        ),
        (NAMES, 30, "inputs\n  größe_画像_入力  in  float32\n                       [batch,\n"
         "                       8]\n"),
        (
            BARS,
            40,
            "sizes      requests               bucket\n"
            "  seq=40        120  ███████████  bucket\n"
            "  seq=400        12  █\n",
        ),
    ],
    ids=["wide", "title above", "blocks", "other letters", "bars"],
)  # fmt: skip
def test_a_part(part: Part, columns: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown([part], columns, monkeypatch) == text


def test_a_screen_is_cut_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(
        [
            Heading("model.aotc", "UNVERIFIED: nothing here was checked against a signature"),
            Facts([("size", "9.7 kB in 8 files: fixture 1.0 kB, model 363 B"), ("id", "ab" * 32)]),
        ]
    )
    assert shown(screen, 50, monkeypatch) == (
        "model.aotc  UNVERIFIED: nothing here was checked…\n"
        "\n"
        "  size  9.7 kB in 8 files: fixture 1.0 kB, model…\n"
        f"  id    {'ab' * 20}a…\n"
    )
