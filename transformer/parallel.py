"""Several processes training one model, by torch's own engine: DDP, or FSDP2 where the parameters are shared out.

torchrun starts the processes and says who each is; without it there is one, and nothing here does anything.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from transformer.errors import EnvironmentFailed
from transformer.model import Transformer

PATIENCE = timedelta(days=1)  # with the one process that reads the text while the others wait


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    restarted: bool = False  # by torchrun, because a process died

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Sums over all processes."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        distributed.all_reduce(sums)
        return sums.tolist()

    def any(self, wish: bool) -> bool:
        return self.total(wish)[0] > 0

    def from_first(self, number: float) -> float:
        return self.total(number if self.first else 0.0)[0]

    def share(self, tensors: list[Tensor]) -> None:
        """Tensor i, computed by process i mod size, becomes everybody's."""
        if self.size > 1:
            waiting = [distributed.broadcast(t, i % self.size, async_op=True) for i, t in enumerate(tensors)]
            for work in waiting:
                work.wait()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier(distributed.new_group(backend="gloo", timeout=PATIENCE))


@contextmanager
def join() -> Iterator[World]:
    """The world that torchrun made, or a world of one."""
    if "RANK" not in os.environ:
        yield World()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    shared, rank, size = next(rendezvous("env://"))
    store = _of_this_start(shared, rank, size)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size)
    starts = shared.add("starts", 1 if rank == 0 else 0)
    restarted = starts > 1 or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    try:
        yield World(rank, size, restarted)
    except RuntimeError as error:
        if isinstance(error, distributed.DistError) or "gloo/transport" in str(error):
            raise EnvironmentFailed(f"process {rank} lost the others: {error}") from None
        raise
    finally:
        distributed.destroy_process_group()


def _of_this_start(store: Store, rank: int, size: int) -> Store:
    """A part of torchrun's store that no earlier process has written to.

    The store outlives the processes, and who finds the address of a dead one there waits for it in vain. The number
    of restarts cannot tell them apart, since each machine counts its own. So the first process gives the start a
    name, and the others believe a name that comes together with one they have just made up themselves."""
    mine = uuid4().hex
    store.set(f"name {rank}", mine)
    if rank == 0:
        while store.add(f"known {mine}", 0) < size - 1:
            store.set("names", " ".join(store.get(f"name {i}").decode() for i in range(size)))
            time.sleep(0.02)
        return PrefixStore(mine, store)
    while mine not in (names := store.get("names").decode().split()):
        time.sleep(0.02)
    store.add(f"known {names[0]}", 1)
    return PrefixStore(names[0], store)


def spread(model: Transformer, world: World, shard: bool) -> nn.Module:
    """The module to call: each process sees its own samples, the gradients are those of all."""
    if shard and world.size > 1:
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    elif world.size > 1:
        return DistributedDataParallel(model, gradient_as_bucket_view=True)  # one copy of the gradients, not two
    return model


def alone(module: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Gradients stay with this process while more of them are to be added up."""
    return module.no_sync() if wanted and isinstance(module, DistributedDataParallel) else nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be shared out, put together. Every process must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shared_like(tensor: Tensor, model: Tensor) -> Tensor:
    """A whole tensor, known to every process, shared out as another one is."""
    if not isinstance(model, DTensor):
        return tensor
    return distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)


def whole_model(model: Transformer) -> Transformer:
    """The same decoder with whole parameters, to be written. Every process must ask."""
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return model
    with torch.device("meta"):
        copy = Transformer(model.config)
    copy.load_state_dict({name: whole(p.detach()) for name, p in model.named_parameters()}, assign=True, strict=False)
    copy.tie()
    return copy
