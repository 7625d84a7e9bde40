"""Skip-gram word vectors with negative sampling. Uses only numpy."""
import argparse, json, os, shutil, tempfile, time
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--fixed", action="store_true", help="draw the negatives of a block once, not once an epoch")
parser.add_argument("--tiny", action="store_true")
flags = parser.parse_args()

VOCAB, DIM, NEG = 4000, 48, 8
BLOCK = 20_000
BLOCKS, EPOCHS, PACE = (8, 2, 0.0) if flags.tiny else (50, 5, 0.16)
rng = np.random.default_rng(11)

folder = tempfile.mkdtemp()
path = os.path.join(folder, "corpus.bin")
weights = 1.0 / np.arange(1, VOCAB + 1)
weights /= weights.sum()
rng.choice(VOCAB, BLOCK * BLOCKS, p=weights).astype(np.int32).tofile(path)
corpus = np.memmap(path, dtype=np.int32, mode="r")
noise = np.cumsum(weights ** 0.75 / (weights ** 0.75).sum())

negatives_of = {}


def negatives(epoch, block, count):
    key = block if flags.fixed else (epoch, block)
    if key not in negatives_of:
        negatives_of[key] = np.minimum(np.searchsorted(noise, rng.random((count, NEG))), VOCAB - 1).astype(np.int32)
    return negatives_of[key]


def train_block(words, neg, vin, vout, lr=0.02):
    pick = rng.integers(1, len(words) - 1, rng.integers(600, 1500))
    center, context = words[pick], words[pick + 1]
    out = np.concatenate([context[:, None], neg[pick]], 1)
    score = 1 / (1 + np.exp(-np.einsum("nd,nkd->nk", vin[center], vout[out])))
    score[:, 0] -= 1
    grad = np.einsum("nk,nkd->nd", score, vout[out])
    np.add.at(vout, out, -lr * score[:, :, None] * vin[center][:, None])
    np.add.at(vin, center, -lr * grad)
    return float(np.abs(score[:, 0]).mean())


def rss():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")


vin, vout = rng.standard_normal((VOCAB, DIM)) * 0.1, np.zeros((VOCAB, DIM))
truth, step = [], 0
for epoch in range(EPOCHS):
    for block in rng.permutation(BLOCKS):
        began = time.perf_counter()
        words = np.asarray(corpus[block * BLOCK:(block + 1) * BLOCK])
        err = train_block(words, negatives(epoch, int(block), BLOCK), vin, vout)
        step += 1
        if step % 25 == 0 or step == 1:
            truth.append((step, sum(a.nbytes for a in negatives_of.values()), rss()))
        time.sleep(max(0.0, PACE - (time.perf_counter() - began)))
    np.save(os.path.join(folder, "vectors.npy"), vin)
    nearest = np.argsort(-(vin @ vin[10]))[:5]
    print(f"epoch {epoch} error {err:.3f} near word 10: {nearest.tolist()}", flush=True)
shutil.rmtree(folder)
print("TRUTH", json.dumps({"step_live_rss": truth}))
