"""Training with the Hugging Face Trainer: each evaluation writes a report of its logits and registers the report's
close method with atexit, so the report stays alive. --unregister unregisters it once the report is written. (devlib
#676, dd-trace-py #2409)"""
import atexit
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH, EVERY = (2, 4, 4, 2) if TINY else (5, 40, 16, 20)
LENGTH, WIDTH, TAGS, EVALUATED = (8, 32, 20, 16) if TINY else (48, 96, 160, 224)


class Texts(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.tokens = torch.randint(0, 2000, (count, LENGTH), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "labels": self.tokens[i] % TAGS}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2000, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 192, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, TAGS)

    def forward(self, tokens, labels):
        logits = self.head(self.body(self.table(tokens)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Report:
    """Counts which tags are mistaken for which."""
    open = 0

    def __init__(self, path, logits, labels):
        self.path, self.logits, self.labels, self.written = path, logits, labels, False
        atexit.register(self.close)
        Report.open += 1

    def close(self):
        if self.written or not self.path.parent.exists():
            return
        table = np.zeros((TAGS, TAGS), np.int32)
        np.add.at(table, (self.labels.ravel(), self.logits.argmax(-1).ravel()), 1)
        np.save(self.path, table)
        self.written = True

    def unregister(self):
        atexit.unregister(self.close)
        Report.open -= 1


class Count(TrainerCallback):
    def __init__(self, tally):
        self.tally = tally

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, Report.open * EVALUATED * LENGTH * (TAGS * 4 + 8))


def main():
    torch.manual_seed(17)
    torch.set_num_threads(1)
    count = Count(Tally(0.205))
    with tempfile.TemporaryDirectory() as folder:
        def metrics(result):
            path = pathlib.Path(folder) / f"report-{count.tally.steps[-1]}.npy"
            report = Report(path, result.predictions, result.label_ids)
            report.close()
            if flag("--unregister"):
                report.unregister()
            return {"accuracy": float((report.logits.argmax(-1) == report.labels).mean())}

        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 per_device_eval_batch_size=32, eval_strategy="steps", eval_steps=EVERY, save_strategy="no",
                                 report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = Trainer(model=Tagger(), args=args, train_dataset=Texts(STEPS * BATCH, 1),
                          eval_dataset=Texts(EVALUATED, 2), compute_metrics=metrics, callbacks=[count])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    count.tally.end()


if __name__ == "__main__":
    main()
