"A head as a distance of pytorch-metric-learning: its losses and miners equal their formulas over the head"
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.integrations import HeadDistance, as_pml_distance

DIM = 8


@pytest.mark.parametrize("name", HEADS)
def test_a_distance_is_the_head(name):
    head, X, Y = make_head(name, dim=DIM), 5 * torch.randn(7, DIM), 5 * torch.randn(4, DIM)
    distance = as_pml_distance(head)
    assert isinstance(distance, HeadDistance)
    with torch.no_grad():
        assert torch.equal(distance(X, Y), head.pairwise(X, Y))
        assert torch.equal(distance.compute_mat(X, Y), head.pairwise(X, Y))
        assert torch.equal(distance(X), head.pairwise(X, X))
        assert torch.equal(distance.pairwise_distance(X[:4], Y), head(X[:4], Y))
    assert {id(p) for p in distance.parameters()} == {id(p) for p in head.parameters()}


def test_losses_over_similarities_equal_their_formulas():
    from pytorch_metric_learning import losses, miners
    head, X, Y = make_head("directed_bregman", dim=DIM), torch.randn(4, DIM), torch.randn(6, DIM)
    ours, theirs = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1, 0])
    distance, D, same = as_pml_distance(head), head.pairwise(X, Y), ours[:, None] == theirs
    with torch.no_grad():
        found = losses.SupConLoss(0.5, distance=distance)(X, ours, ref_emb=Y, ref_labels=theirs)
        share = (-D / 0.5).log_softmax(1)
        torch.testing.assert_close(found, -((share * same).sum(1) / same.sum(1)).mean())
        found = losses.NCALoss(distance=distance)(X, ours, ref_emb=Y, ref_labels=theirs)
        torch.testing.assert_close(found, -((-D).softmax(1) * same).sum(1).log().mean())
        a, p, b, n = miners.PairMarginMiner(2.0, 3.0, distance=distance)(X, ours, Y, theirs)
    assert set(zip(a.tolist(), p.tolist())) == {(i, j) for i, j in (same & (D > 2)).nonzero().tolist()}
    assert set(zip(b.tolist(), n.tolist())) == {(i, j) for i, j in (~same & (D < 3)).nonzero().tolist()}


def test_losses_and_miners_take_rows_as_sources():
    from pytorch_metric_learning import losses, miners
    head, X, Y, rows = make_head("directed_bregman", dim=DIM), torch.randn(6, DIM), torch.randn(6, DIM), torch.arange(6)
    distance, D = as_pml_distance(head), head.pairwise(X, Y)
    off = ~torch.eye(6, dtype=torch.bool)
    triplet = losses.TripletMarginLoss(margin=0.2, distance=distance)(X, rows, ref_emb=Y, ref_labels=rows.clone())
    hinge = (0.2 + D.diagonal()[:, None] - D)[off].relu()
    torch.testing.assert_close(triplet, hinge[hinge > 0].mean())
    contrastive = losses.ContrastiveLoss(0, 1, distance=distance)(X, rows, ref_emb=Y, ref_labels=rows.clone())
    apart = (1 - D[off]).relu()
    torch.testing.assert_close(contrastive, D.diagonal().mean() + apart[apart > 0].sum() / max(1, (apart > 0).sum()))
    a, p, n = miners.BatchHardMiner(distance=distance)(X, rows, Y, rows.clone())
    assert torch.equal(p, a) and torch.equal(n, D.masked_fill(~off, torch.inf).argmin(1))


def test_a_tester_of_the_library_ranks_by_the_head():
    from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN
    head, X, Y = make_head("directed_bregman", dim=DIM), torch.randn(12, DIM), 3 * torch.randn(12, DIM)
    nearest = head.pairwise(X, Y).argmin(1)
    knn = CustomKNN(as_pml_distance(head))
    tester = GlobalEmbeddingSpaceTester(
        normalize_embeddings=False, dataloader_num_workers=0,
        accuracy_calculator=AccuracyCalculator(include=("precision_at_1",), k=1, knn_func=knn))
    data = dict(query=list(zip(X, nearest.tolist())), target=list(zip(Y, range(12))))
    found = tester.test(data, 0, torch.nn.Identity(), torch.nn.Identity(), [("query", ["target"])])
    assert found["query"]["precision_at_1_level0"] == 1.0


def test_no_head_no_distance():
    with pytest.raises(TypeError, match="expected a DistanceHead, found Linear"):
        as_pml_distance(torch.nn.Linear(2, 2))
