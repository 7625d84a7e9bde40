"""The loss and the target masks of each batch are added to a list, for a table at the end. The masks come from two
loader workers, so each is a mapping of shared memory. --numbers keeps only the loss and the covered fraction."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (3, 62, 8)
SIDE = 96


class Cells(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        dice = torch.Generator().manual_seed(i)
        picture = torch.rand((1, SIDE, SIDE), generator=dice)
        return picture, (picture[0] > 0.6).float()


class Outcomes:
    def __init__(self, numbers):
        self.numbers, self.rows = numbers, []

    def note(self, loss, masks):
        self.rows.append((loss, float(masks.mean()) if self.numbers else masks))

    def held(self):
        return sum(kept.nbytes for _, kept in self.rows if torch.is_tensor(kept))


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 3, padding=1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(Cells(), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    outcomes, tally, n = Outcomes(flag("--numbers")), Tally(0.21), 0
    for _ in range(EPOCHS):
        for pictures, masks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(net(pictures)[:, 0], masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            outcomes.note(loss.item(), masks)
            n += 1
            tally.step(n, outcomes.held())
    tally.end()


if __name__ == "__main__":
    main()
