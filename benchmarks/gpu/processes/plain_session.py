"""A plain session of ONNX Runtime and its first answer: `MODEL.onnx INPUTS.npz DEVICE`."""

import sys


def main() -> None:
    """Import, open, answer."""
    import numpy as np
    import onnxruntime as ort

    provider = "CPUExecutionProvider"
    if sys.argv[3] == "cuda":
        provider = "CUDAExecutionProvider"
        ort.preload_dlls()
    session = ort.InferenceSession(sys.argv[1], providers=[provider, "CPUExecutionProvider"])
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"{provider} is not there")
    session.run(None, dict(np.load(sys.argv[2])))
    print("answered", flush=True)


if __name__ == "__main__":
    main()
