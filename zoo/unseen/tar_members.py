"""Two loader workers each read one endless tar stream through all epochs. tarfile keeps the header of each member in
the list TarFile.members, and each header contains a caption of 32 kB. --clear empties the list after each member.
(webdataset #97, cpython #102120)"""
import io
import tarfile

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (2, 4, 4) if TINY else (5, 40, 16)
WORKERS, MEMBERS, SIDE, CAPTION = 2, 64, 96, 32_000


def make_shard(seed):
    """Returns a tar file with captions in its pax headers, without the blocks that mark its end."""
    rng, file = np.random.default_rng(seed), io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for i in range(MEMBERS):
            picture = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8).tobytes()
            info = tarfile.TarInfo(f"{i:06d}.raw")
            info.size = len(picture)
            letters = rng.integers(97, 123, CAPTION, dtype=np.uint8).tobytes().decode("ascii")
            info.pax_headers = {"comment": letters}
            tar.addfile(info, io.BytesIO(picture))
        end = tar.offset
    return file.getvalue()[:end]


class Pipe:
    """An endless stream that repeats the shard."""

    def __init__(self, shard):
        self.shard, self.at = shard, 0

    def read(self, size):
        part = self.shard[self.at:self.at + size]
        self.at = (self.at + len(part)) % len(self.shard)
        return part if len(part) == size else part + self.read(size - len(part))


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, clear):
        self.clear, self.tar = clear, None

    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        if self.tar is None:
            self.tar = tarfile.open(fileobj=Pipe(make_shard(worker)), mode="r|")
        for _ in range(STEPS * BATCH // WORKERS):
            yield self.read_member(worker)

    def read_member(self, worker):
        info = self.tar.next()
        picture = np.frombuffer(self.tar.extractfile(info).read(), np.uint8).reshape(SIDE, SIDE, 3)
        if self.clear:
            self.tar.members = []
        label = len(info.pax_headers["comment"].split("a")) % 4
        return torch.from_numpy(picture.astype(np.float32) / 255), label, worker, len(self.tar.members) * CAPTION


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Stream(flag("--clear")), batch_size=BATCH, num_workers=WORKERS,
                                         persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(),
                        nn.Linear(32 * 15 * 15, 256), nn.ReLU(), nn.Linear(256, 4))
    best = torch.optim.Adam(net.parameters(), 1e-3)
    tally, n, held = Tally(0.21), 0, {}
    for _ in range(EPOCHS):
        for pictures, labels, worker, live in loader:
            loss = nn.functional.cross_entropy(net(pictures.permute(0, 3, 1, 2)), labels)
            best.zero_grad()
            loss.backward()
            best.step()
            held[int(worker[-1])] = int(live[-1])
            n += 1
            tally.step(n, sum(held.values()))
    tally.end()


if __name__ == "__main__":
    main()
