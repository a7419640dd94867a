"""The page of `aotc profile learn --html`: small, safe, and nothing hidden behind an edge."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aotc.base.records import replace
from aotc.report.html.learned_page import learn_page
from aotc.spec.command_reports import LearnReport, PlanRow, SizeCount
from aotc.spec.profile_files import load_profile
from aotc.spec.shapes import DimRange

HOSTILE = '"><script>alert(1)</script>\u202e\n<b onload=x>'
BUCKETS = (1, 2, 16, 32, 48, 64, 65, 66, 67, 128, 256, 511, 512)


def report(sizes: dict[str, tuple[SizeCount, ...]], text: str = "learned") -> LearnReport:
    plans = [
        PlanRow(
            name=f"{text} {number}",
            buckets={} if number else dict.fromkeys(sizes, BUCKETS),
            variants=number + 1,
            seconds=0.004 * (number + 1),
            ratio=1.0 + number,
            padding=0.1,
            chosen=number == 0,
        )
        for number in range(40)
    ]
    return LearnReport(
        path=f"{text}.jsonl",
        sha256="0" * 64,
        requests=1000,
        dims=tuple(sizes),
        sizes=sizes,
        plans=tuple(plans),
        margin=0.01,
        noise=0.01,
        backend=text,
        coverage=1.0,
        padding=0.1,
        verdict=text,
        profile=replace(
            load_profile("edge"),
            dims={name: DimRange(min=1, opt=1, max=512) for name in sizes},
        ),
    )


def spread(count: int) -> tuple[SizeCount, ...]:
    return tuple(
        SizeCount(size=size, requests=1 + 10_000_000 // (1 + abs(size - count // 5)))
        for size in range(1, count + 1)
    )


class Elements(HTMLParser):
    """Names and attributes of everything in a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_what_it_says() -> None:
    found = Elements(learn_page(report({"batch": spread(30)})))
    text = " ".join(found.texts)
    for title in ("sizes of batch", "requests", "buckets", "to the best", "a request"):
        assert title in found.texts, title
    assert text.count("chosen,") + found.texts.count("chosen") == 1
    assert "learned 0 1, 2, 16, 32, 48, 64, 65, 66, 67, 128 and 3 more" in found.texts
    assert sum(each in ("511", "512", "511, 512") for each in found.texts) > 0


def test_the_chosen_plan_is_marked() -> None:
    page = learn_page(report({"batch": spread(30)}))
    (row,) = (part for part in page.split("<tr")[1:] if '<span class="good">chosen</span>' in part)
    assert "learned 0 1, 2" in row


@pytest.mark.parametrize("count", [1, 400, 401, 50_000])
def test_it_is_small(count: int) -> None:
    page = learn_page(report({"batch": spread(count), "seq": spread(count)}))
    assert len(page.encode()) < 500_000
    assert 2 <= page.count('class="bar"') <= 2 * 24


@pytest.mark.parametrize("least", [0, 1])
def test_bars_of_several_sizes_hold_all_requests(least: int) -> None:
    """Sizes of 0 are requests too."""
    sizes = (SizeCount(size=least, requests=7), *spread(1000)[1:])
    page = learn_page(report({"batch": sizes}))
    rows = re.findall(r"<td>(\d+)(?:\.\.\d+)?</td><td>(\d+)</td><td><svg", page)
    assert sum(int(number) for _, number in rows) == sum(counted.requests for counted in sizes)
    assert rows[0][0] == str(least)


def test_names_of_others_are_text() -> None:
    page = learn_page(report({HOSTILE: spread(5), "x" * 10_000: spread(3)}, HOSTILE))
    found = Elements(page)
    plain = Elements(learn_page(report({"batch": spread(5)})))
    assert (found.tags - {"wbr"}, found.attributes) == (plain.tags - {"wbr"}, plain.attributes)
    assert "script" not in found.tags
    assert "\u202e" not in page
    assert len(page.encode()) < 500_000


_HIDDEN = """
const found = [];
for (const svg of document.querySelectorAll("svg")) {
  const edge = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll("text, rect")) {
    const box = text.getBoundingClientRect();
    if (box.left < edge.left - 0.5 || box.right > edge.right + 0.5
        || box.top < edge.top - 0.5 || box.bottom > edge.bottom + 0.5)
      found.push(text.textContent);
  }
}
if (document.documentElement.scrollWidth > document.documentElement.clientWidth)
  found.push("the page is wider than the window");
return found;
"""


@pytest.mark.parametrize("width", [1200, 500])
@pytest.mark.parametrize("sizes", [spread(600), spread(1), (SizeCount(size=10**6, requests=1),)])
def test_nothing_is_hidden_in_a_browser(
    width: int, sizes: tuple[SizeCount, ...], tmp_path: Path
) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    page = tmp_path / "page.html"
    page.write_text(learn_page(report({"batch": sizes, "n" * 300: sizes})), "utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},1200"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    ) as chrome:
        chrome.get(page.as_uri())
        assert chrome.execute_script(_HIDDEN) == []
        assert chrome.get_log("browser") == [], "the policy lets its own style in"
        colour = "return getComputedStyle(document.querySelector('.good')).color"
        assert chrome.execute_script(colour) == "rgb(17, 99, 41)"
