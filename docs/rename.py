"""Tells the stories of TinyStories again with other names, so that who is who must be read and not known by heart.

    python docs/rename.py tinystories.txt TIMES HELD_OUT SEED > renamed.txt

Each story comes TIMES times. A name stands for another of the same gender throughout a story; common names remain more
common than others. Documents whose lot is below HELD_OUT are left out, and so are stories without a name.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from weights.documents import SEPARATOR, lot, read_parts

# Those that stand behind "girl named" or "boy named", less what is also a word or of either gender; with their counts.
GIRLS = """Lily 1614 Sue 824 Lucy 530 Mia 389 Amy 344 Sally 147 Jane 108 Sarah 86 Anna 58 Emma 56 Mary 33 Molly 30 Lisa
29 Ann 23 Emily 18 Alice 17 Sophie 14 Jenny 14 Lola 12 Millie 11 Jill 11 Susie 11 Sara 11 Ella 10 Mandy 8 Maria 8 Bella
8 Kate 8 Annie 7 Julie 6 Clara 6 Katie 6 Rachel 6 Maya 5 Claire 5 Julia 5 Ellie 4 Polly 4 Chloe 4 Tina 4"""
BOYS = """Tim 2889 Tom 509 Timmy 249 Jack 122 John 42 Bob 37 Joe 33 Ben 18 Billy 12 Jake 12 Pete 10 Peter 9 Jim 8 Dave 6
Johnny 6 George 5 Tommy 5 Frank 5 Joey 5 Andy 5 James 4 Bobby 4 Toby 4 David 3 Bill 3 Paul 3 Luke 3 Thomas 3 Benny 3
Josh 3 Jimmy 3 Kevin 2 Danny 2 Tony 2 Leo 2 Mike 2 Henry 2 Daniel 2"""


def _pool(table: str) -> dict[str, float]:
    words = table.split()
    return {name: float(count) ** 0.5 for name, count in zip(words[::2], words[1::2], strict=True)}


POOLS = (_pool(GIRLS), _pool(BOYS))
NAME = re.compile(rf"\b({'|'.join(name for pool in POOLS for name in pool)})\b")


def renamed(story: str, chance: random.Random) -> str:
    there = set(NAME.findall(story))
    others: dict[str, str] = {}
    for name in sorted(there):
        pool = next(pool for pool in POOLS if name in pool)
        free = [other for other in pool if other not in there and other not in others.values()]
        (others[name],) = chance.choices(free, [pool[other] for other in free])
    return NAME.sub(lambda found: others[found[0]], story)


def main() -> None:
    path, times, held_out = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    stories = [part.text for part in read_parts(path)]
    stories = [story for story in stories if lot(story) >= held_out and NAME.search(story)]
    chance = random.Random(int(sys.argv[4]))
    for _ in range(times):
        for story in stories:
            print(renamed(story, chance), SEPARATOR, sep="\n")


if __name__ == "__main__":
    main()
