"""Runs `tfm` as a real process with real pipes and signals, forked from the tests so that torch is loaded once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, NamedTuple

ENVIRONMENT = {"TFM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "", "TERM": "xterm"}
os.environ.update(ENVIRONMENT)


class Result(NamedTuple):
    code: int  # negative: the number of the signal that ended it
    out: bytes
    err: bytes

    @property
    def error(self) -> str:
        """The one line that an error must be."""
        text = self.err.decode()
        assert text.startswith("tfm: error: ") and text.count("\n") == 1, text
        assert "Traceback" not in text and "\x1b" not in text and len(text) < 500
        return text.removeprefix("tfm: error: ").rstrip("\n")


class Running:
    """A forked `tfm` whose output can be read while it runs."""

    def __init__(
        self,
        *args: str | bytes,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        **env: str,
    ):
        out, err = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become_tfm(args, stdin, stdout or out[1], stderr or err[1], env)
        os.close(out[1])
        os.close(err[1])
        self.out: IO[bytes] = os.fdopen(out[0], "rb", buffering=0)
        self.err: IO[bytes] = os.fdopen(err[0], "rb")

    def wait(self) -> int:
        self.out.close()
        status = os.waitpid(self.pid, 0)[1]
        return os.waitstatus_to_exitcode(status)

    def finish(self) -> Result:
        out, err = self.out.readall(), self.err.read()  # type: ignore[attr-defined]
        self.err.close()
        return Result(self.wait(), out, err)


def tfm(*args: str | bytes, stdin: bytes | None = None, stdout: int | None = None, **env: str) -> Result:
    """Runs to the end. Without `stdin` there is /dev/null."""
    if stdin is None:
        return Running(*args, stdout=stdout, **env).finish()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin and cat.stdout
        running = Running(*args, stdin=cat.stdout.fileno(), stdout=stdout, **env)
        cat.stdout.close()
        try:
            cat.stdin.write(stdin)
            cat.stdin.close()
        except BrokenPipeError:
            pass
        return running.finish()


def _become_tfm(args: tuple[str | bytes, ...], stdin: int | None, out: int, err: int, env: dict[str, str]) -> None:
    code = 99
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null if stdin is None else stdin), (1, out), (2, err)):
            os.dup2(source, target)
        os.closerange(3, 256)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        sys.stdin, sys.stdout, sys.stderr = (open(fd, mode) for fd, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
        sys.argv = ["tfm", *(os.fsdecode(arg) for arg in args)]
        os.environ.update(env)
        from cli.main import main

        main()
    except SystemExit as leave:
        code = int(leave.code or 0)
        sys.stdout.flush()
    finally:
        os._exit(code)


def scratch(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
