"""Distances with a direction: a role-aware neural Bregman divergence head, its rivals, data, training and search."""
__version__ = "0.1.0"

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules="""
    baselines cli common datasets evaluation heads icnn integrations interpretability retrieval study theory training
    """.split(), submod_attrs=dict(
        baselines=["make_head"], datasets=["from_pairs", "load_dataset"], evaluation=["compare", "evaluate"],
        heads=["BregmanHead", "DistanceHead", "load_head"], retrieval=["TargetIndex"], training=["TrainConfig", "fit"]))
