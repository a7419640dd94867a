"""An artifact of a store and its first answer: `ARTIFACT INPUTS.npz KEY`; prints seconds as JSON.

What was imported while the artifact was loaded counts as `imports`.
"""

import time


def main() -> None:
    """Import, load, answer; what only the report needs is imported after the clock is read."""
    started = time.perf_counter()
    import sys

    import aotc

    model = aotc.load(sys.argv[1], key=sys.argv[3])
    loaded = time.perf_counter()
    import numpy as np

    given = dict(np.load(sys.argv[2]))
    read = time.perf_counter()
    model.run(given)
    ended = time.perf_counter()

    import json
    import os

    used = os.times()
    report = model.report
    reported = {
        "verify": report.verify_seconds,
        "session": report.session_seconds,
        "warm-up": report.warmup_seconds,
    }
    seconds = {
        "imports": loaded - started - sum(reported.values()),
        **reported,
        "run": ended - read,
        "total": ended - started,
        "processor": used.user + used.system,
    }
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
