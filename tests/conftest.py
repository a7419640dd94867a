"""What all tests share: no build is taken from a cache, unless a test is about the cache."""

from __future__ import annotations

import os

os.environ["AOTC_CACHE"] = "off"
