"""The wish to stop: the first Ctrl-C or SIGTERM asks, a second one of its kind ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

SHOW_CURSOR = b"\x1b[?25h"  # now, because nothing could restore it after a second signal
MESSAGE = b"stopping after this step; once more to leave at once\r\n"


class Stop:
    """True once a signal has come."""

    def __init__(self, tell: bool = True) -> None:
        self.number: int | None = None
        self._tell = tell
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        return self.number is not None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # From now on the kernel's own action, so that nothing we are in the middle of can delay the end. Only for
        # this kind: torchrun passes a Ctrl-C on as a SIGTERM, which is no second wish.
        signal.signal(number, signal.SIG_DFL)
        if self.number is None and self._tell:
            with suppress(OSError):  # past Python's buffers: the signal may have come in the middle of a print
                os.write(2, SHOW_CURSOR + b"\r\n" + MESSAGE if sys.stderr.isatty() else MESSAGE)
        self.number = self.number or number
