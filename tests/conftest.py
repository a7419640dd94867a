"""What all tests share: what they ask of the machine, and what the run says that it lacked.

No build is taken from a cache, unless a test is about the cache.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

os.environ["AOTC_CACHE"] = "off"

# A shell starts what runs in its background deaf to interrupts, and whatever that starts as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# And nohup what it starts deaf to hangups.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How long an example takes says more of what else the machine does than of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# Marks of tests that compile for a provider, and its name.
PROVIDERS = {"openvino": "openvino", "rtx": "tensorrt_rtx"}


@cache
def why_missing(provider: str) -> str:
    """Why nothing can be compiled for a provider here, as its backend says; empty where it can."""
    from aotc.providers.base import BACKENDS

    found = BACKENDS.load(provider)().probe()
    return "" if found.available else found.reason


def pytest_collection_finish() -> None:
    """The tests themselves are no garbage: nobody looks through them again, here or in a fork."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a provider that this machine lacks, before its fixtures are made."""
    for mark, provider in PROVIDERS.items():
        if item.get_closest_marker(mark) is not None and (reason := why_missing(provider)):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """At the very end, what this machine could not show: every reason to skip, and how often."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", ()):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    if reasons:
        reporter.section("what this machine could not show", sep="=", bold=True)
        for reason, number in reasons.most_common():
            reporter.write_line(f"{number:5} skipped: {reason}")
