"""For each batch, graphs of widely varying size are built from small arrays. Some graphs are kept for replay."""
import argparse, collections, json, random, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(3)
        self.sizes = np.minimum(rng.pareto(1.6, n) * 60 + 30, 2500).astype(int)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        return build_graph(int(self.sizes[i]), i)


def build_graph(nodes, seed):
    """Returns, for each node, the weights of its edges."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(int(k)) for k in rng.integers(16, 160, nodes)]


def pooled(graph):
    return [len(graph), *np.percentile([v.sum() for v in graph], [5, 25, 50, 75, 95]), np.mean([len(v) for v in graph])]


def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fixed", action="store_true", help="replay the last 40 graphs only")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    n, epochs, pause = (160, 2, 0) if a.tiny else (768, 4, 0.21)
    loader = DataLoader(Graphs(n), batch_size=16, shuffle=True, collate_fn=list)
    model = nn.Sequential(nn.BatchNorm1d(7), nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adagrad(model.parameters())
    replay = collections.deque(maxlen=40 if a.fixed else None)
    truth, step, began = [], 0, time.monotonic()
    for epoch in range(epochs):
        for graphs in loader:
            x = torch.tensor([pooled(g) for g in graphs], dtype=torch.float32)
            y = x[:, :1].log()
            opt.zero_grad()
            error = (model(x) - y).square()
            error.mean().backward()
            opt.step()
            replay.extend(random.sample(graphs, 5))
            step += 1
            if step % 16 == 0 or step == 1:
                truth.append([step, sum(v.nbytes for g in replay for v in g), rss()])
            time.sleep(max(0, began + step * pause - time.monotonic()))
        some = random.sample(list(replay), min(16, len(replay)))
        model.eval()
        with torch.no_grad():
            again = model(torch.tensor([pooled(g) for g in some], dtype=torch.float32)).mean().item()
        model.train()
        print(f"epoch {epoch} error {error.mean().item():.3f} replay {again:.3f}", flush=True)
    print("TRUTH", json.dumps({"replay": len(replay), "step_live_rss": truth}))


if __name__ == "__main__":
    main()
