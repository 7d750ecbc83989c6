"""A tiny random model with a real tokenizer and a chat template. `python -m tests.tiny DIRECTORY` makes one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers

from transformer.config import Config, Layer, Rope
from transformer.model import Transformer
from weights.checkpoint import save_model

TEXT = (
    "Once upon a time there was a little fox who lived near the river. Every morning the fox ran down to the water "
    'and looked at the other fox in it. "Good morning," said the fox. The water said nothing. 我吃了一个苹果。 '
    "Größe, naïve, 🙂 and 👩‍👩‍👧 are text as well.\n"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config(**changes: object) -> Config:
    layer = Layer(mlp_width=48, attention_scale=8**-0.5, rope=Rope(dim=8))
    plain = Config(vocab_size=320, context=256, width=32, heads=4, kv_heads=2, head_dim=8, layers=(layer,) * 2)
    return replace(plain, **changes)  # type: ignore[arg-type]


def tiny_model(config: Config | None = None, seed: int = 0) -> Transformer:
    """Weights large enough that replies are not one repeated token."""
    model = Transformer(config or tiny_config())
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0 if name.endswith("bias") else 1.0, 0.1, generator=random)
            else:
                parameter.normal_(0.0, 1.5 * parameter.shape[-1] ** -0.5, generator=random)
    return model.eval().requires_grad_(False)


def tiny_tokenizer(vocab_size: int = 320) -> tokenizers.Tokenizer:
    """Byte-level BPE: knows every byte."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def write_tiny(path: Path, config: Config | None = None, seed: int = 0) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    save_model(tiny_model(config, seed), path)
    tiny_tokenizer().save(str(path / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {"bos_token": SPECIALS[0], "eos_token": SPECIALS[2], "chat_template": TEMPLATE},
        "generation_config.json": {"eos_token_id": [0, 2]},
    }
    for name, values in files.items():
        (path / name).write_text(json.dumps(values))
    return path


if __name__ == "__main__":
    write_tiny(Path(sys.argv[1]))
