"""Which devices a plugin's library offers here, asked in a process of its own.

A library stays registered for as long as a process lives, and may end it.  Who only asks shall
neither be bound to it nor go down with it.
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

# It takes a third of a second; a machine may be busy.
_SECONDS: Final = 120.0


@cache
def offered(ort_name: str, library: Path) -> tuple[tuple[str, ...], str]:
    """Types of the provider's devices, such as CPU; and why none could be asked for, or "".

    The answer is kept for the life of the process.
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
    told = isinstance(types, list) and all(isinstance(each, str) for each in types)
    return (tuple(types), "") if told and not done.returncode else ((), ended)


def _main(ort_name: str, library: str) -> int:
    from aotc.backends.plugin import registered_devices
    from aotc.errors import AotcError

    try:
        found = registered_devices(ort_name, Path(library))
    except AotcError as error:
        sys.stderr.write(f"{error.what}: {error.found}\n")
        return 1
    sys.stdout.write(json.dumps([each.device.type.name for each in found]) + "\n")
    sys.stdout.flush()
    # Native destructors serve nobody.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
