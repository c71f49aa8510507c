"""From distances to a prior without a cut: values against networkx, gradients against finite differences."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from tests.topology.test_differentiable import clusters
from toporo.topology.differentiable import batch_emd, differentiable_emd
from toporo.topology.operator import dyadic_coefficients
from toporo.topology.soft import current_flow_betweenness, soft_adjacency


def weighted_graph(m: int, seed: int, missing: float) -> Tensor:
    """Conductances of a connected graph: a path, and other edges with this chance of being absent."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0.05, 3.0, (m, m)), 1)
    path = np.eye(m, k=1) > 0
    upper[(rng.uniform(size=(m, m)) < missing) & ~path] = 0.0
    return torch.tensor(upper + upper.T)


def chain(m: int) -> Tensor:
    """Distances on a line."""
    places = torch.arange(m, dtype=torch.float64)
    return (places[:, None] - places).abs()


# ---------------------------------------------------------------------- current-flow betweenness


@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0], ids=["complete", "sparse", "path"])
@pytest.mark.parametrize("m", [3, 4, 7, 12])
def test_current_flow_is_that_of_networkx(m: int, missing: float) -> None:
    adjacency = weighted_graph(m, seed=m, missing=missing)
    graph = nx.from_numpy_array(adjacency.numpy())
    expected = nx.current_flow_betweenness_centrality(graph, normalized=False, weight="weight")
    exact = current_flow_betweenness(adjacency, smoothing=0.0)
    np.testing.assert_allclose(exact, [expected[node] for node in range(m)], rtol=1e-9, atol=1e-9)
    smooth = current_flow_betweenness(adjacency)
    assert (smooth <= exact + 1e-12).all()
    np.testing.assert_allclose(smooth, exact, rtol=0.1, atol=1e-2)


def test_on_a_tree_it_counts_shortest_paths() -> None:
    star = nx.star_graph(4)
    adjacency = torch.tensor(nx.to_numpy_array(star))
    expected = nx.betweenness_centrality(star, normalized=False)
    found = current_flow_betweenness(adjacency, smoothing=0.0)
    np.testing.assert_allclose(found, [expected[node] for node in range(5)], atol=1e-12)


def test_the_unit_of_conductances_does_not_matter() -> None:
    adjacency = weighted_graph(6, seed=0, missing=0.3)
    expected = current_flow_betweenness(adjacency)
    for factor in (1e-6, 1e6):
        torch.testing.assert_close(current_flow_betweenness(factor * adjacency), expected, rtol=1e-9, atol=1e-9)


def test_graphs_in_a_batch_do_not_meet() -> None:
    graphs = torch.stack([weighted_graph(5, seed, 0.3) for seed in range(3)])
    expected = torch.stack([current_flow_betweenness(graph) for graph in graphs])
    torch.testing.assert_close(current_flow_betweenness(graphs), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", [1, 2])
def test_with_fewer_than_three_groups_none_is_between(m: int) -> None:
    distances = torch.ones(m, m, dtype=torch.float64)
    assert current_flow_betweenness(soft_adjacency(distances)).tolist() == [0.0] * m


def test_gradient_of_the_current_flow() -> None:
    adjacency = weighted_graph(5, seed=1, missing=0.3).requires_grad_()
    apart = 1.0 - torch.eye(5, dtype=torch.float64)
    assert gradcheck(lambda a: current_flow_betweenness(apart * (a + a.T) / 2), (adjacency,))


def test_gradient_where_no_current_flows() -> None:
    """Between nodes at one potential, where an absolute value has no slope: in a square, all the same."""
    square = torch.tensor(nx.to_numpy_array(nx.complete_graph(4)), requires_grad=True)
    (slope,) = torch.autograd.grad(current_flow_betweenness(square).square().sum(), square)
    assert slope.isfinite().all()
    apart = 1.0 - torch.eye(4, dtype=torch.float64)
    assert gradcheck(lambda a: current_flow_betweenness(apart * (a + a.T) / 2), (square,))


# ---------------------------------------------------------------------- soft adjacency


def test_soft_adjacency_by_hand() -> None:
    distances = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]], dtype=torch.float64)
    expected = torch.exp(-distances / (0.5 * 2.0)) * (1.0 - torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(soft_adjacency(distances, reach=0.5), expected, rtol=1e-6, atol=0)


def test_the_unit_of_distances_does_not_matter() -> None:
    torch.testing.assert_close(soft_adjacency(1e4 * chain(5)), soft_adjacency(chain(5)), rtol=1e-12, atol=0)


def test_groups_that_coincide_are_joined_alike() -> None:
    nowhere = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    adjacency = soft_adjacency(nowhere)
    torch.testing.assert_close(adjacency, 1.0 - torch.eye(4, dtype=torch.float64))
    (slope,) = torch.autograd.grad(current_flow_betweenness(adjacency).square().sum(), nowhere)
    assert slope.isfinite().all()


def test_on_a_line_the_middle_is_most_central_and_ends_are_not() -> None:
    centrality = current_flow_betweenness(soft_adjacency(chain(5), reach=0.1))
    assert centrality.argmax() == 2
    np.testing.assert_allclose(centrality, [0, 3, 4, 3, 0], atol=0.05)


def test_gradient_of_the_soft_adjacency() -> None:
    distances = (chain(4) + 0.1).requires_grad_()
    assert gradcheck(lambda w: soft_adjacency((w + w.T) / 2, reach=0.5), (distances,))


# ---------------------------------------------------------------------- distances of a batch


def members(labels: Tensor, m: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, m).double()


def test_distances_of_a_batch_are_those_of_the_differentiable_emd() -> None:
    points, labels = clusters()
    width = float((points - points.mean(dim=0)).detach().square().sum(dim=1).mean().mul(2.0).sqrt())
    expected = differentiable_emd(points, labels, sigma=0.7 * width, scales=6, tol=1e-9)
    coefficients = torch.tensor(dyadic_coefficients(6, 1e-12))
    found = batch_emd(points, members(labels, 4), coefficients, width=0.7)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_distances_of_a_batch_do_not_change_with_the_unit_of_the_features() -> None:
    points, labels = clusters()
    coefficients = torch.tensor(dyadic_coefficients(5, 1e-9))
    expected = batch_emd(points, members(labels, 4), coefficients, width=0.5)
    scaled = batch_emd(1e-3 * points - 7.0, members(labels, 4), coefficients, width=0.5)
    torch.testing.assert_close(scaled, expected, rtol=1e-8, atol=0)


def test_gradient_of_the_distances_of_a_batch() -> None:
    """Through the width, too."""
    points, labels = clusters(groups=3, size=4)
    coefficients = torch.tensor(dyadic_coefficients(5, 1e-12))
    assert gradcheck(lambda x: batch_emd(x, members(labels, 3), coefficients, width=0.6), (points,))


def test_rows_that_coincide_have_no_slope() -> None:
    place = torch.ones(6, 2, dtype=torch.float64, requires_grad=True)
    coefficients = torch.tensor(dyadic_coefficients(5, 1e-9))
    matrix = batch_emd(place, members(torch.arange(6) % 3, 3), coefficients, width=0.3)
    assert float(matrix.detach().max()) < 1e-6
    assert torch.equal(torch.autograd.grad(matrix.sum(), place)[0], torch.zeros(6, 2, dtype=torch.float64))
