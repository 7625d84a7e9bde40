"""Entity embeddings with noisy batches. A debug log of gradients is written through logging.MemoryHandler, which
buffers the log. The program sends its marks directly to the socket, without the ebb
package.
"""
import _held
run = _held.Run("log_handler", "--capacity", "the handler flushes after twenty records",
                total_steps=200, seconds=38)

import logging
import logging.handlers
import os
import random
import socket

import numpy as np
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(4)
EPOCHS, STEPS = 5, 40
_sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
_sock.settimeout(0.2)


def tell(**kv):
    if run.marks and "EBB_SOCKET" in os.environ:
        try:
            _sock.sendto("".join(f"{k}={v}\n" for k, v in kv.items()).encode(),
                         os.environ["EBB_SOCKET"])
        except OSError:
            pass


log = logging.getLogger("train.grads")
log.setLevel(logging.DEBUG)
log.propagate = False
handler = logging.handlers.MemoryHandler(capacity=20 if run.twin else 1_000_000,
                                         flushLevel=logging.ERROR,
                                         target=logging.NullHandler())
log.addHandler(handler)


class Entities(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(330_000, 256, sparse=True)
        self.head = torch.nn.Linear(256, run.n(400))

    def forward(self, ids):
        return self.head(self.table(ids).mean(1))


def buffered():
    return sum(a.nbytes for r in handler.buffer for a in (r.args or ())
               if isinstance(a, torch.Tensor))


def log_gradients(step, model):
    log.debug("step %d: %s", step, model.head.weight.grad.detach().clone())


def preprocess():
    """Returns a batch of random length; sometimes needs a large temporary array for a long document."""
    length = int(np.clip(random.lognormvariate(3.2, 0.9), 4, 600))
    ids = torch.randint(0, 330_000, (8, length))
    if random.random() < 0.3:
        dense = np.ones((random.randrange(10, 110), 1024, 256), dtype=np.float32)  # 1 MiB each
        ids[0, 0] = int(dense[:, 0, 0].sum()) % 330_000
    return ids


def main():
    model = Entities()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tell(KIND="begin", STEPS_PER_EPOCH=STEPS, MAX_STEPS=EPOCHS * STEPS)
    step = 0
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            ids = preprocess()
            out = model(ids)
            loss = torch.nn.functional.cross_entropy(out, torch.zeros(len(out), dtype=torch.long))
            optimizer.zero_grad()
            loss.backward()
            log_gradients(step, model)
            optimizer.step()
            step += 1
            tell(KIND="step", STEP=step, EPOCH=step / STEPS)
            run.pace(buffered(), weight=random.uniform(0.4, 1.6))
        tell(KIND="epoch", STEP=step, EPOCH=epoch + 1)
        print("epoch", epoch, "loss", round(loss.item(), 4), flush=True)
    tell(KIND="end", STEP=step)
    run.report(buffered(), records=len(handler.buffer))
    handler.buffer.clear()


main()
