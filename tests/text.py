"""Text to train on: stories of a few words each, all different, that a tiny model can begin to learn."""

from __future__ import annotations

import json
from pathlib import Path

WHO = ("fox", "bear", "hen", "frog", "owl", "mouse", "goat", "crow")
WHERE = ("river", "hill", "wood", "barn", "pond", "field", "house")


def story(number: int) -> str:
    who, where = WHO[number % 8], WHERE[number // 8 % 7]
    return (
        f"Once upon a time there was a {who} who lived near the {where}. It counted to {number}.\n"
        f'"Good day," said the {who}, and ran to the {where}.'
    )


def write_stories(path: Path, count: int = 60, first: int = 0) -> Path:
    path.write_text("".join(f"{story(first + i)}\n<|endoftext|>\n" for i in range(count)))
    return path


def write_chats(path: Path, count: int = 20) -> Path:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Where does the {WHO[i % 8]} live?"},
                {"role": "assistant", "content": f"Near the {WHERE[i % 7]}."},
                {"role": "user", "content": f"And how far can you count? {i}"},
                {"role": "assistant", "content": f"To {i}."},
            ]
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
