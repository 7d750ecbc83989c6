"""How well models predict unseen stories alone, in pairs, and all together: what one knows and another does not.

    python docs/together.py stories.txt HELD_OUT MODEL…

The models share a vocabulary. Together they predict the mean of their probabilities, which is what a student of them
learns (`tfm train --teacher`). The stories are those whose lot is below HELD_OUT, each seen alone.
"""

from __future__ import annotations

import math
import sys
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from weights.documents import lot, read_parts
from weights.load import Loaded, load


@torch.inference_mode()
def told(model: Loaded, stories: list[str]) -> Tensor:
    """The log-probability of every token of the stories; long ones are read in pieces, as far as the model sees."""
    (begin,), context = model.eos, model.model.config.context
    found = []
    for story in stories:
        ids = torch.tensor([begin, *model.tokenizer.encode_plain(story)])
        for start in range(0, len(ids) - 1, context):
            piece = ids[start : start + context + 1]
            log_p = model.model(piece[None, :-1])[0].log_softmax(-1)
            found.append(log_p.gather(1, piece[1:, None])[:, 0])
    return torch.cat(found).double()


def main() -> None:
    texts = (part.text for part in read_parts(Path(sys.argv[1])))
    stories = [text for text in texts if lot(text) < float(sys.argv[2])]
    size = sum(len(story.encode()) for story in stories)
    logs = {name: told(load(name, dtype="fp32"), stories) for name in sys.argv[3:]}
    print(f"| {len(stories)} stories | bits per byte | less than their mean |\n|-|-:|-:|")
    alone = {name: -float(log.sum()) / math.log(2) / size for name, log in logs.items()}
    for number in sorted({1, 2, len(logs)}):
        for names in combinations(logs, number):
            together = torch.stack([logs[name] for name in names]).logsumexp(0) - math.log(number)
            bits = -float(together.sum()) / math.log(2) / size
            mean = sum(alone[name] for name in names) / number
            print(f"| {', '.join(names)} | {bits:.3f} | {mean - bits:.3f} |")


if __name__ == "__main__":
    main()
