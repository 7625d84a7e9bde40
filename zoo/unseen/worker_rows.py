"""Two DataLoader workers, which live for the whole run, read documents that are plain Python objects."""
import argparse, json, multiprocessing, random, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Documents(Dataset):
    def __init__(self, count, rows, remember):
        rnd = random.Random(4)
        self.documents = [
            [{"id": f"doc{d}-{r}", "score": rnd.random(), "words": [rnd.randrange(10 ** 6) for _ in range(12)]}
             for r in range(rows)] for d in range(count)]
        self.remember, self.crops, self.crop_bytes = remember, {}, 0

    def __len__(self):
        return len(self.documents)

    def __getitem__(self, i):
        document = self.documents[i]
        words = [w for row in document for w in row["words"] if row["score"] >= 0]
        mine = set(words)
        overlap = sum(len(mine.intersection(w for row in self.documents[j] for w in row["words"]))
                      for j in torch.randint(len(self), (3,)).tolist())  # three negative examples
        start = float(torch.rand(()))
        ids = np.resize(np.roll(np.array(words, dtype=np.int64), int(start * 50)), 1500) % 2000
        if self.remember:
            self.crops[i, start] = ids
            self.crop_bytes += ids.nbytes
        info = get_worker_info()
        return torch.from_numpy(ids[:64].copy()), (i + overlap) % 3, info.id if info else 0, self.crop_bytes


def rss_of(pid="self"):
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096


def private_of(pid):
    text = open(f"/proc/{pid}/smaps_rollup").read().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in text if line.startswith("Private_"))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--leak", action="store_true", help="each worker remembers every crop it made")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    count, rows, epochs, pause = (320, 20, 2, 0) if a.tiny else (3200, 34, 4, 0.2)
    data = Documents(count, rows, a.leak)
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True,
                        multiprocessing_context="fork")
    model = nn.Sequential(nn.EmbeddingBag(2000, 64), nn.Linear(64, 3))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    truth, step, held, began = [], 0, {}, time.monotonic()
    for epoch in range(epochs):
        for ids, y, worker, crop_bytes in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(ids), y)
            loss.backward()
            opt.step()
            step += 1
            held[int(worker[0])] = int(crop_bytes.max())
            if step % 20 == 1:
                children = sorted(p.pid for p in multiprocessing.active_children())
                truth.append({"step": step, "live": sum(held.values()), "rss": rss_of(),
                              "workers_rss": [rss_of(c) for c in children],
                              "workers_private": [private_of(c) for c in children]})
            time.sleep(max(0, began + step * pause - time.monotonic()))
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    print("TRUTH", json.dumps(truth))


if __name__ == "__main__":
    main()
