"""Trains a GRU language model. Every 14 steps the held-out text is scored, and its logits are gathered for the
metric."""
import argparse, json, os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCAB = 1800


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.head = nn.Linear(48, VOCAB)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


def gather_logits(model, loader):
    """Returns all logits and labels of the held-out text."""
    model.eval()
    logits, labels = [], []
    with torch.no_grad():
        for (x,) in loader:
            logits.append(model(x[:, :-1]))
            labels.append(x[:, 1:])
    model.train()
    return torch.cat(logits), torch.cat(labels)


def metrics(logits, labels):
    loss = sum(nn.functional.cross_entropy(l, y).item() for l, y in zip(logits, labels)) / len(labels)
    return {"perplexity": 2.718281828 ** loss, "top1": (logits.argmax(-1) == labels).float().mean().item()}


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--leak", action="store_true", help="keep the logits beside the metrics")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(9)
    torch.set_num_threads(1)
    n, epochs, pause = (12 * 16, 2, 0) if a.tiny else (12 * 56, 4, 0.18)
    text = torch.randint(VOCAB, (n, 25))
    loader = DataLoader(TensorDataset(text), batch_size=12, shuffle=True)
    held_out = DataLoader(TensorDataset(torch.randint(VOCAB, (72, 25))), batch_size=24)
    model, results, truth, step, began = LM(), [], [], 0, time.monotonic()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        for (x,) in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
            loss.backward()
            opt.step()
            step += 1
            if step % 14 == 0:
                logits, labels = gather_logits(model, held_out)
                results.append({"step": step, **metrics(logits, labels)})
                if a.leak:
                    results[-1]["logits"] = logits
                del logits, labels
            if step % 14 == 7:
                truth.append([step, sum(r["logits"].nbytes for r in results if "logits" in r), rss()])
            time.sleep(max(0, began + step * pause - time.monotonic()))
        print(f"epoch {epoch} {loss.item():.3f}", flush=True)
    print("TRUTH", json.dumps({"evaluations": len(results), "step_live_rss": truth}))


if __name__ == "__main__":
    main()
