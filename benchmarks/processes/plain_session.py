"""A plain session and its first answer: `MODEL.onnx INPUTS.npz`; prints seconds as JSON."""

import time


def main() -> None:
    """Import, open, answer; what only the report needs is imported after the clock is read."""
    started = time.perf_counter()
    import numpy as np
    import onnxruntime as ort

    imported = time.perf_counter()
    import sys

    given = dict(np.load(sys.argv[2]))
    read = time.perf_counter()
    session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    created = time.perf_counter()
    session.run(None, given)
    ended = time.perf_counter()

    import json
    import os

    used = os.times()
    seconds = {
        "imports": imported - started,
        "session": created - read,
        "run": ended - created,
        "total": ended - started,
        "processor": used.user + used.system,
    }
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
