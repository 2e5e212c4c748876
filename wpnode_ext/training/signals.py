"""Ctrl-C and SIGTERM as requests that training answers between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether, and by which signal, the process was asked to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # asked twice: stop at once
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Catches SIGINT and SIGTERM inside the block; a second one interrupts at once.

    Outside the main thread signals cannot be caught, and nothing is.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request._note) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
