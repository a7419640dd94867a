"""Where the jobs of a fleet run: one executor a file, and one row in the table here."""

from __future__ import annotations

from typing import Final

from aotc.base.registry import Registry

EXECUTORS: Final = Registry(
    "executor",
    (
        ("local", "aotc.fleet.executors.local:LocalExecutor"),
        ("ray", "aotc.fleet.executors.ray:RayExecutor"),
    ),
)
