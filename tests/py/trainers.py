"""Helpers for the tests of the callbacks: a wire that records marks, and short training runs."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
if str(ROOT / "python") not in sys.path:
    sys.path.insert(0, str(ROOT / "python"))

from ebb import _wire  # noqa: E402


class Recorder(_wire.Wire):
    """Records every mark instead of sending it, and simulates requests that arrive after certain
    marks."""

    def __init__(self):
        super().__init__()
        self._is_dead = False
        self.marks = []
        self.when = {}  # ("step", "3") -> [("CHECKPOINT", "1"), …]
        self.is_gone = False
        self._is_held_back = False

    @property
    def is_there(self):
        return not self.is_gone

    def _deliver(self, text, patience_s):
        if self.is_gone:
            return False
        found = dict(line.split("=", 1) for line in text.split("\n"))
        self.marks.append(found)
        for what, number in self.when.pop((found["KIND"], found.get("STEP")), []):
            self.waiting.append(_wire.Request(what, number))
        return True

    def bind(self):
        return False  # the package must not create a socket

    def listen(self, rank=None, role="rank"):
        return self.mark("hello", True, rank=rank, role=role)

    def hold_back(self):
        """From now on, holds back steps as long as possible, so that they share marks."""
        self.help(lambda: None)
        self.help = lambda wake: None
        # otherwise the first steps would be sent one by one
        self._steps_sent = _wire._STEPS_AT_ONCE
        self._is_held_back = True

    def _send_step(self, patience_s):
        super()._send_step(patience_s)
        if self._is_held_back:
            self._step_due = float("inf")

    def of(self, *kinds):
        return [m for m in self.marks if m["KIND"] in kinds]

    def steps(self, kind="step"):
        return [int(m["STEP"]) for m in self.of(kind)]

    def answers(self):
        return [(m["ID"], m["STATUS"]) for m in self.of("ack")]


def our_calls(function, *args):
    """Calls FUNCTION. Returns the names of the ebb functions that ran."""
    folder, names = os.path.dirname(_wire.__file__), []

    def note(frame, event, _):
        if event == "call" and os.path.dirname(frame.f_code.co_filename) == folder:
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return names


def hf_trainer(folder, examples=10, callbacks=(), eval_examples=0, **arguments):
    """Returns a Trainer for a small network with dropout. The random numbers are reproducible."""
    import torch
    from transformers import Trainer, TrainingArguments, set_seed

    class Data(torch.utils.data.Dataset):
        def __init__(self, length):
            self.length = length

        def __len__(self):
            return self.length

        def __getitem__(self, i):
            x = torch.randn(8, generator=torch.Generator().manual_seed(i))
            return {"x": x, "labels": x.sum().reshape(1)}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
            )

        def forward(self, x, labels):
            y = self.body(x)
            return {"loss": torch.nn.functional.mse_loss(y, labels), "logits": y}

    set_seed(7)
    defaults = dict(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        num_train_epochs=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        seed=7,
    )
    return Trainer(
        model=Net(),
        args=TrainingArguments(**{**defaults, **arguments}),
        train_dataset=Data(examples),
        eval_dataset=Data(eval_examples) if eval_examples else None,
        callbacks=list(callbacks),
    )


def leave():
    """Ends a rank without shutting down the interpreter. After a shutdown, gloo's threads may still
    release tensors of the model, which exists until then, and would abort the process
    (pytorch/pytorch#179291)."""
    import torch

    torch.distributed.destroy_process_group()
    os._exit(0)


def weights(trainer):
    return {k: v.clone() for k, v in trainer.model.state_dict().items()}
