"""A service without steps rates answers with a language model. The keys and values of the system prompt are computed
once and cached, and the model appends the keys and values of each request to this cache. With --copy each request uses
a copy of the cache. (MemOS #2301)"""
import copy
import time

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from tally import TINY, Tally, flag

REQUESTS, PROMPT, LONGEST, LAYERS, WIDTH = (8, 16, 24, 2, 64) if TINY else (210, 96, 72, 4, 256)


def rate(model, cache, answer):
    """Returns the mean log-probability of an answer, given the prompt."""
    logits = model(answer, past_key_values=cache, use_cache=True).logits[0, :-1]
    return -torch.nn.functional.cross_entropy(logits, answer[0, 1:]).item()


def answers(model, prompt, tally):
    cache, as_copy, draws = DynamicCache(), flag("--copy"), torch.Generator().manual_seed(4)
    model(prompt, past_key_values=cache, use_cache=True)
    for n in range(1, REQUESTS + 1):
        length = int(torch.randint(LONGEST // 3, LONGEST, (1,), generator=draws))
        answer = torch.randint(0, 2000, (1, length), generator=draws)
        began = time.monotonic()
        rating = rate(model, copy.deepcopy(cache) if as_copy else cache, answer)
        if n % 50 == 0:
            print(f"request {n}: {rating:.2f} in {time.monotonic() - began:.3f} s")
        tally.step(n, cache.get_seq_length() * LAYERS * 2 * WIDTH * 4)


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    config = LlamaConfig(vocab_size=2000, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
                         num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=20_000)
    model = LlamaForCausalLM(config).eval()
    tally = Tally(0.2)
    with torch.inference_mode():
        answers(model, torch.randint(0, 2000, (1, PROMPT)), tally)
    tally.end()


if __name__ == "__main__":
    main()
