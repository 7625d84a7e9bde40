"""Mean-teacher training of a small CNN; the gap between student and teacher is logged in every step."""
import argparse, copy, json, os, random, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--fixed", action="store_true", help="log the number, not the tensor")
p.add_argument("--tiny", action="store_true")
args = p.parse_args()

torch.manual_seed(3)
random.seed(3)
torch.set_num_threads(1)
STEPS, EPOCHS, PAUSE = (10, 2, 0.0) if args.tiny else (52, 4, 0.2)


class UnevenBatches:
    """Yields batches of 20 to 44 examples, as a sampler with a token budget would."""

    def __init__(self, n, batches):
        self.n, self.batches = n, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        order = torch.randperm(self.n).tolist()
        at = 0
        for _ in range(self.batches):
            size = random.randint(20, 44)
            yield [order[(at + i) % self.n] for i in range(size)]
            at += size


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(144, 10))


@torch.no_grad()
def update_teacher(teacher, student, decay=0.99):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)


def consistency(student, teacher, images):
    """Returns the distance between student and teacher on clean images, which is logged but not trained
    on."""
    with torch.no_grad():
        target = teacher(images).softmax(-1)
    return F.kl_div(student(images).log_softmax(-1), target, reduction="batchmean")


def graph_bytes(kept, skip):
    """Returns the bytes of all tensors kept alive by the autograd graphs of the stored values."""
    seen, nodes, total = set(skip), set(), 0
    todo = [v.grad_fn for v in kept if torch.is_tensor(v) and v.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    value = getattr(node, name)
                except RuntimeError:
                    continue
                if torch.is_tensor(value) and value.data_ptr() not in seen:
                    seen.add(value.data_ptr())
                    total += value.untyped_storage().nbytes()
        todo.extend(n for n, _ in node.next_functions)
    return total


def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


images, labels = torch.randn(1600, 3, 28, 28), torch.randint(10, (1600,))
loader = DataLoader(TensorDataset(images, labels), batch_sampler=UnevenBatches(1600, STEPS))
val = DataLoader(TensorDataset(images[:200], labels[:200]), batch_size=50)
student = cnn()
teacher = copy.deepcopy(student)
opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
history = {"loss": [], "gap": []}
truth = {"step": [], "live": [], "rss": []}
step, began = 0, time.monotonic()
for epoch in range(EPOCHS):
    student.train()
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(student(x + 0.1 * torch.randn_like(x)), y)
        loss.backward()
        opt.step()
        update_teacher(teacher, student)
        gap = consistency(student, teacher, x)
        history["loss"].append(loss.item())
        history["gap"].append(gap.item() if args.fixed else gap)
        step += 1
        if step % (STEPS // 2) == 0:
            truth["step"].append(step)
            truth["live"].append(graph_bytes(history["gap"], {q.data_ptr() for q in student.parameters()}))
            truth["rss"].append(rss())
        time.sleep(max(0, began + step * PAUSE - time.monotonic()))
    student.eval()
    with torch.no_grad():
        good = sum((student(x).argmax(1) == y).sum().item() for x, y in val)
    print(f"epoch {epoch}: loss {sum(history['loss'][-STEPS:]) / STEPS:.3f} accuracy {good / 200:.2f}")
print("TRUTH", json.dumps(truth))
