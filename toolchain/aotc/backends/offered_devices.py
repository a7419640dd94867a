"""The devices that a plugin's library offers on this machine, asked in a separate process.

A library stays registered as long as its process lives, and may crash it.  Asking for devices
should not have either effect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

# It takes a third of a second on an idle machine.
_SECONDS: Final = 120.0


@cache
def offered_devices(ort_name: str, library: Path) -> tuple[tuple[str, ...], str]:
    """Types of the provider's devices, such as CPU; and why none could be listed, or "".

    The result is cached for the life of the process.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "aotc.backends.offered_devices", ort_name, str(library)],
            env={"ORT_DISABLE_TELEMETRY": "1", **os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return (), f"the library did not load within {_SECONDS:g} s"
    except OSError as error:
        return (), f"no process could be started to ask it: {error}"
    if done.returncode < 0:
        number = -done.returncode
        known = signal.valid_signals()
        name = signal.Signals(number).name if number in known else f"signal {number}"
        return (), f"loading the library ended by {name}"
    last = " ".join(done.stderr.split())[-500:]
    ended = last or f"asking it ended with exit status {done.returncode}"
    try:
        types = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return (), ended
    is_valid = isinstance(types, list) and all(isinstance(name, str) for name in types)
    return (tuple(types), "") if is_valid and not done.returncode else ((), ended)


def _main(ort_name: str, library: str) -> int:
    from aotc.backends.plugin import registered_devices
    from aotc.errors import AotcError

    try:
        found = registered_devices(ort_name, Path(library))
    except AotcError as error:
        sys.stderr.write(f"{error.what}: {error.found}\n")
        return 1
    sys.stdout.write(json.dumps([item.device.type.name for item in found]) + "\n")
    sys.stdout.flush()
    # Skips native destructors.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
