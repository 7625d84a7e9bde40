"""Two loader workers keep each clip that had to be repaired, for a report that workers never write. With --count the
workers keep only the number of these clips. (pytorch #62066, #20433)"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

EPOCHS, CLIPS, BATCH, LENGTH = (2, 16, 4, 1000) if TINY else (5, 320, 8, 24_000)


class Clips(Dataset):
    def __init__(self, count):
        self.count, self.repaired, self.broken = count, 0, []

    def __len__(self):
        return CLIPS

    def repair(self, wave):
        fixed = wave.clamp(-2, 2)
        if self.count:
            self.repaired += 1
        else:
            self.broken.append((wave, fixed))
        return fixed

    def __getitem__(self, i):
        wave = torch.randn(LENGTH)
        return self.repair(wave) if i % 2 else wave, i % 5


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv1d(1, 16, 40, stride=20), nn.ReLU(), nn.Conv1d(16, 32, 8, stride=4), nn.ReLU(),
                        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(Clips(flag("--count")), BATCH, num_workers=2, persistent_workers=True)
    tally, n = Tally(0.2), 0
    for _ in range(EPOCHS):
        for waves, labels in loader:
            loss = nn.functional.cross_entropy(net(waves[:, None]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n += 1
            tally.step(n, 0 if flag("--count") else n * BATCH // 2 * 2 * LENGTH * 4)
    tally.end()


if __name__ == "__main__":
    main()
