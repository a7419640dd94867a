"""Pages of fleets in a browser: legible wide and on a phone, light and dark, and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, chromium, needs_chromium
from legibility import SCHEMES, WIDTHS, flaws
from made_fleets import cells_of, report_of

from aotc.cli.run_reporting import Run, reported
from aotc.report.runs import fleet_judged, matrix_judged
from aotc.spec.fleet import FleetReport
from aotc.spec.matrix_report import CompatibilityReport, HostVerdict
from aotc.spec.reports import Refusal

pytestmark = needs_chromium
MODELS = (
    "resnet50",
    "a-model-with-a-rather-long-name-of-many-words",
    *(f"m{n}" for n in range(14)),
)
OUTCOMES = ("built", "failed", "reused", "built", "impossible")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a fleet and of a compatibility matrix, as the commands write them."""
    folder = tmp_path_factory.mktemp("pages")
    targets = ("linux-x86-64", "linux-arm64", "linux-x86-64-avx512")
    fleet = report_of(cells_of(MODELS, targets=targets), OUTCOMES)
    hosts = ("host", "linux-x86-64", "edge-box-in-the-second-hall")
    refusals = (Refusal(code="AOTC-C002", what="the CPU architecture differs"),)
    matrix = CompatibilityReport(
        artifacts={f"artifacts/{name}.aotc": "1" * 64 for name in MODELS},
        hosts=hosts,
        cells=tuple(
            HostVerdict(artifact=f"artifacts/{name}.aotc", host=host, verdict="optimal", best="x")
            if n % 3
            else HostVerdict(
                artifact=f"artifacts/{name}.aotc",
                host=host,
                verdict="incompatible",
                refusals=refusals,
            )
            for n, name in enumerate(MODELS)
            for host in hosts
        ),
        required="none",
    )
    found = {name: folder / f"{name}.html" for name in ("fleet", "matrix")}
    with pytest.MonkeyPatch.context() as patch:
        # Artifacts lie below the folder in which the command runs.
        patch.chdir(folder)
        write(found, fleet, matrix)
    return found


def write(found: dict[str, Path], fleet: FleetReport, matrix: CompatibilityReport) -> None:
    for name, judged in (("fleet", fleet_judged(fleet)), ("matrix", matrix_judged(matrix))):
        with reported(Run("fleet build", [str(found[name])], "text", json=False)) as run:
            run.ended(1, **judged)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["fleet", "matrix"])
def test_it_is_legible(
    pages: dict[str, Path], browser: Browser, name: str, scheme: str, width: int
) -> None:
    assert flaws(browser, pages[name], width, scheme) == {}


@pytest.mark.parametrize("name", ["fleet", "matrix"])
def test_cells_are_reached_by_keyboard(pages: dict[str, Path], browser: Browser, name: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(pages[name])
    browser.width(1280)
    reached = set()
    for _ in range(60):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            browser.run(
                "const e = document.activeElement;"
                "return e.closest('.matrix') ? e.getAttribute('href') : e.className"
            )
        )
    # The frame that scrolls, links to reasons, and links to artifacts.
    assert "scroll tall" in reached
    assert any(str(each).startswith("#cell-") for each in reached)
    assert any(str(each).startswith("./artifacts/") for each in reached)
    assert browser.errors() == []


def test_names_stay_beside_a_wide_matrix(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["fleet"])
    browser.width(700)
    browser.run("document.querySelector('.scroll').scrollLeft = 400")
    name, frame = browser.run(
        "const row = document.querySelector('.matrix tbody td').getBoundingClientRect();"
        "return [row.left, document.querySelector('.scroll').getBoundingClientRect().left]"
    )
    # Within the padding of the frame.
    assert abs(name - frame) < 12
