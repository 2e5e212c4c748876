"""Processes that train with one loss: those of ``torchrun``, or this one alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that train together.

    Attributes:
        rank, world: its number and how many there are.
        device: where it computes.
    """

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_main(self) -> bool:
        """True for the process that writes files and shows progress."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """`module` with gradients averaged over the processes."""
        if self.world == 1 or not any(p.requires_grad for p in module.parameters()):
            return module
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=devices)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the processes, the same bits on each."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def share(self, values: list[float]) -> list[float]:
        """The main process's numbers, on every process."""
        if self.world == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0)
        return tensor.tolist()

    @contextmanager
    def main_first(self, what: str) -> Iterator[None]:
        """Ends on every process when the main one has done its part of the block.

        Raises:
            RuntimeError: on the others, where the main process failed to do `what`;
                they would wait for it otherwise.
        """
        try:
            yield
        except BaseException:
            self.share([0.0])
            raise
        if not self.share([1.0])[0]:
            raise RuntimeError(f"the main process could not {what}; it says why.")

    def close(self) -> None:
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


def join(device: str = "cpu") -> ProcessGroup:
    """The group that ``torchrun`` set up in the environment; alone without it.

    Args:
        device: "cpu" (gloo) or "cuda" (nccl, one device a process).
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    place = torch.device(device)
    if place.type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"`device` is {device!r} and torch sees no CUDA device; "
                "use device=cpu or install a CUDA build of torch."
            )
        if place.index is None or world > 1:
            place = torch.device("cuda", local)
        torch.cuda.set_device(place)
    if world == 1:
        return ProcessGroup(device=place)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo")
    return ProcessGroup(dist.get_rank(), dist.get_world_size(), place)
