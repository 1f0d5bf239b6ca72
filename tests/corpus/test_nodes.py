"""A Ray cluster of two nodes, of which one is lost."""

import pytest
from ray.cluster_utils import Cluster

from attnflow.corpus.example import Example
from attnflow.corpus.ray_engine import connected, run_on_cluster
from attnflow.corpus.settings import Settings
from tests.corpus.scoring import as_bytes
from tests.models.checkpoints import save

pytestmark = [
    pytest.mark.slow,
    # Ray leaves the files of its logs to be closed at exit.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SHARDS = [[Example(i, str(i), "the key to the cabinets")] for i in range(20)]


@pytest.fixture
def nodes():
    """Two nodes with one processor each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def test_the_shards_of_a_lost_node_are_computed_by_the_other(nodes, tmp_path):
    settings = Settings(model=save(tmp_path / "model"))

    def feed():
        for i, shard in enumerate(SHARDS):
            if i == 10:
                [lost] = [node for node in nodes.list_all_nodes() if node is not nodes.head_node]
                nodes.remove_node(lost, allow_graceful=False)
            yield shard

    with connected(nodes.address):
        found = list(run_on_cluster(settings, feed(), lambda *_: None, workers=2))
    assert [results[0].example.index for results in found] == list(range(20))
    assert len({as_bytes(results)[0][8]["rollout"] for results in found}) == 1
