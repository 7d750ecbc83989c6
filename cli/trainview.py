"""What a person sees of a training run: one live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cli.plot import braille, smoothed
from cli.terminal import colourful, note, progress, safe

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Group
    from rich.live import Live

    from transformer.train import Step

INTERVAL = 10.0  # seconds between plain lines
REFRESH = 0.25  # seconds between pictures, at least
POINTS = 4000  # of the curve, at most
WIDTH, HEIGHT = 100, 8  # of it on the screen, at most
SAMPLE = 300  # characters


class Pace:
    """Tokens a second and time left, over the last while."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int, float]] = []  # time, tokens, progress

    def add(self, step: Step) -> None:
        self.marks.append((time.monotonic(), step.tokens, step.progress))
        self.marks = self.marks[-200:]

    def _since(self) -> tuple[float, int, float]:
        first, last = self.marks[0], self.marks[-1]
        return last[0] - first[0], last[1] - first[1], last[2] - first[2]

    @property
    def tokens_a_second(self) -> float:
        seconds, tokens, _ = self._since()
        return tokens / seconds if seconds else 0.0

    @property
    def left(self) -> str:
        seconds, _, part = self._since()
        return duration(seconds / part * (1 - self.marks[-1][2])) if part else "?"


def duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours}:{minutes % 60:02}:{int(seconds) % 60:02}" if hours else f"{minutes}:{int(seconds) % 60:02}"


def figures(step: Step, pace: Pace) -> str:
    return (
        f"step {step.step:,}  {step.progress:.1%}  loss {step.loss:.3f}  lr {step.lr:.2g}  "
        f"{pace.tokens_a_second:,.0f} tokens/s  {pace.left} left"
    )


class Silent:
    """For all processes but the first."""

    def note(self, line: str) -> None: ...
    def reading(self, what: str, done: int, total: int) -> None: ...
    def step(self, step: Step) -> None: ...
    def evaluated(self, overall: float, sources: dict[str, float]) -> None: ...
    def saved(self, path: Path, write: Callable[[], str]) -> None: ...
    def close(self) -> None: ...


class Plain:
    """One line an interval."""

    def __init__(self) -> None:
        self.pace, self.told, self.activity = Pace(), 0.0, ""

    def note(self, line: str) -> None:
        note(safe(line))

    def reading(self, what: str, done: int, total: int) -> None:
        if what != self.activity:
            self.activity = what
            note(f"{what}: {total / 1e6:.1f} MB")

    def step(self, step: Step) -> None:
        self.pace.add(step)
        if time.monotonic() - self.told >= INTERVAL or step.progress >= 1:
            self.told = time.monotonic()
            note(figures(step, self.pace))

    def evaluated(self, overall: float, sources: dict[str, float]) -> None:
        note(bits(overall, sources))

    def saved(self, path: Path, write: Callable[[], str]) -> None: ...
    def close(self) -> None: ...


def bits(overall: float, sources: dict[str, float]) -> str:
    each = ", ".join(f"{safe(name)} {bpb:.3f}" for name, bpb in sources.items())
    return f"{overall:.4f} bits per byte of unseen text" + (f" ({each})" if len(sources) > 1 else "")


class Screen:
    """The live display: progress, figures, the curve of the loss, and what the model writes by now."""

    def __init__(self) -> None:
        self.pace, self.drawn = Pace(), 0.0
        self.losses: list[tuple[float, float]] = []
        self.last: Step | None = None
        self.valid, self.sample, self.message = "", "", ""
        self.live: Live | None = None

    def note(self, line: str) -> None:
        if self.live is None:
            progress("")
            note(safe(line))
        else:
            self.message = safe(line)
            self._draw()

    def reading(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self.drawn >= REFRESH:
            self.drawn = time.monotonic()
            progress(f"{what}: {min(done / max(total, 1), 1):.0%} of {total / 1e6:.1f} MB")

    def step(self, step: Step) -> None:
        self.pace.add(step)
        self.last = step
        self.losses.append((step.progress, step.loss))
        if len(self.losses) > POINTS:
            self.losses = self.losses[::2]
        if time.monotonic() - self.drawn >= REFRESH or step.progress >= 1:
            self._draw()

    def evaluated(self, overall: float, sources: dict[str, float]) -> None:
        self.valid = bits(overall, sources)
        self._draw()

    def saved(self, path: Path, write: Callable[[], str]) -> None:
        sample = " ".join(write().split())
        self.message, self.sample = f"saved {safe(str(path))}; it writes:", safe(sample)[:SAMPLE]
        self._draw()

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        if self.live is None:
            progress("")
            # A console of its own: without colour it is still a terminal.
            plain = not colourful(sys.stderr)
            own = Console(file=sys.stderr, no_color=plain, markup=False, highlight=False, emoji=False)
            self.live = Live(console=own, auto_refresh=False)
            self.live.start()
        self.drawn = time.monotonic()
        self.live.update(self._picture(), refresh=True)

    def _picture(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        assert self.live is not None
        width = min(self.live.console.width, WIDTH)
        lines: list[tuple[str, str]] = []
        if self.last is not None:
            full = round(self.last.progress * width)
            lines += [("━" * full + "╌" * (width - full), "green"), (figures(self.last, self.pace), "")]
            lines += [(line, "cyan") for line in braille(smoothed(self.losses), width, HEIGHT)]
        lines += [(self.valid, "bold"), (self.message, "dim"), (self.sample, "italic")]
        return Group(*(Text(line, style) for line, style in lines if line))


def view_for(first: bool) -> Silent | Plain | Screen:
    if not first:
        return Silent()
    return Screen() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Plain()
