"""Threads, registers and shared memory of a multiprocessor by architecture."""

from dataclasses import dataclass

PARTITIONS = 4  # of a multiprocessor; a warp lives in one
REGISTERS = 16384  # of a partition, granted to warps in units of 256
SHARED_UNIT = 256  # bytes


@dataclass(frozen=True)
class Target:
    """Limits of one multiprocessor."""

    number: int
    threads: int
    shared: int  # bytes
    reserved: int = 1024  # shared bytes the system takes from each block


TARGETS = (
    Target(75, 1024, 64 * 1024, 0),
    Target(80, 2048, 164 * 1024),
    Target(86, 1536, 100 * 1024),
    Target(89, 1536, 100 * 1024),
    Target(90, 2048, 228 * 1024),
    Target(100, 2048, 228 * 1024),
    Target(103, 2048, 228 * 1024),
    Target(110, 1536, 228 * 1024),
    Target(120, 1536, 100 * 1024),
    Target(121, 1536, 100 * 1024),
)


def occupancy(target: Target, registers: int, threads: int, shared: int) -> float:
    """Share of the threads that blocks of this size can occupy at once."""
    warp_registers = -(-registers * 32 // 256) * 256
    warps = PARTITIONS * (REGISTERS // warp_registers)
    by_registers = warps // (threads // 32)
    granted = -(-(shared + target.reserved) // SHARED_UNIT) * SHARED_UNIT
    by_shared = target.shared // max(granted, SHARED_UNIT)
    blocks = min(by_registers, by_shared, target.threads // threads)
    return blocks * threads / target.threads
