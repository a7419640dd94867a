"""This machine as it is compared with the one of an earlier measurement."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from aotc.contract.results.bench_history import Machine
from aotc.host.cores import usable_cores
from aotc.host.nvidia import missing_gpu
from aotc.host.probe import probe
from aotc.host.system_text import system_text

_CPUS: Final = Path("/sys/devices/system/cpu")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
# What arm64 states instead of a name.
_ARM_FIELDS: Final = ("CPU implementer", "CPU variant", "CPU part", "CPU revision")


def this_machine() -> Machine:
    """What decides how fast this machine is, as far as it says."""
    host = probe(gpus=not missing_gpu())
    return Machine(
        cpu=cpu_name_in(system_text(Path("/proc/cpuinfo"))) or _other_name(),
        architecture=host.architecture,
        isa=host.isa,
        cores=usable_cores(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        quota=quota_in(system_text(_QUOTA)),
        governor=_governor(),
        gpus=host.gpus,
        nvidia_driver=host.nvidia_driver,
    )


def cpu_name_in(cpuinfo: str) -> str:
    """The model of the first CPU in the text of /proc/cpuinfo; empty if it states none."""
    fields: dict[str, str] = {}
    for line in cpuinfo.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("model name"):
        stepping = fields.get("stepping", "")
        family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
        # Clouds give processors of several generations one name.
        return f"{fields['model name']} ({family} stepping {stepping or '?'})"
    stated = [f"{name} {fields[name]}" for name in _ARM_FIELDS if fields.get(name)]
    return ", ".join(stated)


def quota_in(text: str) -> float | None:
    """The processors that the text of cpu.max (control groups, version 2) allows; None: all."""
    found = re.fullmatch(r"(\d+) (\d+)", text.strip())
    if found is None or int(found[2]) == 0:
        return None
    return round(int(found[1]) / int(found[2]), 3)


def _governor() -> str:
    """The governors of all CPUs' frequencies, each once; empty where the system says none."""
    found = {system_text(path).strip() for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(found - {""}))


def _other_name() -> str:
    import platform

    return platform.processor()
