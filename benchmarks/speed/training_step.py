"""One training step, the paper's way and ours.

The paper gathers segments and evaluates the network at every node of every segment;
with ell = 50 and q = 2 each sample lies in 25 of them. Here a minibatch is a contiguous
block, and the network sees each sample once. Both steps use the same segments, give
the same loss and the same gradients.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import wpnode_ext as wp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import interleave  # noqa: E402

N_SEGMENTS, ELL, Q, P, DT = 2048, 50, 2, 8, 0.01


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 200), nn.GELU(), nn.Linear(200, 200), nn.GELU(), nn.Linear(200, 3)
    )


def papers_step(net: nn.Module, v: Tensor, optimiser: torch.optim.Optimizer):
    w_lhs, w_rhs = (w.to(v) for w in wp.segment_weights(P, ELL, DT))
    starts = torch.arange(N_SEGMENTS, device=v.device) * Q
    nodes = starts[:, None] + torch.arange(ELL + 1, device=v.device)

    def run() -> Tensor:
        segments = v[nodes]
        f = net(segments)
        residual = torch.einsum("kid,i->kd", segments, w_lhs)
        residual = residual + torch.einsum("kid,i->kd", f, w_rhs)
        loss = residual.square().sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    return run


def our_step(net: nn.Module, v: Tensor, optimiser: torch.optim.Optimizer):
    plan = wp.WeakPlan(v, dt=DT, p=P, ell=ELL, q=Q)

    def run() -> Tensor:
        loss = plan.loss(net(v))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    return run


def measure(device: torch.device) -> list[dict]:
    torch.manual_seed(0)
    v = torch.randn((N_SEGMENTS - 1) * Q + ELL + 1, 3, device=device)
    steps, first_losses = {}, {}
    state = network().state_dict()
    for name, make in (("the paper's way", papers_step), ("wpnode_ext", our_step)):
        net = network().to(device)
        net.load_state_dict(state)
        optimiser = torch.optim.Adam(net.parameters(), 1e-4)
        steps[name] = make(net, v, optimiser)
        first_losses[name] = steps[name]().item()
    torch.testing.assert_close(
        *map(torch.tensor, first_losses.values()), rtol=1e-4, atol=0
    )
    times = interleave(steps, device=device, seconds=8.0)
    slow = times["the paper's way"].median
    return [
        {
            "step": name,
            "ms": round(timing.median * 1e3, 2),
            "ms low": round(timing.low * 1e3, 2),
            "ms high": round(timing.high * 1e3, 2),
            "repeats": timing.repeats,
            "network evaluations": N_SEGMENTS * (ELL + 1)
            if "paper" in name
            else len(v),
            "speed-up": round(slow / timing.median, 1),
        }
        for name, timing in times.items()
    ]
