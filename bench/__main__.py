"""python -m bench [decode|prefill|batch|quality|start|explain|train ...]: measures what is here, installs nothing."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.measures import MEASURES, Setting
from bench.report import as_markdown, machine, write_report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="measure", help=f"{', '.join(MEASURES)}; all if none is named")
    parser.add_argument("--model", type=Path, default=Path(__file__).parents[1] / "weights" / "fable")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "tfm-bench", help="for other formats"
    )
    parser.add_argument("--text", type=Path, help="what the model has not seen: to judge precision by")
    parser.add_argument("--out", type=Path, help="write benchmarks.json, .md and .svg here")
    options = parser.parse_args()
    unknown = [name for name in options.measures if name not in MEASURES]
    if unknown:
        parser.error(f"unknown measure {unknown[0]!r}, known are {', '.join(MEASURES)}")
    setting = Setting(options.model, options.work, options.threads, options.rounds, options.text)
    for name in options.measures or MEASURES:
        print(f"{name} …", file=sys.stderr, flush=True)
        MEASURES[name](setting)
    if options.out is not None:
        write_report(setting, options.out)
    print(as_markdown(setting.rows, {"model": options.model.name, "threads": options.threads, **machine()}))


if __name__ == "__main__":
    main()
