"""saved_tensors_hooks put autograd's saved tensors into a store, in half precision. The backward pass reads the tensors
but does not remove them. --pop removes them. There are neither loaders nor epochs."""
import torch
from torch import nn

from tally import TINY, Tally, flag

STEPS, BATCH, WIDTH, LAYERS = (8, 16, 64, 3) if TINY else (190, 64, 512, 4)


class Offload:
    """Stores only large activations, and no parameters."""

    def __init__(self, pop):
        self.pop, self.store, self.count = pop, {}, 0

    def pack(self, tensor):
        if tensor.shape != (BATCH, WIDTH):
            return tensor
        self.count += 1
        self.store[self.count] = tensor.detach().half()
        return self.count

    def unpack(self, packed):
        if torch.is_tensor(packed):
            return packed
        return (self.store.pop(packed) if self.pop else self.store[packed]).float()

    def held(self):
        return sum(t.nbytes for t in self.store.values())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 6)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


def main():
    torch.manual_seed(15)
    torch.set_num_threads(1)
    net, offload, tally = Net(), Offload(flag("--pop")), Tally(0.205)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for n in range(1, STEPS + 1):
        x, y = torch.randn(BATCH, WIDTH), torch.randint(0, 6, (BATCH,))
        with torch.autograd.graph.saved_tensors_hooks(offload.pack, offload.unpack):
            loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tally.step(n, offload.held())
    tally.end()


if __name__ == "__main__":
    main()
