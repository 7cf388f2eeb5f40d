"""Prints the expected values of the test AdamWUpdate.AgreesWithPyTorch (PyTorch 2.11.0, CPU)."""
import torch

PARAM = [1.0, -0.5, 0.25, 2.0, 0.0]
GRADIENTS = [
    [0.5, -0.25, 1e-4, 3.0, 1e-12],
    [-0.125, 0.5, 2e-4, 1.0, 0.0],
    [0.25, 0.75, -1e-4, -2.0, 1.0],
]

for betas, weight_decay in ((0.9, 0.999), 0.1), ((0.4, 0.95), 0.0):
    param = torch.nn.Parameter(torch.tensor(PARAM))
    optimizer = torch.optim.AdamW(
        [param], lr=1e-2, betas=betas, eps=1e-8, weight_decay=weight_decay, foreach=False
    )
    for gradient in GRADIENTS:
        param.grad = torch.tensor(gradient)
        optimizer.step()
    state = optimizer.state[param]
    print(betas, weight_decay)
    for values in param.detach(), state["exp_avg"], state["exp_avg_sq"]:
        print("{" + ", ".join(f"{value:.9g}f" for value in values.tolist()) + "},")
