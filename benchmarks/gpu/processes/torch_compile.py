"""torch.compile and its first answer: `NETWORK INPUTS.npz DEVICE PRECISION SMALL`.

The network's random weights are drawn on the device, which is quicker than any file of them;
nothing is settled about them (`initial_weights`), as nobody looks at the answer.
"""

import sys


def main() -> None:
    """Import, make the network, compile, answer."""
    name, inputs, device, precision, small = sys.argv[1:]
    import numpy as np
    import torch  # type: ignore[import-not-found,unused-ignore]

    from benchmarks.gpu import networks

    torch.set_float32_matmul_precision("high")
    with torch.device(device):
        network = networks.NETWORKS[name](small == "1").network.eval()
    dtype = torch.float16 if precision == "float16" else torch.float32
    network = network.to(dtype)
    given = []
    for array in np.load(inputs).values():
        tensor = torch.from_numpy(array).to(device)
        given.append(tensor.to(dtype) if tensor.is_floating_point() else tensor)
    backend = {"backend": "eager"} if device == "cpu" else {"mode": "reduce-overhead"}
    function = torch.compile(network, dynamic=False, **backend)
    with torch.inference_mode():
        found = function(*given)
    for tensor in found if isinstance(found, tuple) else (found,):
        tensor.float().cpu().numpy()
    print("answered", flush=True)


if __name__ == "__main__":
    main()
