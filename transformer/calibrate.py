"""How fast this machine trains, and which decoder makes the most of some time on it."""

from __future__ import annotations

import math
import time

import torch
from torch.nn import functional as F

from transformer.init import initialise
from transformer.model import Transformer
from transformer.shape import SIZES, Shape, choose, decoder

TOKENS_A_PARAMETER = 12  # where a small decoder makes the most of a budget; see docs/decisions.md
TOKENS_A_BYTE = 0.27  # of English, with a vocabulary of some thousands
EPOCHS = 8  # more passes over the text teach little
STEPS = 2000  # into which a budget is cut


def measured_flops(device: str, autocast: bool) -> float:
    """Useful floating-point operations a second: 6 for each parameter and token, as the field counts."""
    shape = choose(["tiny"], {})
    model = Transformer(decoder(shape))
    initialise(model, 0)
    model = model.to(device)
    ids = torch.zeros(2, shape.context, dtype=torch.int64, device=device)
    best = math.inf
    for _ in range(4):  # the first ones find memory and kernels
        started = time.perf_counter()
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())
        loss.backward()
        loss.item()
        best = min(best, time.perf_counter() - started)
    return 6 * sum(p.numel() for p in model.parameters()) * ids.numel() / best


def bf16_pays(device: str) -> bool:
    """Whether products in bf16 are clearly faster. Some processors have the instruction and are slower with it."""
    if device.startswith("cuda"):
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu" or not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return False
    seconds = dict.fromkeys((torch.float32, torch.bfloat16), math.inf)
    for _ in range(10):  # in turns, and the best of each: what else the machine does shall not decide
        for dtype in seconds:
            x, weight = torch.ones(2048, 256, dtype=dtype), torch.ones(1024, 256, dtype=dtype)
            started = time.perf_counter()
            F.linear(x, weight)
            seconds[dtype] = min(seconds[dtype], time.perf_counter() - started)
    return seconds[torch.float32] > 1.2 * seconds[torch.bfloat16]


def fitting(flops: float, seconds: float, text: int) -> tuple[str, int]:
    """The preset whose size suits the budget and the bytes of text, and how many tokens a step should take."""
    best = math.sqrt(flops * seconds / (6 * TOKENS_A_PARAMETER))  # parameters
    best = min(best, EPOCHS * TOKENS_A_BYTE * text / TOKENS_A_PARAMETER)
    sizes = {name: parameters(choose([name], {})) for name in SIZES}
    chosen = min(sizes, key=lambda name: abs(math.log(sizes[name] / max(best, 1))))
    tokens = flops * seconds / (6 * sizes[chosen])
    return chosen, min(max(2 ** round(math.log2(max(tokens / STEPS, 1))), 1 << 12), 1 << 19)


def parameters(shape: Shape) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(decoder(shape)).parameters())
