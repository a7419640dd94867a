"""Whether a page in a browser can be read: no broken word, nothing beside it, and contrast."""

from __future__ import annotations

from pathlib import Path

from chromium import Browser

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")

# Words of at most 20 letters and digits that stand in two lines. Ids of nodes and digests are
# longer; what is drawn, and what is hidden, has no lines.
_BROKEN_WORDS = """
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const parent = node.parentElement;
  if (parent.closest("svg, script, style, noscript, option") || !parent.checkVisibility()) continue;
  for (const word of node.data.matchAll(/[\\p{L}\\p{N}]{2,}/gu)) {
    if (word[0].length > 20) continue;
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set(Array.from(range.getClientRects(), (r) => Math.round(r.top)));
    if (lines.size > 1) found.push(`${word[0]} in ${parent.tagName}: ${node.data.slice(0, 60)}`);
  }
}
return found;
"""

# What is wider than the window, unless it is in a frame that scrolls.
_BESIDE = """
const found = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) found.push("the page scrolls sideways");
for (const element of document.body.querySelectorAll("*")) {
  if (element.closest(".scroll, .canvas, pre") || element.closest("svg svg, g")) continue;
  if (!element.checkVisibility()) continue;
  const right = element.getBoundingClientRect().right;
  if (right > width + 0.5) found.push(`${element.tagName} ${element.textContent.slice(0, 60)}`);
}
return found;
"""

# Text whose contrast to what is behind it is below 4.5, as WCAG 2.2 has it (1.4.3).
_FAINT = """
const channels = (colour) => {
  const parts = colour.match(/[\\d.]+/g).map(Number);
  return [...parts.slice(0, 3), parts.length > 3 ? parts[3] : 1];
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let up = element; up; up = up.parentElement) {
    const box = up.tagName === "g" ? up.querySelector(":scope > .box, :scope > rect") : null;
    const style = getComputedStyle(box || up);
    const colour = channels(box ? style.fill : style.backgroundColor);
    if (colour[3] > 0.99) return colour.slice(0, 3);
  }
  return [255, 255, 255];
};
const found = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const element = node.parentElement;
  if (!node.data.trim() || element.closest("script, style, noscript, title, option")) continue;
  if (!element.checkVisibility()) continue;
  const style = getComputedStyle(element), drawn = element.closest("svg");
  const text = channels(drawn ? style.fill : style.color).slice(0, 3);
  const [a, b] = [luminance(text), luminance(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.add(`${ratio.toFixed(2)}: ${node.data.trim().slice(0, 60)}`);
}
return Array.from(found);
"""

# Headings that are more than a level below the one before.
_SKIPPED_HEADINGS = """
const found = [];
let level = 0;
for (const each of document.querySelectorAll("h1, h2, h3, h4")) {
  const own = Number(each.tagName[1]);
  if (own > level + 1) found.push(each.textContent);
  level = own;
}
return found;
"""
_MEASURES = {
    "broken words": _BROKEN_WORDS,
    "beside the window": _BESIDE,
    "faint": _FAINT,
    "headings that skip a level": _SKIPPED_HEADINGS,
}


def flaws(browser: Browser, page: Path, width: int, scheme: str) -> dict[str, list[str]]:
    """What a reader would stumble over in a window of `width` pixels, by kind."""
    browser.resize(width)
    browser.open(page, prefers_color_scheme=scheme)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    found = {name: browser.run(script) for name, script in _MEASURES.items()}
    found["said by the console"] = browser.errors()
    found["asked for"] = [each for each in browser.requests() if each != page.as_uri()]
    return {name: those for name, those in found.items() if those}
