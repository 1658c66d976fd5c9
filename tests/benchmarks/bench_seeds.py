"""Ten seeds of one head trained together, by torch.func: `python tests/benchmarks/bench_seeds.py`

A step of all ten as one batched model (`vmap` over their weights and their batches, one AdamW for the stack), against
ten steps one after the other as `fit` takes them, on one thread as the study does. The stack does nothing but the loss,
its gradient and AdamW, so it is given more than it could keep. Rows go to results/seeds.csv.
"""

import torch
from bench_heads import DIM, HIDDEN, PROJ, dataset
from common import interleave, made_by, rows, save
from fastcore.script import call_parse
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from rolebregman.baselines import make_head
from rolebregman.heads import BregmanHead
from rolebregman.training import TrainConfig, make_step

KINDS = {"role_bregman, k = 64": lambda: BregmanHead(DIM, PROJ, HIDDEN),
         "directed_bregman": lambda: make_head("directed_bregman", DIM), "mlp": lambda: make_head("mlp", DIM)}


def loss_of(head, x, y, wrong):
    "The paper's two margin losses of one batch: encoded sources and targets of each pair, and a random target"
    u, v, n, back = head.source(x), head.target(y), head.target(wrong), (head.source(y), head.target(x))
    forward, negative, reverse = head.compare(torch.cat([u, u, back[0]]), torch.cat([v, n, back[1]])).chunk(3)
    return torch.relu(1 + forward - negative).mean() + torch.relu(1 + forward - reverse).mean()


def together(make, seeds, size):
    "A function that takes one step of all seeds at once"
    heads = [make() for _ in range(seeds)]
    state, buffers = stack_module_state(heads)
    state = {name: value.detach().requires_grad_() for name, value in state.items()}
    optimizer = torch.optim.AdamW(list(state.values()), lr=1e-3, fused=True)
    items = torch.randn(3, seeds, size, DIM)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = heads[0]

        def forward(self, *given): return loss_of(self.head, *given)

    model = Loss()

    def of_one(weights, buffer, *given):
        named = {f"head.{name}": value for name, value in {**weights, **buffer}.items()}
        return functional_call(model, named, given)

    step = vmap(grad_and_value(of_one))

    def run():
        gradients, _ = step({name: value.detach() for name, value in state.items()}, buffers, *items)
        for name, value in state.items():
            value.grad = gradients[name]
        optimizer.step()

    return run


def one_by_one(make, seeds, size, ds):
    "A function that takes a step of `fit` for each seed"
    steps = []
    for _ in range(seeds):
        head = make().fit_standardizer(ds.features)
        steps.append(make_step(head, ds, TrainConfig(batch_size=size)))
    batch = torch.arange(size)
    return lambda: [step(batch) for step in steps]


@call_parse
def main(
    seeds: int = 10,  # How many
    sizes: str = "16,128,512",  # Edges in a batch
    rounds: int = 20,  # Of each contender
):
    "Measure, print, and write results/seeds.csv"
    torch.set_num_threads(1)
    ds, table = dataset(), []
    for size in map(int, sizes.split(",")):
        for name, make in KINDS.items():
            torch.manual_seed(0)
            runs = {"one after the other": one_by_one(make, seeds, size, ds),
                    "together": together(make, seeds, size)}
            what, own = f"{seeds} seeds of {name}, batch {size}", {}
            bar = 0.5 if size == 128 and name == "directed_bregman" else None  # the study's batches
            times = interleave(runs, rounds, warm=2, own=own)
            table += rows(what, times, [("together", "one after the other", bar)], own)
    save(table, "seeds")
    print(made_by())
