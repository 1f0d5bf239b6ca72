"""A Ray cluster of two nodes, one of which is lost."""

import pytest
from ray.cluster_utils import Cluster

from attnflow.corpus.example import Example
from attnflow.corpus.ray_engine import connect, run_on_cluster
from attnflow.corpus.settings import Settings
from tests.corpus.models import as_bytes
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
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


@pytest.mark.filterwarnings("ignore:a worker of the Ray cluster")
def test_the_shards_of_a_lost_node_are_scored_by_the_other(nodes, tmp_path):
    settings = Settings(model=save(tmp_path / "model"))

    def feed():
        for i, shard in enumerate(SHARDS):
            if i == 10:
                [lost] = [node for node in nodes.list_all_nodes() if node is not nodes.head_node]
                nodes.remove_node(lost, allow_graceful=False)
            yield shard

    with connect(nodes.address):
        results = list(run_on_cluster(settings, feed(), lambda *_: None, workers=2))
    assert [shard[0].example.index for shard in results] == list(range(20))
    assert len({as_bytes(shard)[0][8]["rollout"] for shard in results}) == 1
