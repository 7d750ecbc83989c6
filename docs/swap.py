"""Tells the stories of TinyStories again with other things in them: what comes again can only be found further up.

    python docs/swap.py tinystories.txt TIMES HELD_OUT SEED > swapped.txt

A thing that a story names twice becomes another one throughout ("the ball" a kettle), and names become others as in
rename.py. Documents whose lot is below HELD_OUT are left out, and so are stories in which no thing comes twice.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from pathlib import Path

from rename import NAME, renamed

from weights.documents import SEPARATOR, lot, read_parts

WORD = re.compile(r"\b[a-z]+\b")
LEAST = 20  # times that a word must stand in the text to be taken for a thing
NO_THING = re.compile(
    r"..?|.*s|time|mom|dad|while|long|way|end|lot|own|real|top|special|pretty|funny|soft|warm|broken|perfect"
)


def things(text: str) -> dict[str, float]:
    """Words that stand behind an article and before a stop often enough to be nouns; with the roots of their counts."""
    counts = Counter(WORD.findall(text))
    led = Counter(re.findall(r"\b(?:a|an|the|his|her|their) ([a-z]+)\b", text))
    ended = Counter(re.findall(r"\b([a-z]+)[.,!?]", text))
    return {
        word: count**0.5
        for word, count in counts.items()
        if count >= LEAST and led[word] > 0.35 * count and ended[word] > 0.2 * count and not NO_THING.fullmatch(word)
    }


def swapped(story: str, pool: dict[str, float], chance: random.Random) -> str:
    counts = Counter(WORD.findall(story))
    again = [word for word in sorted(counts) if word in pool and counts[word] + counts[f"{word}s"] > 1]
    others = dict(zip(again, _draw(pool, len(again), counts, chance), strict=True))
    others |= {f"{word}s": f"{other}s" for word, other in others.items()}
    if not others:
        return story
    found = re.compile(rf"\b(?:([Aa])n? )?({'|'.join(others)})\b")
    return found.sub(lambda match: _article(match[1], others[match[2]]), story)


def _draw(pool: dict[str, float], count: int, taken: Counter[str], chance: random.Random) -> list[str]:
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        (word,) = chance.choices(list(pool), list(pool.values()))
        if not taken[word]:
            drawn[word] = None
    return list(drawn)


def _article(article: str | None, word: str) -> str:
    if article is None:
        return word
    return f"{article}{'n' * (word[0] in 'aeiou')} {word}"


def main() -> None:
    path, times, held_out = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    stories = [part.text for part in read_parts(path)]
    stories = [story for story in stories if lot(story) >= held_out]
    chance, pool = random.Random(int(sys.argv[4])), things("\n".join(stories))
    for story in chance.choices(stories, k=round(times * len(stories))):
        other = swapped(story, pool, chance)
        if other != story:
            print(renamed(other, chance) if NAME.search(other) else other, SEPARATOR, sep="\n")


if __name__ == "__main__":
    main()
