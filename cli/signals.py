"""The wish to stop: the first Ctrl-C or SIGTERM asks, a second one of its kind ends the process at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

SHOW_CURSOR = "\x1b[?25h"


class Stop:
    def __init__(self, asked: Callable[[], None]):
        """`asked` runs when the first signal comes."""
        self.number: int | None = None
        self._asked = asked
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        return self.number is not None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The kernel's own action, so that nothing we are in the middle of can delay the end. Only for this kind:
        # torchrun passes a Ctrl-C on as a SIGTERM, which is no second wish.
        signal.signal(number, signal.SIG_DFL)
        if self.number is None:
            self.number = number
            if sys.stderr.isatty():
                sys.stderr.write(SHOW_CURSOR)  # nothing could restore it after a second one
            self._asked()
