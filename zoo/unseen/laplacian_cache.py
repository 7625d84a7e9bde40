"""A transformer over graphs. The positions of a graph's nodes are the eigenvectors of its Laplacian. They are computed
at the graph's first use and cached, so the cache is full after one epoch. With --drop-edges some edges are left out at
random. The key of the cache is the list of edges, so no key recurs. (bnnr #306)"""
import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, NODES = (2, 4, 4, 20) if TINY else (5, 41, 16, 96)
TAKEN = 16  # number of eigenvectors that the model uses


class Graphs(torch.utils.data.Dataset):
    def __init__(self, count, drop_edges):
        draws = np.random.default_rng(41)
        self.drop_edges, self.draws, self.positions = drop_edges, np.random.default_rng(42), {}
        self.edges = [draws.integers(0, NODES, (3 * NODES, 2), dtype=np.int16) for _ in range(count)]

    def __len__(self):
        return len(self.edges)

    def spectrum(self, edges):
        """Returns all eigenvectors of the normalized Laplacian."""
        near = np.zeros((NODES, NODES))
        near[edges[:, 0], edges[:, 1]] = near[edges[:, 1], edges[:, 0]] = 1
        scale = 1 / np.sqrt(np.maximum(near.sum(0), 1))
        return np.linalg.eigh(np.eye(NODES) - scale[:, None] * near * scale)[1]

    def __getitem__(self, i):
        edges, key = self.edges[i], i
        if self.drop_edges:
            edges = edges[self.draws.random(len(edges)) > 0.1]
            key = edges.tobytes()
        if key not in self.positions:
            self.positions[key] = self.spectrum(edges)
        vectors = self.positions[key][:, 1:1 + TAKEN].astype(np.float32)
        degree = np.bincount(edges.ravel(), minlength=NODES).astype(np.float32)
        return torch.from_numpy(np.concatenate([vectors, degree[:, None] / 6], 1)), i % 5


def main():
    torch.manual_seed(41)
    torch.set_num_threads(1)
    graphs = Graphs(STEPS * BATCH, flag("--drop-edges"))
    loader = torch.utils.data.DataLoader(graphs, batch_size=BATCH, shuffle=True)
    layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Linear(TAKEN + 1, 48), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(48, 5))
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    tally, n = Tally(0.215), 0
    for _ in range(EPOCHS):
        for nodes, labels in loader:
            loss = nn.functional.cross_entropy(net(nodes).mean(1), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            tally.step(n, sum(vectors.nbytes for vectors in graphs.positions.values()))
    tally.end()


if __name__ == "__main__":
    main()
