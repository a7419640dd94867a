"""Files for other systems that build a fleet in shards: one form a file, and one row here."""

from __future__ import annotations

from typing import Final

from aotc.base.registry import Registry

FORMS: Final = Registry(
    "form of emitted files",
    (
        ("github", "aotc.fleet.emitted.github:github_files"),
        ("gitlab", "aotc.fleet.emitted.gitlab:gitlab_files"),
        ("kubernetes", "aotc.fleet.emitted.kubernetes:kubernetes_files"),
    ),
)
