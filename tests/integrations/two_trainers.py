"""The trainer of sentence-transformers in one process and in two: `python two_trainers.py FOLDER`

The weights that are learned go to FOLDER/PROCESSES-CASE.safetensors.
The processes are copies of this one, whose imports take longer than all they do."""
import os
import socket
import sys
import warnings
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.multiprocessing import start_processes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    from rolebregman.baselines import make_head
    from rolebregman.integrations import DirectedEncoder, DirectedLoss

WORDS = ["poodle", "dog", "animal", "oak", "tree", "plant", "rose", "cat"]
PAIRS = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 5), (7, 2), (0, 2), (3, 5)]
CASES = {  # of the loss
    "softmax": {},
    "margin-in-parts": dict(loss="margin", mini_batch_size=1),
}


def model_in(folder):
    "A random BERT of one layer, with its tokens, and a head"
    torch.manual_seed(0)
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*marks, *WORDS]))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    small = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                 hidden_dropout_prob=0, attention_probs_dropout_prob=0, max_position_embeddings=16)
    BertModel(BertConfig(vocab_size=len(marks) + len(WORDS), **small), add_pooling_layer=False).save_pretrained(folder)
    words = Transformer(str(folder))
    bert = SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())], device="cpu")
    return DirectedEncoder.join(bert, make_head("directed_bregman", dim=8))


def train(rank, folder, processes, case, port):
    torch.set_num_threads(1)
    if processes > 1:
        os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port))
    model = model_in(folder / f"bert-{processes}-{case}-{rank}")
    data = Dataset.from_dict({end: [WORDS[pair[i]] for pair in PAIRS] for i, end in enumerate(("source", "target"))})
    settings = SentenceTransformerTrainingArguments(
        str(folder / "runs"), num_train_epochs=2, per_device_train_batch_size=2, optim="sgd", learning_rate=0.1,
        gradient_accumulation_steps=2 // processes, lr_scheduler_type="constant", max_grad_norm=0, use_cpu=True,
        save_strategy="no", report_to="none", disable_tqdm=True, seed=1)
    trainer = SentenceTransformerTrainer(model, settings, train_dataset=data, loss=DirectedLoss(model, **CASES[case]))
    trainer.train()
    if rank == 0:
        save_file(model.state_dict(), folder / f"{processes}-{case}.safetensors")
    if processes > 1:
        torch.distributed.barrier()
    os._exit(0)  # what stands is saved; taken down in order, gloo waits for a thread of its own, at times forever


if __name__ == "__main__":
    for case in CASES:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for processes in 1, 2:
            start_processes(train, (Path(sys.argv[1]), processes, case, port), processes, start_method="fork")
