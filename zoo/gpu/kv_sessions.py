"""A small language model answers questions while it trains. The key-value cache of every session is kept for the next
question of its user. --fixed keeps only the caches of the last eight sessions."""
from collections import OrderedDict

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from kit import DEVICE, EPOCHS, FIXED, STEPS, TINY, Items, Tally

BATCH, LENGTH, TOKENS, USERS = (2, 8, 2, 8) if TINY else (8, 96, 8, 8)


class Sessions:
    def __init__(self):
        self.caches = OrderedDict()

    def put(self, user, cache):
        self.caches[user] = cache
        while FIXED and len(self.caches) > USERS:
            self.caches.popitem(last=False)


@torch.no_grad()
def answer(model, prompt):
    """Greedy decoding, in which the cache grows by one token at a time."""
    out = model(prompt, use_cache=True)
    for _ in range(TOKENS):
        token = out.logits[:, -1:].argmax(-1)
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
    return out.past_key_values


def main():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=256, n_embd=256, n_layer=4, n_head=4)).to(DEVICE)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = Items(BATCH, lambda i: torch.randint(2000, (LENGTH,)))
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    sessions, tally, step = Sessions(), Tally(), 0
    for _ in range(EPOCHS):
        for ids in loader:
            ids = ids.to(DEVICE)
            loss = model(ids, labels=ids).loss
            opt.zero_grad()
            loss.backward()
            opt.step()
            sessions.put(step, answer(model, ids[:2]))
            step += 1
            tally.step(step)
    print("sessions", len(sessions.caches), "of", EPOCHS * STEPS)
    tally.end()


if __name__ == "__main__":
    main()
