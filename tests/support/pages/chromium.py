"""Pages in a real browser without a window: Debian's Chromium, driven by selenium.

Chromium is told to reach nothing, and what it asks for anyway is in its log.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
MISSING = ", ".join(
    name for name, found in (("chromium", CHROMIUM), ("chromedriver", DRIVER)) if found is None
)
needs_chromium = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")


class Browser:
    """A browser, and what it has said since it last opened a page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, **features: str) -> None:
        """Open a file, with media features such as `prefers_color_scheme="dark"`."""
        self.emulate(**features)
        self.requests()
        self.errors()
        self.driver.get(page.as_uri())

    def width(self, pixels: int) -> None:
        """Lay pages out for a window of this width, also below what a window can have."""
        metrics = {"width": pixels, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def emulate(self, media: str = "", **features: str) -> None:
        """Answer media queries: of the medium, and of features."""
        stated = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": stated}
        )

    def resize(self, width: int, height: int = 1000) -> None:
        """A window of so many pixels; a narrow one is a phone's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def errors(self) -> list[str]:
        """What the console said, errors of the page's policy among it."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for, without data in the page and pages of the browser."""
        found = []
        for entry in self.driver.get_log("performance"):
            message: Mapping[str, Any] = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(str(message["params"]["request"]["url"]))
        return [address for address in found if not address.startswith(("data:", "chrome:"))]

    def run(self, script: str, *arguments: object) -> Any:
        """The result of a script in the page."""
        return self.driver.execute_script(script, *arguments)


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in the folder `profile`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        # Its own sandbox does not start for root, and the pages are ours.
        *(("--no-sandbox",) if os.geteuid() == 0 else ()),
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        f"--user-data-dir={profile}",
        "--window-size=1360,1000",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
