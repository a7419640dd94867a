"""How many of the held-out digits both artifacts read right."""

import numpy as np

import aotc

held_out = np.load("build/tutorial/held-out.npz")
for name in ("digits", "int8"):
    with aotc.load(f"build/tutorial/{name}.aotc") as model:
        logits = model.run({"image": held_out["image"]})["logits"]
        right = logits.argmax(axis=1) == held_out["label"]
        print(f"{name:6}  accuracy {right.mean():.3f}  ({model.report.verdict})")
