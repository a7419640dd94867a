"""Pages as people see them, wide and on a phone, light and dark: their beginnings, and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from chromium import Browser, chromium, needs_chromium
from drawn_artifacts import DIGITS, read_page, text_of
from legibility import SCHEMES, WIDTHS, flaws

from aotc.cli.main import main

KINDS = ("artifact", "failed", "bench", "diff")
TIGHT = """\
# Digits on a small device.
schema: aotc.profile/1
name: tight
variants:
  - {name: portable, isa: baseline}
budgets:
  artifact_bytes: 20000  # its flash
  peak_memory_bytes: 30000000
fallback: {policy: fail}
"""
STATIC = """\
schema: aotc.profile/1
name: static
precision: int8
quantization: {form: static}
variants:
  - {name: portable, isa: baseline}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each kind, as the commands write them."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "static.yaml").write_text(STATIC)
    (folder / "tight.yaml").write_text(TIGHT)
    model, samples = str(DIGITS), str(DIGITS.with_name("heldout.npz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("AOTC_STORE", str(folder / "store"))
        patch.delenv("AOTC_SIGNING_KEY", raising=False)
        patch.chdir(folder)
        for status, command in (
            (0, ["build", model, "-o", "digits.aotc"]),
            (0, ["build", model, "-o", "int8.aotc", "--profile", "static.yaml"]),
            (1, ["build", model, "-o", "no.aotc", "--profile", "tight.yaml"]),
            (0, ["inspect", "digits.aotc", "--html", "artifact.html"]),
            (0, ["bench", "digits.aotc", "--against", model, "--report", "bench.html"]),
            (0, ["diff", "digits.aotc", "int8.aotc", "--html", "diff.html"]),
        ):
            more = ["--fixtures", samples] if "static.yaml" in command else []
            more += ["--report", "failed.html"] if status else []
            assert main([*command, *more]) == status
    return {kind: folder / f"{kind}.html" for kind in KINDS}


def read(pages: dict[str, Path], kind: str) -> Element:
    return read_page(pages[kind].read_text("ascii"))


def first_section(page: Element) -> Element:
    found = page.find(".//section")
    assert found is not None
    return found


def figures(page: Element) -> dict[str, str]:
    """The figures in large that a page begins with, by what they are of."""
    first = first_section(page).find(".//dl")
    assert first is not None
    assert first.get("class") == "figures"
    return {text_of(each[0]): text_of(each[1]) for each in first}


TIME = r"\d+(\.\d+)? (µs|ms|s)"
SIZE = r"\d+(\.\d+)? (B|kB|MB)"


def test_an_artifact_begins_with_what_people_came_for(pages: dict[str, Path]) -> None:
    page = read(pages, "artifact")
    found = figures(page)
    assert list(found) == ["Verdict", "Size", "Latency", "Answer error", "Nodes run on"]
    assert (found["Verdict"], found["Nodes run on"]) == ("proven", "CPU 100%")
    assert re.fullmatch(SIZE, found["Size"])
    assert re.fullmatch(rf"{TIME} ±\d+%", found["Latency"])
    anchors = [each.get("id") for each in page.iter("section")]
    assert anchors[0] == "overview"
    assert anchors.index("claims") > anchors.index("exactness")


def test_a_failure_shows_the_lines_that_state_it(pages: dict[str, Path]) -> None:
    page = read(pages, "failed")
    (lines,) = (each for each in first_section(page).iter("ol") if each.get("class") == "lines")
    told = {text_of(line[0]): line for line in lines}
    assert [text_of(told[str(n)][1]) for n in range(1, 10)] == [
        " ".join(line.split()) for line in TIGHT.splitlines()
    ]
    failed = {number: line for number, line in told.items() if line.get("class") == "failed"}
    assert list(failed) == ["7", "8"]
    said = text_of(failed["7"][2])
    assert re.fullmatch(
        rf"AOTC-M001 artifact exceeds its size budget expected ≤ 20.0 kB; found {SIZE}", said
    )


def test_codes_options_and_figures_are_in_one_line() -> None:
    from aotc.report.html.page import flowing, tag

    said = tag("p", *flowing("AOTC-N006: see --embed-fixtures, or -q; it took 2.5 ms on a-b"))
    assert [each.text for each in said] == ["AOTC-N006:", "--embed-fixtures,", "2.5 ms"]
    assert {each.get("class") for each in said} == {"whole"}


def test_limits_that_a_profile_does_not_state(tmp_path: Path) -> None:
    """A default has no line of its own, so that none is red; what is around a failure is shown."""
    from aotc.base.errors import Place
    from aotc.report.html.profile_lines import profile_lines
    from aotc.spec.reports import Refusal
    from aotc.spec.run_report import Gate, RunReport

    file = tmp_path / "long.yaml"
    file.write_text(
        "schema: aotc.profile/1\nbudgets:\n" + "  # more\n" * 60 + "  load_seconds: 1\n"
    )

    def lines(name: str, number: int) -> list[Element]:
        place = Place(file=str(file), line=number)
        run = RunReport(
            tool_version="0",
            exit_status=1,
            command="build",
            outcome="failed",
            gates=(Gate(name=name, subject="payload", status="failed", place=place),),
            refusals=(
                Refusal(
                    code="AOTC-M003",
                    what="slow",
                    where="variant a, fixture sample3",
                    found="2 s",
                    place=place,
                ),
            ),
        )
        return list(profile_lines(run))

    title, shown = lines("budgets.load_seconds", 63)
    assert text_of(title) == str(file)
    numbers = [text_of(line[0]) for line in shown]
    assert numbers == ["⋮", "2", "⋮", "61", "62", "63"]
    assert [line.get("class") for line in shown][-1] == "failed"
    title, said = lines("parity.float32", 1)
    assert text_of(said) == (
        "The profile states no parity.float32, so its default holds: "
        "AOTC-M003 load time exceeds its budget in variant a, fixture of your samples 4; "
        "slow; found 2.00 s"
    )
    file.unlink()
    assert lines("budgets.load_seconds", 63) == []


def test_a_benchmark_is_charted_with_its_sides_beside_each_other(pages: dict[str, Path]) -> None:
    page = read(pages, "bench")
    found = figures(page)
    assert list(found) == ["Latency", "Beside the model", "Load"]
    assert re.fullmatch(TIME, found["Latency"])
    run = first_section(page)
    (chart,) = (each for each in run.iter("svg") if each.get("class") == "chart latency")
    said = chart.get("aria-label", "")
    assert re.search(rf"artifact: median {TIME}, lower quartile {TIME}", said)
    assert len(list(chart.iter("rect"))) == 2
    heads = [text_of(each) for each in run.iter("th")][:4]
    assert heads == ["", "artifact", "model", "artifact / model"]
    told = text_of(run)
    assert "Measured" not in told
    assert not re.search(r"\de-\d\d s|\d us\b|\d\d\d B\b", told)


def test_a_comparison_begins_with_latency_size_and_answers(pages: dict[str, Path]) -> None:
    page = read(pages, "diff")
    found = figures(page)
    assert list(found) == ["Latency", "Size", "Answers"]
    assert re.fullmatch(f"{TIME} → {TIME}", found["Latency"])
    assert re.fullmatch(f"{SIZE} → {SIZE}", found["Size"])
    assert found["Answers"] == "differ"
    told = [[text_of(cell) for cell in row] for row in page.iterfind(".//*[@id='weights']//tr")]
    kernels = [row for row in told if "float32 [16, 1, 3, 3] -> int8 [16, 1, 3, 3]" in row]
    assert len(kernels) == 1
    assert not any(re.search(r"\[\d.*-> \w+ \[\]", " ".join(row)) for row in told)
    assert any("only in B: float32 []" in row for row in told)


def test_kernels_of_integers_and_of_the_model(pages: dict[str, Path]) -> None:
    """Under other names, at other inputs of other operators: by shape, and none with a number."""
    from aotc.tools.diff.artifacts import diff

    (weights,) = diff(pages["artifact"].with_name("int8.aotc"), DIGITS, run=False).weights
    pairs = {each.a: each for each in weights.changed}
    assert all(each.shape_a == each.shape_b for each in weights.changed)
    found = pairs["ConvBnFusion_W_conv2.weight_quantized"]
    assert (found.b, found.dtype_a, found.dtype_b) == ("conv2.weight", "int8", "float32")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@needs_chromium
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_read(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, scheme: str
) -> None:
    assert flaws(browser, pages[kind], width, scheme) == {}


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_told_of_a_node_can_be_read(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    """A long name is broken where its cell may be, and stands within its frame."""
    name = "encoder.layer.0.attention.output.dense"
    text = pages["artifact"].read_text("ascii").replace("<td>node_linear</td>", f"<td>{name}</td>")
    flowing = name.replace(".", ".<wbr>")
    page = pages["artifact"].with_name("named.html")
    page.write_text(text.replace(name, flowing), "ascii")
    browser.resize(width)
    browser.open(page)
    told = browser.run(
        "document.querySelector('[data-do=open]').click();"
        "for (const box of document.querySelectorAll('svg.graph .node .box'))"
        " if (box.parentNode.textContent.includes('node_linear'))"
        "  box.dispatchEvent(new MouseEvent('click', {bubbles: true}));"
        "const panel = document.querySelector('.detail');"
        "return [panel.textContent, panel.scrollWidth <= panel.clientWidth]"
    )
    assert name in told[0]
    assert told[1]


@needs_chromium
@pytest.mark.parametrize(
    ("style", "flaw"),
    [
        ("td, dd { word-break: break-all; width: 3em; display: block }", "broken words"),
        ("td { min-width: 500px; } .scroll { overflow: visible }", "beside the window"),
        (".quiet { color: #aab }", "faint"),
    ],
)
def test_a_page_that_cannot_be_read_is_told(
    browser: Browser, pages: dict[str, Path], tmp_path: Path, style: str, flaw: str
) -> None:
    """The measures themselves: each finds what it is for."""
    text = pages["artifact"].read_text("ascii")
    spoilt = tmp_path / "spoilt.html"
    policy = re.sub(r"style-src [^;]*", "style-src 'unsafe-inline'", text)
    spoilt.write_text(policy.replace("</style>", f"{style}</style>"), "ascii")
    assert flaw in flaws(browser, spoilt, 390, "light")
