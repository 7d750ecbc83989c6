"""Writes rows of words without sense, each row several times: what comes next can only be found further up.

    python docs/repeat.py tinystories.txt BYTES SEED > repeated.txt

The words are those of the stories, each as often as the root of how often it stands there.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from pathlib import Path

from weights.documents import SEPARATOR


def repeated(words: list[str], weights: list[float], chance: random.Random) -> str:
    row = " ".join(chance.choices(words, weights, k=chance.randint(6, 80)))
    return "\n\n".join([row] * chance.randint(2, 4))


def main() -> None:
    path, size, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    counts = Counter(re.findall(r"[A-Za-z]+", path.read_text(encoding="utf-8")))
    words, weights = list(counts), [count**0.5 for count in counts.values()]
    while size > 0:
        text = f"{repeated(words, weights, chance)}\n{SEPARATOR}\n"
        size -= len(text)
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
