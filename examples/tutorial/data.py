"""300 images to train and calibrate with, and 150 that nothing but the comparison sees."""

import numpy as np

digits = np.load("examples/digits/heldout.npz")
order = np.random.default_rng(0).permutation(len(digits["label"]))
for name, rows in (("train", order[:300]), ("held-out", order[300:])):
    np.savez(f"build/tutorial/{name}.npz", image=digits["image"][rows], label=digits["label"][rows])
