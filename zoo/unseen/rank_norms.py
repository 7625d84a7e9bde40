"""Two ranks train with torch.distributed. Only rank 1 keeps the gradients of its last layer, for a histogram that is
never drawn. With --norms it keeps only the norms of these gradients. (transformers #7315)"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tally import TINY, Tally, flag, marks

EPOCHS, STEPS = (2, 4) if TINY else (4, 50)


def train(rank, store, norms):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    torch.manual_seed(3)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    net = nn.Sequential(nn.Linear(128, 320), nn.ReLU(), nn.Linear(320, 320))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    ebb, tally, history, held, n = marks(), Tally(0.2), [], 0, 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            loss = net(torch.randn(64, 128)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
            if rank == 1:
                grad = net[2].weight.grad
                history.append(grad.norm().item() if norms else grad.clone())
                held += 0 if norms else grad.numel() * 4
            optimizer.step()
            n += 1
            ebb.step(n, epoch=epoch, steps_per_epoch=STEPS)
            tally.step(n, held)
    if rank == 1:
        tally.end()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (os.path.join(folder, "store"), flag("--norms")), nprocs=2)


if __name__ == "__main__":
    main()
