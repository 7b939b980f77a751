"""A Python driver before several proxies: `several.py HOST PORT PROTOCOL`.

It prints the hosts that it knows, and those that answered it; then it waits for a line, which says
that one of them was killed, and prints who answers now.
"""

import logging
import sys

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy

host, port, protocol = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
logging.disable(logging.CRITICAL)

profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
cluster = Cluster(
    [host],
    port=port,
    protocol_version=protocol,
    execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    reconnection_policy=ConstantReconnectionPolicy(0.5, max_attempts=None),
    connect_timeout=30,
    control_connection_timeout=30,
)
session = cluster.connect(wait_for_all_pools=True)


def address(host):
    return f"{host.endpoint.address}:{host.endpoint.port}"


def ask(count):
    """Who answers so many requests."""
    answered = set()
    for _ in range(count):
        future = session.execute_async("SELECT keyspace_name FROM system_schema.keyspaces")
        assert any(row.keyspace_name == "system" for row in future.result())
        answered.add(address(future.coordinator_host))
    return " ".join(sorted(answered))


print(" ".join(sorted(address(host) for host in cluster.metadata.all_hosts())), flush=True)
print(ask(40), flush=True)
sys.stdin.readline()
print(ask(40), flush=True)
sys.stdin.readline()
# Whoever has come back is found again.
for _ in range(200):
    if " " in ask(10):
        break
print(ask(40), flush=True)
cluster.shutdown()
