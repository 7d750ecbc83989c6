"""Makes the embedded model, weights/fable, of finished runs of `tfm train`.

    python docs/make_fable.py RUN…

Several runs are stretches of one training, each begun --from the one before. The last one's weights are written in fp16
with its tokenizer and the sampling settings below, and measured on its held-out documents: the bits per byte of each
source go into the model card and docs/fable.md, the curves of all stretches into docs/fable.svg.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import torch

from cli.plot import loss_svg
from transformer.evaluate import bits_per_byte, windows
from transformer.parallel import World
from weights.checkpoint import load_model, open_checkpoint, save_model
from weights.corpus import open_corpus
from weights.run import Run

ROOT = Path(__file__).resolve().parent.parent
FABLE = ROOT / "weights" / "fable"
SAMPLING = {"do_sample": True, "temperature": 0.7, "min_p": 0.05, "max_new_tokens": 200}
PAGES = (FABLE / "README.md", ROOT / "docs" / "fable.md")
# Made of what is there (rename.py, swap.py, repeat.py, fable itself): what is held out of them says nothing of unseen
# stories.
MADE = ("renamed", "swapped", "repeated", "sampled")
TABLE = re.compile(r"(?<=<!-- bits per byte -->\n).*?(?=<!-- end -->)", re.DOTALL)


def ship(run: Path) -> None:
    checkpoint = open_checkpoint(run)
    FABLE.mkdir(exist_ok=True)
    save_model(load_model(checkpoint, torch.float16), FABLE, checkpoint.values)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(run / name, FABLE / name)
    settings = json.loads((run / "generation_config.json").read_text()) | SAMPLING
    (FABLE / "generation_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def table(run: Run) -> str:
    """Bits per byte of documents held out from training, by source."""
    model = load_model(open_checkpoint(FABLE), torch.float32)
    corpus = open_corpus(run.data, run.base())
    lines = ["| source | held-out documents | bits per byte |", "|-|-:|-:|"]
    for name, source in corpus.sources.items():
        if name in MADE:
            continue
        spans = windows(source.held_out(), model.config.context)
        bits = bits_per_byte(model, corpus.valid, spans, corpus.token_bytes, lambda: False, World())
        lines.append(f"| {name} | {len(source.documents)} | {bits:.3f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


def curves(runs: list[Run]) -> str:
    rows, steps = [], 0
    for run in runs:
        found = run.metrics()
        rows += [row | {"step": steps + row["step"]} for row in found]
        steps += found[-1]["step"]
    return loss_svg(rows)


def main() -> None:
    runs = [Run(Path(path)) for path in sys.argv[1:]]
    ship(runs[-1].path)
    (ROOT / "docs" / "fable.svg").write_text(curves(runs))
    bits = table(runs[-1])
    for page in PAGES:
        page.write_text(TABLE.sub(bits, page.read_text()))


if __name__ == "__main__":
    main()
