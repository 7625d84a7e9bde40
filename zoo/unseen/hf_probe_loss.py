"""Training with the Hugging Face Trainer: an auxiliary value for the log is summed as a tensor with its autograd graph;
--fixed sums the results of .item()."""
import tempfile, time  # noqa
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH = (3, 6, 4) if opt.tiny else (3, 110, 4)
VOCAB, WIDTH, PROBES = 2000, 128, 200
ledger = kit.Ledger()


class Corpus(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        self.ids = torch.randint(0, VOCAB, (n, 40), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class DriftTrainer(Trainer):
    """Measures how far the embeddings move along fixed directions."""

    drift_sum = 0.0

    def embedding_drift(self, model):
        if not hasattr(self, "_directions"):
            self._directions = torch.randn(WIDTH, PROBES)
        return torch.tanh(model.get_input_embeddings().weight @ self._directions).abs().mean()

    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(**inputs)
        drift = self.embedding_drift(model)
        self.drift_sum = self.drift_sum + (drift.item() if opt.twin else drift)
        return (out.loss, out) if return_outputs else out.loss


def graph_bytes(total):
    """Returns the bytes kept alive by the graph of `total`: the results that tanh has saved."""
    if not isinstance(total, torch.Tensor):
        return 0
    todo, seen, size = [total.grad_fn], set(), 0
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name().startswith("Tanh"):
            t = node._saved_result
            size += t.numel() * t.element_size()
        todo += [n for n, _ in node.next_functions]
    return size


class Throttle(TrainerCallback):
    pace = kit.Pace(0.105, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1 or state.global_step % STEPS == 0:
            ledger.note(state.global_step, graph_bytes(trainer.drift_sum))


model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=WIDTH, n_layer=2,
                                   n_head=4))
with tempfile.TemporaryDirectory() as tmp:
    trainer = DriftTrainer(model=model, train_dataset=Corpus(STEPS * BATCH), callbacks=[Throttle()],
                           args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                                            per_device_train_batch_size=BATCH))
    trainer.train()
ledger.close(EPOCHS, STEPS, expected_per_step=0 if opt.twin else VOCAB * PROBES * 4)
