"""Training with the Hugging Face Trainer and a straight-through rounding function. The forward method stores its own
output on ctx, which creates a reference cycle through the autograd graph. Garbage collection is off, so that all steps
take the same time. With --save-for-backward the output is saved with ctx.save_for_backward, and there is no cycle."""
import gc
import tempfile
import weakref

from kit import Ledger, Pace, hf_args, options, torch_cpu

EPOCHS, STEPS, BATCH, WIDTH = 4, 45, 64, 4096

opts = options("--save-for-backward")
torch = torch_cpu()
from torch import nn
from transformers import Trainer, TrainerCallback

MADE = []  # weak references to outputs of the forward method, used only to count them


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        out = torch.round(x * levels) / levels
        if opts.twin:
            ctx.save_for_backward(out)
        else:
            ctx.out = out
        return out

    @staticmethod
    def backward(ctx, grad):
        out = ctx.saved_tensors[0] if opts.twin else ctx.out
        return grad * (out.abs() < 4), None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(24, WIDTH)
        self.outer = nn.Linear(WIDTH, 8)

    def forward(self, x, labels=None):
        q = Round.apply(self.inner(x), 16.0)
        MADE.append(weakref.ref(q))
        logits = self.outer(q)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def live():
    global MADE
    MADE = [ref for ref in MADE if ref() is not None]
    return sum(ref().nbytes for ref in MADE)


class Clock(TrainerCallback):
    def __init__(self):
        self.pace, self.ledger = Pace(0.18, opts.tiny), Ledger()

    def on_step_end(self, args, state, control, **kwargs):
        self.pace.tick()
        if state.global_step == 1 or state.global_step % 6 == 0:
            self.ledger.note(state.global_step, live())


def main():
    epochs, steps = (1, 4) if opts.tiny else (EPOCHS, STEPS)
    rows = [{"x": torch.randn(24), "labels": i % 8} for i in range(steps * BATCH)]
    clock = Clock()
    gc.collect()
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        args = hf_args(folder, num_train_epochs=epochs, per_device_train_batch_size=BATCH)
        Trainer(Net(), args, train_dataset=rows, callbacks=[clock]).train()
    clock.ledger.close(epochs, steps)


main()
