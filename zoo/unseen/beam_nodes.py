"""A small translator. Each evaluation decodes some sentences by beam search and keeps the best hypothesis of each
sentence, for a table at the end of the run. A hypothesis is a chain of nodes, each with a view of the decoder's state.
--text keeps only the tokens. (spaCy #6269, NeMo #631)"""
import torch
from torch import nn

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, EVERY = (2, 4, 4, 2) if TINY else (5, 41, 16, 20)
WORDS, WIDTH, LENGTH, BEAM, EXAMPLES = (60, 32, 6, 2, 3) if TINY else (600, 384, 20, 4, 16)


class Node:
    """A token of a hypothesis, with the decoder's state after it."""

    def __init__(self, token, score, state, before):
        self.token, self.score, self.state, self.before = token, score, state, before

    def tokens(self):
        return (self.before.tokens() if self.before else []) + [self.token]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 96)
        self.encoder, self.decoder = nn.GRU(96, WIDTH, batch_first=True), nn.GRU(96, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, source, target):
        state = self.encoder(self.embed(source))[1]
        return self.head(self.decoder(self.embed(target), state)[0])

    def decode(self, source):
        """Returns the best node after LENGTH tokens."""
        state = self.encoder(self.embed(source[None]))[1]
        beam = [Node(0, 0.0, state[:, 0], None)]
        for _ in range(LENGTH):
            tokens = torch.tensor([[node.token] for node in beam])
            output, state = self.decoder(self.embed(tokens), torch.stack([node.state for node in beam], 1))
            scores = self.head(output[:, 0]).log_softmax(-1) + torch.tensor([[node.score] for node in beam])
            best, at = scores.flatten().topk(BEAM)
            beam = [Node(i % WORDS, score, state[:, i // WORDS], beam[i // WORDS])
                    for score, i in zip(best.tolist(), at.tolist())]
        return beam[0]


def evaluate(net, sources, table, text):
    net.eval()
    with torch.no_grad():
        for source in sources:
            best = net.decode(source)
            table.append((source, best.tokens() if text else best))
    net.train()


def held(table):
    """Returns the bytes of the states that the table's nodes refer to."""
    storages = {}
    for _, node in table:
        while isinstance(node, Node):
            storage = node.state.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            node = node.before
    return sum(storages.values())


def main():
    torch.manual_seed(38)
    torch.set_num_threads(1)
    sources = torch.randint(1, WORDS, (STEPS * BATCH, LENGTH))
    loader = torch.utils.data.DataLoader(sources, batch_size=BATCH, shuffle=True)
    net = Translator()
    best = torch.optim.AdamW(net.parameters(), 1e-3)
    table, tally, n, live = [], Tally(0.21), 0, 0
    for _ in range(EPOCHS):
        for source in loader:
            target = source.flip(1)
            logits = net(source, torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], 1))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
            best.zero_grad()
            loss.backward()
            best.step()
            n += 1
            if n % EVERY == 0:
                evaluate(net, sources[:EXAMPLES], table, flag("--text"))
                live = held(table)
            tally.step(n, live)
    for source, best_of in table[-2:]:
        print(source[:5].tolist(), (best_of if flag("--text") else best_of.tokens())[:5])
    tally.end()


if __name__ == "__main__":
    main()
