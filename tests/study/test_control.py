"The control that is blind to the pair, the pairs that it gets wrong, and matched pairs, by hand"
import numpy as np
import pandas as pd
import torch

from rolebregman.datasets import DirectedDataset
from rolebregman.evaluation import Scores
from rolebregman.study import control_metrics, matched


def test_matched_pairs_have_targets_seen_equally_often_and_texts_of_equal_length():
    nodes = pd.DataFrame(dict(id=list("abcd"), text=["one", "two words", "one", "two words"]))
    edges = dict(train=np.array([[0, 1], [2, 1], [0, 3]]), valid=np.zeros((0, 2), int),
                 test=np.array([[2, 0], [0, 2], [1, 3], [2, 3]]))
    ds = DirectedDataset("four", np.eye(4, dtype=np.float32), nodes, edges)
    # targets of training: a 0, b 2, c 0, d 1 times; words: a 1, b 2, c 1, d 2
    assert matched(ds).tolist() == [True, True, False, False]


def test_metrics_over_the_pairs_that_the_control_gets_wrong_and_over_matched_ones():
    one_way, none = torch.tensor([True, True, True, False]), torch.zeros(4, 1)
    head = Scores(torch.tensor([1.0, 2, 3, 4]), torch.tensor([2.0, 1, 3, 5]), none, one_way)
    control = Scores(torch.tensor([1.0, 2, 2, 9]), torch.tensor([2.0, 1, 2, 1]), none, one_way)
    found = control_metrics(head, control, torch.tensor([True, False, True, True]))
    # wrong in the second, a tie in the third, right in the first; the fourth has no direction
    assert found == dict(direction_prior_wrong=(0 + 0.5) / 2, direction_matched=(1 + 0.5) / 2)
    nobody = control_metrics(head, head, torch.zeros(4, dtype=torch.bool))
    assert np.isnan(nobody["direction_matched"])
