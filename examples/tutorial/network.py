"""Train a small network for handwritten digits in PyTorch, and export it to ONNX."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)  # of so small a network, more are no quicker
net = nn.Sequential(
    *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
    *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(64 * 2 * 2, 10)),
)
train = np.load("build/tutorial/train.npz")
image, label = torch.from_numpy(train["image"]), torch.from_numpy(train["label"])
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for _ in range(200):
    rows = torch.randint(len(label), (64,))
    loss = nn.functional.cross_entropy(net(image[rows]), label[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

torch.onnx.export(
    net.eval(),
    (image[:2],),
    "build/tutorial/digits.onnx",
    dynamo=True,
    verbose=False,
    input_names=["image"],
    output_names=["logits"],
    dynamic_shapes=({0: torch.export.Dim("batch")},),
)
print("wrote build/tutorial/digits.onnx")
