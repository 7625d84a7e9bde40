"""A recursive network on trees whose nodes refer to their parents. A garbage collection every 25 steps frees the trees.
Sends marks with the ebb package."""
import _held
run = _held.Run("gc_saveall", "--debug-gc", "gc.DEBUG_SAVEALL was left on after a hunt for cycles",
                total_steps=160, seconds=34)

import gc
import random

import torch

try:
    import ebb
except ImportError:
    ebb = None

torch.set_num_threads(1)
torch.manual_seed(0)
rng = random.Random(2)
DIM = run.n(8192, 16)


class Node:
    def __init__(self, parent=None):
        self.parent, self.children, self.state = parent, [], None
        if parent:
            parent.children.append(self)


def grow(depth, parent=None):
    node = Node(parent)
    if depth:
        grow(depth - 1, node)
        grow(depth - 1, node)
    return node


def encode(node, weight):
    """Computes the states bottom-up. Each node keeps its state, for the losses of all levels."""
    if not node.children:
        node.state = torch.full((DIM,), rng.random())
    else:
        node.state = torch.tanh(sum(encode(c, weight) for c in node.children) * weight.detach())
    return node.state


def kept():
    if not gc.garbage:
        return 0
    return sum(o.state.nbytes for o in list(gc.garbage) if type(o) is Node and o.state is not None)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(DIM))
        self.words = torch.nn.Embedding(80_000, 256)


net = Net()
opt = torch.optim.Adam([net.scale], lr=1e-2)
gc.set_threshold(100_000, 50, 50)  # makes automatic collections rare, because they take too much time
if run.twin:
    gc.set_debug(gc.DEBUG_SAVEALL)
gc.collect()
gc.garbage.clear()
step, live = 0, 0
EPOCHS, STEPS = 4, 40
for epoch in range(EPOCHS):
    for _ in range(STEPS):
        tree = grow(4)  # one tree has 31 nodes
        root = encode(tree, net.scale)
        loss = ((root * net.scale - 0.5) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        del tree, root
        step += 1
        if step % 25 == 0:
            gc.collect()
        if step % 8 == 0:
            live = kept()
        if ebb and run.marks:
            ebb.step(step, epoch=step / STEPS, steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
        run.pace(live)
    if ebb and run.marks:
        ebb.mark("epoch", step=step, epoch=epoch + 1)
    print("epoch", epoch, round(loss.item(), 5), "uncollectable", len(gc.garbage), flush=True)
if ebb and run.marks:
    ebb.mark("end", step=step)
gc.collect()
run.report(kept(), garbage=len(gc.garbage))
gc.set_debug(0)
